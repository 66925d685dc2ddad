"""A report before any markup: tables and figures, as `tables` and `figures` make and the templates print them."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

DASH = "–"
"""Of what was not measured."""


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
    """The command that reproduces the number."""
    number: str = ""
    """As machines read it, where the text is not a plain number."""


Value = Cell | str | int | None
"""A cell, its text, a count, or `None` for what was not measured."""


def cell(value: Value, detail: str = "") -> Cell:
    """The cell of a value, with small print."""
    if isinstance(value, Cell):
        return value
    return Cell(DASH if value is None else value if isinstance(value, str) else f"{value:,}", detail)


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
    code: bool = False
    """Whether it holds commands, to be copied as they are."""


def text_columns(*labels: str, wide: Collection[str] = (), code: str | None = None) -> list[Column]:
    """Columns without numbers; the `wide` ones hold sentences, that of the label `code` commands."""
    return [Column(name, numeric=False, wide=name in wide, code=name == code) for name in labels]


def number_columns(*labels: str, group: str = "", paper: bool = False) -> list[Column]:
    """Columns of numbers with a common heading."""
    return [Column(label, group, paper) for label in labels]


@dataclass(frozen=True)
class Table:
    """A table with its caption."""

    key: str
    number: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    """`of` takes plain values."""
    caption: str = ""
    rules: Sequence[int] = ()
    """Indices of the rows that have a rule above them; none above the first row or below the last."""
    run: str = ""
    command: str = ""
    """As of a cell, for our numbers that name none."""

    def __post_init__(self) -> None:
        rules = [index for index in dict.fromkeys(self.rules) if 0 < index < len(self.rows)]
        object.__setattr__(self, "rules", rules)

    @classmethod
    def of(
        cls, key: str, number: str, title: str, columns: Sequence[Column], rows: Iterable[Iterable[Value]],
        caption: str = "", rules: Sequence[int] = (),
    ) -> "Table":  # fmt: skip
        """A table of plain values."""
        return cls(key, number, title, columns, [[*map(cell, row)] for row in rows], caption, rules)


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


@dataclass(frozen=True)
class Figure:
    """Panels with a caption, each drawn into Matplotlib axes."""

    key: str
    number: str
    title: str
    panels: Sequence[Callable[[Any], None]]
    caption: str
    after: str = ""
    """Key of the table that it follows; empty: before all tables."""
    height: float = 3.0
    """Of a row of panels, in inches."""


@dataclass(frozen=True)
class Content:
    """A whole report, before any markup."""

    title: str
    parts: Sequence[Table | Figure]
    """In reading order."""
    remarks: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    """(value, what it counts), for the head of the page."""
    headline: str = ""
    """The main result, in a sentence; the first thing that is said."""
    gain: str = ""
    """The difference that it speaks of, as the page's big figure."""
    basis: str = ""
    """Interval, p and n of that difference, in small print."""

    @property
    def tables(self) -> list[Table]:
        return [part for part in self.parts if isinstance(part, Table)]

    @property
    def figures(self) -> list[Figure]:
        return [part for part in self.parts if isinstance(part, Figure)]
