"""The tables of README.md, docs/results.md and docs/results/, computed from the published answers and written into the pages.

    python scripts/tables.py

A comment in a page says what the table shows (`scripts/answer_tables.py`), and if not all its columns, each with its heading if that
differs. The table follows it:

    <!-- answers: gains | of: Toolformer | over: disabled | benchmarks: mawps; svamp | benchmark | gain | p (Holm) = p -->

`from: NAME` names another experiment than the first (`scripts/answers.py`).
"""

import functools
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from scripts import answer_tables, answers
from toolformer.errors import UserError, near
from toolformer.storage import atomic_write

DOCS = Path(__file__).resolve().parents[1] / "docs"
README = DOCS.parent / "README.md"
PAGES = (DOCS / "results.md", *sorted((DOCS / "results").glob("*.md")))
_TABLE = re.compile(r"^<!-- answers: (\w+)((?: \|[^|\n]+)*) -->\n+(?:^\|.*\n)*\n*", re.MULTILINE)
_NUMBER = re.compile(r"[<+\-−]? ?\d")


def fill(page: str, published: Path = answers.PUBLISHED) -> str:
    """The page with each of its tables as the published answers have it.

    Raises:
        UserError: A comment names what is not there, or a published file is not what was published.
    """
    return _TABLE.sub(partial(_computed, published), page)


def _computed(published: Path, match: re.Match[str]) -> str:
    """A table of the published answers."""
    comment = match[0].splitlines()[0]
    parts = [part.strip() for part in match[2].split("|")[1:]]
    options = dict(part.split(": ", 1) for part in parts if ": " in part)
    named = [part.partition(" = ") for part in parts if ": " not in part]
    try:
        read = _answers(published, options.pop("from", ""))
        rows = answer_tables.table(read, match[1], options)
        if unknown := [name for name, _, _ in named if name not in rows[0]]:
            raise UserError(
                f"no column {unknown[0]!r}{near(unknown[0], rows[0])}; it has {', '.join(rows[0])}"
            )
    except UserError as error:
        raise UserError(f"{comment}: {error}") from error
    columns = [(name, heading or name) for name, _, heading in named] or [(name, name) for name in rows[0]]
    return f"{comment}\n\n{markdown(rows, columns)}\n"


@functools.cache
def _answers(published: Path, experiment: str) -> answers.Answers:
    """Those of an experiment by its name; without one those of the first, which are `published`."""
    if not experiment:
        return answers.Answers(published)
    if experiment not in answers.EXPERIMENTS:
        known = ", ".join(answers.EXPERIMENTS)
        raise UserError(
            f"there is no experiment {experiment!r}{near(experiment, answers.EXPERIMENTS)}; known: {known}"
        )
    return answers.Answers(answers.EXPERIMENTS[experiment].folder, experiment)


def markdown(rows: Sequence[dict[str, str]], columns: Sequence[tuple[str, str]]) -> str:
    """A Markdown table of columns with their headings. Numbers are right-aligned but in the first column."""
    cells = [[row[name] for name, _ in columns] for row in rows]
    _, *numeric = [all(_NUMBER.match(cell) for cell in column if cell) for column in zip(*cells, strict=True)]
    rules = [":---", *("---:" if right else ":---" for right in numeric)]
    lines = ([heading for _, heading in columns], rules, *cells)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Writes the tables into every page."""
    for path in (README, *PAGES):
        page = path.read_text(encoding="utf-8")
        if (filled := fill(page)) != page:
            atomic_write(path, filled.encode("utf-8"))
            print(path)


if __name__ == "__main__":
    main()
