"""A report's tables in the terminal. A table that is too wide is shown in parts, which keeps its numbers whole."""

import os
import sys
from collections.abc import Collection, Iterator

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from toolformer.reporting.escape import clean
from toolformer.reporting.table import Cell, Column, Content, Table

_SENTENCES = 24
"""Characters that a column of sentences has at least."""
_GAP = 3


def print_tables(content: Content, only: Collection[str] = ()) -> None:
    """Prints the report, or only the tables with these keys and then the headline."""
    # A file or a pipe has no width; Rich would take 80 columns.
    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160, highlight=False)
    for text in (
        content.remarks if only else (content.title, content.headline, content.basis, *content.remarks)
    ):
        if text:
            console.print(clean(text), markup=False, end="\n\n")
    for table in content.tables:
        if not only or table.key in only:
            console.print(clean(f"{table.number} {table.title}"), markup=False, style="bold")
            for columns in _fitting(table, console.width) if table.rows else ():
                console.print(_grid(table, columns))
            console.print(clean(table.caption), markup=False, end="\n\n")
    if only and content.headline:
        console.print(clean(f"{content.headline} {content.basis}".strip()), markup=False, end="\n\n")


def _fitting(table: Table, width: int) -> Iterator[list[int]]:
    """The columns of each part, by index; each part begins with the first column."""
    widths = [_width(table, index) + _GAP for index in range(len(table.columns))]
    columns = [0]
    for index in range(1, len(widths)):
        if len(columns) > 1 and sum(widths[other] for other in (*columns, index)) > width:
            yield columns
            columns = [0]
        columns.append(index)
    yield columns


def _head(column: Column) -> list[str]:
    return [clean(text) for text in (column.group, column.label, column.detail) if text]


def _lines(cell: Cell) -> list[str]:
    text = f"{cell.before} {cell.text}{cell.signs}{cell.after}"
    return [clean(part) for part in (text, cell.detail) if part]


def _width(table: Table, index: int) -> int:
    """The least width of a column, in characters: the words of its head and the lines of its cells stay whole."""
    if table.columns[index].wide:
        return _SENTENCES
    lines = [line for row in table.rows for line in _lines(row[index])]
    return max(map(cell_len, (*" ".join(_head(table.columns[index])).split(), *lines)), default=1)


def _grid(table: Table, indices: list[int]) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
    for index in indices:
        column = table.columns[index]
        grid.add_column(
            Text("\n".join(_head(column))),
            justify="right" if column.numeric else "left",
            width=None if column.wide else _width(table, index),
            overflow="fold",
        )
    for row in table.rows:
        cells = [row[index] for index in indices]
        grid.add_row(*(Text("\n".join(_lines(cell)), "bold" if cell.bold else "") for cell in cells))
    return grid
