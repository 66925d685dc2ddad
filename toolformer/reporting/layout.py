"""Tables, figures and passages before any markup: what `tables` and `figures` fill and the renderers print."""

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
    signs: str = ""
    """Signs of significance; the caption says what they mean."""


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


class Command(str):
    """A command line, and what it lacks to do as the shown runs did."""

    lacks: tuple[tuple[str, str], ...] = ()
    """(key, id of the run that has it) of values that no word can say."""
    steps: tuple[Command, ...] = ()
    """Those that it joins, if it does."""


def footnote(mark: str, text: str, command: str = "") -> Footnote:
    """A footnote whose text, up to its colon, names what its command lacks."""
    by_run: dict[str, list[str]] = {}
    for key, run_id in command.lacks if isinstance(command, Command) else ():
        by_run.setdefault(run_id[:8], []).append(key)
    lacks = "".join(f", with {' and '.join(keys)} as in run {run_id}" for run_id, keys in by_run.items())
    return Footnote(mark, f"{text.removesuffix(':')}{lacks}:" if lacks else text, command)


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
class Axis:
    """An axis of a panel."""

    label: str
    logarithmic: bool = False
    ticks: tuple[tuple[float, str], ...] = ()
    """Places with their labels; chosen by the renderer where there are none."""
    whole: bool = False
    """Whether it must begin at 0."""


@dataclass(frozen=True)
class Series:
    """Points that belong together."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    kind: str = "line"
    """`line`, `points`, `cloud` (many small points) or `bars`."""
    colour: int = 0
    """Number in the palette of `plots`."""
    paper: bool = False
    """Whether it is the paper's: drawn dashed and hollow."""
    low: tuple[float, ...] = ()
    """Ends of the intervals, along the axis of figures."""
    high: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    """What a point is called."""
    lying: bool = False
    """Whether intervals lie along x."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    marks: tuple[tuple[float, str], ...] = ()
    """Vertical lines with their labels."""
    tall: int = 0
    """Rows that a panel with a list on its y axis needs, 0 for others."""


@dataclass(frozen=True)
class Figure:
    """One or more panels and what is to be known about them; without panels, the command that measures it."""

    key: str
    number: str
    title: str
    panels: tuple[Panel, ...]
    caption: str
    after: str = ""
    """Key of the table that it follows; empty: before all tables."""
    footnotes: tuple[Footnote, ...] = ()


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
    figures: tuple[Figure, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """(figure, what it counts), for the head of the page."""
    gain: str = ""
    """The gain as a formula."""
