"""The tables of README.md, docs/results.md and docs/results/, written into the pages.

    python scripts/tables.py

A comment in a page says what the table shows, and if not all its columns, each with its heading if that differs. The table
follows it. Those of the registered experiment are computed from the published answers (`scripts/answers.py`):

    <!-- answers: gains | of: Toolformer | over: disabled | benchmarks: mawps; svamp | benchmark | gain | p (Holm) = p -->

Those of earlier pages are in docs/results/tables/; `X_low` and `X_high` are the ends of X's interval and are printed beside X:

    <!-- gains.csv | benchmark | repeat_gain = second annotation -->
"""

import csv
import functools
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from scripts import answers
from toolformer.errors import UserError, near
from toolformer.storage import atomic_write

DOCS = Path(__file__).resolve().parents[1] / "docs"
README = DOCS.parent / "README.md"
PAGES = (DOCS / "results.md", *sorted((DOCS / "results").glob("*.md")))
TABLES = DOCS / "results" / "tables"
_PARTS = r"((?: \|[^|\n]+)*) -->\n+(?:^\|.*\n)*\n*"
_TABLE = re.compile(rf"^<!-- (\w+)\.csv{_PARTS}", re.MULTILINE)
_ANSWERED = re.compile(rf"^<!-- answers: (\w+){_PARTS}", re.MULTILINE)
_NUMBER = re.compile(r"[<+\-−]? ?\d")


def read_table(name: str, folder: Path = TABLES) -> list[dict[str, str]]:
    """The rows of FOLDER/NAME.csv, by column."""
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def fill(page: str, folder: Path = TABLES, published: Path = answers.PUBLISHED) -> str:
    """The page with each of its tables as the folder's CSV files and the published answers have it.

    Raises:
        UserError: A comment names what is not there, or a published file is not what was published.
    """
    return _ANSWERED.sub(partial(_computed, published), _TABLE.sub(partial(_filled, folder), page))


def _computed(published: Path, match: re.Match[str]) -> str:
    """A table of the published answers."""
    comment = match[0].splitlines()[0]
    parts = [part.strip() for part in match[2].split("|")[1:]]
    options = dict(part.split(": ", 1) for part in parts if ": " in part)
    named = [part.partition(" = ") for part in parts if ": " not in part]
    try:
        rows = answers.table(_answers(published), match[1], options)
        if unknown := [name for name, _, _ in named if name not in rows[0]]:
            raise UserError(
                f"no column {unknown[0]!r}{near(unknown[0], rows[0])}; it has {', '.join(rows[0])}"
            )
    except UserError as error:
        raise UserError(f"{comment}: {error}") from error
    columns = [(name, heading or name) for name, _, heading in named] or [(name, name) for name in rows[0]]
    return f"{comment}\n\n{markdown(rows, columns)}\n"


@functools.cache
def _answers(published: Path) -> answers.Answers:
    return answers.Answers(published)


def _filled(folder: Path, match: re.Match[str]) -> str:
    comment = match[0].splitlines()[0]
    try:
        rows = read_table(match[1], folder)
    except FileNotFoundError:
        raise UserError(f"{comment}: there is no {match[1]}.csv in {folder}") from None
    ends = tuple(f"{column}_{end}" for column in rows[0] for end in ("low", "high"))
    named = [(name, name) for name in rows[0] if name not in ends]
    if columns := [part.strip().partition(" = ") for part in match[2].split("|")[1:]]:
        named = [(name, heading or name) for name, _, heading in columns]
    if unknown := [name for name, _ in named if name not in rows[0]]:
        raise UserError(
            f"{comment}: {match[1]}.csv has no column {unknown[0]!r}; it has {', '.join(rows[0])}"
        )
    return f"{comment}\n\n{markdown(rows, named)}\n"


def markdown(rows: Sequence[dict[str, str]], columns: Sequence[tuple[str, str]]) -> str:
    """A Markdown table of columns with their headings. Numbers are right-aligned but in the first column; gains are signed."""
    cells = [[_cell(row, name) for name, _ in columns] for row in rows]
    _, *numeric = [all(_NUMBER.match(cell) for cell in column if cell) for column in zip(*cells, strict=True)]
    rules = [":---", *("---:" if right else ":---" for right in numeric)]
    lines = ([heading for _, heading in columns], rules, *cells)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(row: dict[str, str], column: str) -> str:
    signed = re.search(r"(^|_)gain( over .*)?$", column) is not None
    low, high = (_number(row.get(f"{column}_{end}", ""), signed) for end in ("low", "high"))
    value = _number(row[column], signed)
    return f"{value} [{low}, {high}]" if low else value


def _number(text: str, signed: bool) -> str:
    if re.fullmatch(r"\d{4,}", text):
        return f"{int(text):,}"
    if signed and re.fullmatch(r"\d+\.\d+", text):
        return f"+{text}"
    return re.sub(r"(?<![\w.])-(?=\d)", "−", text)


def main() -> None:
    """Writes the tables into every page."""
    for path in (README, *PAGES):
        page = path.read_text(encoding="utf-8")
        if (filled := fill(page)) != page:
            atomic_write(path, filled.encode("utf-8"))
            print(path)


if __name__ == "__main__":
    main()
