"""A report before any markup: tables, figures and passages, as `tables` and `figures` make and the templates print them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One value or label."""

    text: str = ""
    detail: str = ""
    """Small print beside it: an interval, a number of examples, the paper's name for a row."""
    bold: bool = False
    signs: str = ""
    """Signs of significance, explained in the caption."""


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
    """Table 10, after the tables; absent without any."""
    passages_caption: str
    closing: tuple[Table, ...]
    """After Table 10: the runs, and what was not measured."""
    remarks: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """(value, what it counts), for the head of the page."""
    gain: str = ""
    """The gain as a formula."""

    @property
    def parts(self) -> tuple[Table | Figure, ...]:
        """Tables and figures in reading order; a figure whose table is absent comes after all tables."""
        keys = {"", *(table.key for table in self.tables)}
        parts: list[Table | Figure] = [figure for figure in self.figures if not figure.after]
        for table in self.tables:
            parts += [table, *(figure for figure in self.figures if figure.after == table.key)]
        return (*parts, *(figure for figure in self.figures if figure.after not in keys))
