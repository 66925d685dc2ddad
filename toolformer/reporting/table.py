"""A report before any markup: tables and figures, as `tables` and `figures` make and the templates print them."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

DASH = "–"
"""Sign for values that were not measured."""


@dataclass(frozen=True)
class Cell:
    """One value or label. Numbers stay numbers; `text` and `detail` format them."""

    value: str | int | float | None = ""
    """None: not measured."""
    digits: int = 0
    """Decimals of a float."""
    is_signed: bool = False
    smallest: float | None = None
    """Smaller numbers are printed as `< smallest`."""
    low: float | None = None
    """Low end of the 95 % interval, formatted like the value."""
    high: float | None = None
    n: int | None = None
    """Number of examples of the value."""
    has_n: bool = False
    """Whether n is printed; else the column's head has it."""
    note: str = ""
    """Small print after interval and n: the number of seeds, the paper's name for a row."""
    bold: bool = False
    signs: str = ""
    """Signs of significance, explained in the caption."""
    before: str = ""
    after: str = ""
    """Text around a call; `after` begins with a blank unless the call is inside a word."""
    run: str = ""
    """The first 8 characters of the run that a number comes from, or of one of them; empty: the table's."""
    command: str = ""
    """The command that reproduces the number."""

    @property
    def text(self) -> str:
        """The value as it is printed."""
        return self._text(self.value)

    @property
    def detail(self) -> str:
        """The small print beside it."""
        interval = "" if self.low is None else f"[{self._text(self.low)}, {self._text(self.high)}]"
        n = f"n = {self.n:,}" if self.n and self.has_n else ""
        return " ".join(filter(None, (interval, n, self.note)))

    def _text(self, value: str | int | float | None) -> str:
        if value is None:
            return DASH
        if isinstance(value, str):
            return value
        if self.smallest is not None and value < self.smallest:
            return f"< {self.smallest:g}"
        if self.is_signed:
            return f"{value:+,.{self.digits}f}".replace("-", "−")
        return f"{value:,.{self.digits}f}"


Value = Cell | str | int | None
"""A cell, its text, a count, or `None` for what was not measured."""


def cell(value: Value, note: str = "") -> Cell:
    """The cell of a value, with small print."""
    return value if isinstance(value, Cell) else Cell(value, note=note)


def p_cell(p: float | None, bold: bool = False) -> Cell:
    """The cell of a p value."""
    return Cell(p, digits=3, smallest=0.001, bold=bold)


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
    """Height of a row of panels, in inches."""


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
