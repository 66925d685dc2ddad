"""`toolformer data`: the files of a data folder, listed and fetched (docs/data.md)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from toolformer.cli.parser import Parser, console
from toolformer.credentials import printable
from toolformer.errors import UsageError, UserError

if TYPE_CHECKING:
    from rich.table import Table


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = Parser("data", "the files that benchmarks and experiment=headline read (docs/data.md)")
    parser.add_argument("action", choices=("list", "get"), help="list the files, or fetch some into a folder")
    meaning = (
        "list [DIR]: also whether each file is in that folder; get NAME... DIR: a NAME is a file of the list, a benchmark, a "
        "group of benchmarks (math, qa, lama, mlqa, paper, ...) or headline; DIR is made if it is not there"
    )
    parser.add_argument("arguments", nargs="*", help=meaning)
    options = parser.parse_args(arguments)
    *names, folder = map(str, options.arguments or [""])
    if options.action == "list" and not names:
        console().print(_table(Path(folder).expanduser() if folder else None))
        return 0
    if options.action == "list" or not names:
        raise UsageError(
            f"data {options.action}: {'name one folder' if names else 'name a data set and a folder'}"
        )
    return _get(names, Path(folder).expanduser())


def _get(names: list[str], folder: Path) -> int:
    """Fetches files, going on after one that fails; 2 if one failed."""
    from toolformer.benchmarks.data_folder.fetch import describe, fetch
    from toolformer.benchmarks.data_folder.table import files_named

    files, failed = files_named(names), []
    if not files:
        print(f"{', '.join(names)}: nothing to fetch: generated, or part of this project")
    for file in files:
        try:
            path = fetch(file, folder)
            print(printable(f"{file.name}: {path}: {describe(file, folder)}"))
            if file.note:
                print(f"  {file.note}")
        except UserError as error:
            failed.append(file.name)
            print(printable(f"toolformer: data: {error}"), file=sys.stderr)
    return 2 if failed else 0


def _table(folder: Path | None) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from toolformer.benchmarks.data_folder.fetch import describe
    from toolformer.benchmarks.data_folder.table import FILES, readers

    if folder and not folder.is_dir():
        raise UserError(f"data: there is no folder {folder}; toolformer data get NAME {folder} makes it")
    table = Table(box=SIMPLE_HEAD)
    for name in ("name", "read by", "rows", "licence", "source", *([str(folder)] if folder else [])):
        table.add_column(
            Text(printable(name)), overflow="fold", justify="right" if name == "rows" else "left"
        )
    for file in FILES.values():
        rows = "" if file.rows is None else f"{file.rows:,}"
        cells = [file.name, ", ".join(readers(file)), rows, file.licence, str(file.source)]
        state = [describe(file, folder)] if folder else []
        table.add_row(*(Text(printable(cell)) for cell in [*cells, *state]))
    return table
