"""A report before any markup: tables, figures and passages, as `tables` and `figures` make and the templates print them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CALLS = "Kept and rejected calls"


@dataclass(frozen=True)
class Cell:
    """One value or label."""

    text: str = ""
    detail: str = ""
    """Small print beside it: an interval, a number of examples, the paper's name for a row."""
    bold: bool = False
    signs: str = ""
    """Signs of significance, explained in the caption."""
    before: str = ""
    after: str = ""
    """Of a call, the text around it; `after` begins with a blank unless the call is inside a word."""
    run: str = ""
    """The first 8 characters of the run that a number comes from, or of one of them; empty: the table's."""
    command: str = ""
    """What makes the number again."""


@dataclass(frozen=True)
class Column:
    """A column; neighbours of the same group share a heading."""

    label: str
    group: str = ""
    paper: bool = False
    """Whether its values are the paper's."""
    detail: str = ""
    numeric: bool = True
    wide: bool = False
    """Whether it holds sentences that wrap."""


@dataclass(frozen=True)
class Table:
    """A table with its caption."""

    key: str
    number: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    rules: tuple[int, ...] = ()
    """Indices of the rows that have a rule above them."""
    run: str = ""
    command: str = ""
    """As of a cell, for the numbers of our own that name none."""


@dataclass(frozen=True)
class Passage:
    """A call in its text, cut around it."""

    tool: str
    before: str
    call: str
    after: str
    """Begins with a blank unless the call is inside a word."""
    gain: float
    kept: bool


Panel = Callable[[Any], None]
"""Draws into Matplotlib axes."""


@dataclass(frozen=True)
class Figure:
    """Panels with a caption; `plots` draws them."""

    key: str
    number: str
    title: str
    panels: tuple[Panel, ...]
    caption: str
    after: str = ""
    """Key of the table that it follows; empty: before all tables."""
    height: float = 3.0
    """Of a row of panels, in inches."""


@dataclass(frozen=True)
class Content:
    """A whole report, before any markup."""

    title: str
    tables: tuple[Table, ...]
    passages: tuple[Passage, ...]
    """Table 10 where it is shown as a list, after the tables; absent without any."""
    passages_caption: str
    closing: tuple[Table, ...]
    """After Table 10: the symbols, the runs, and what was not measured."""
    remarks: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """(value, what it counts), for the head of the page."""
    gain: str = ""
    """The gain as a formula."""
    headline: str = ""
    """System against system, in a sentence; the first thing that is said."""

    @property
    def parts(self) -> tuple[Table | Figure, ...]:
        """Tables and figures in reading order; a figure whose table is absent comes after all tables."""
        keys = {"", *(table.key for table in self.tables)}
        parts: list[Table | Figure] = [figure for figure in self.figures if not figure.after]
        for table in self.tables:
            parts += [table, *(figure for figure in self.figures if figure.after == table.key)]
        return (*parts, *(figure for figure in self.figures if figure.after not in keys))

    @property
    def printed(self) -> tuple[Table | Figure, ...]:
        """All tables and figures in reading order, Table 10 too."""
        columns = (Column("Example", numeric=False, wide=True), Column(self.gain), Column("", numeric=False))
        rows = tuple(
            (
                Cell(passage.call, bold=True, before=passage.before, after=passage.after),
                Cell(f"{passage.gain:.2f}"),
                Cell("kept" if passage.kept else "rejected"),
            )
            for passage in self.passages
        )
        calls = Table("table10", "Table 10", CALLS, columns, rows, self.passages_caption)
        return (*self.parts, *([calls] if rows else []), *self.closing)
