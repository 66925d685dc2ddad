"""Tables and passages as plain cells, before any markup: what `tables` fills and `render` prints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One figure or label."""

    text: str = ""
    detail: str = ""
    """Small print beside it: an interval, a number of examples, the paper's name of a row."""
    bold: bool = False
    mark: str = ""
    """Letter of the footnote that belongs to it."""


@dataclass(frozen=True)
class Column:
    """A column; neighbours of one group stand under a common heading."""

    label: str
    group: str = ""
    paper: bool = False
    """Whether its figures are the paper's."""
    detail: str = ""
    numeric: bool = True
    wide: bool = False
    """Whether it holds sentences that are broken into lines."""


@dataclass(frozen=True)
class Footnote:
    """What a mark stands for; the command, if any, fills the marked cells."""

    mark: str
    text: str
    command: str = ""


@dataclass(frozen=True)
class Table:
    """A table and what is to be known about it."""

    key: str
    number: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    footnotes: tuple[Footnote, ...] = ()
    rules: tuple[int, ...] = ()
    """Rows before which a rule stands."""


@dataclass(frozen=True)
class Passage:
    """A call in its text, cut around it."""

    tool: str
    before: str
    call: str
    after: str
    """Begins with a blank unless the call stands inside a word."""
    gain: float
    kept: bool


@dataclass(frozen=True)
class Content:
    """All of a report, before any markup."""

    title: str
    runs: Table
    tables: tuple[Table, ...]
    passages: tuple[Passage, ...]
    passages_caption: str
    passages_footnote: Footnote | None
    remarks: tuple[str, ...]
