"""Why answers are right or wrong, and where an annotation's yield is lost: tables and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.ladder.classes import CLASSES, RUNGS
from toolformer.reporting import paper
from toolformer.reporting.candidate_stats import FATES
from toolformer.reporting.data import Annotation
from toolformer.reporting.escape import clean
from toolformer.reporting.formatting import DASH, in_order, in_table_order, shown_count, title_of
from toolformer.reporting.table import Cell, Column, Figure, Passage, Table

Ladders = Mapping[str, Mapping[str, float]]
"""By task, the metrics of its explanation: `n`, `class/<name>` (examples), `rung/<name>` (percent), `rung_n/<name>`."""
COLOURS = {
    "right_without_need": ("C1", 0.45),
    "helped": ("C1", 1.0),
    "did_not_call": ("C2", 1.0),
    "wrong_tool": ("C2", 0.7),
    "wrong_input": ("C2", 0.4),
    "tool_failed": ("C4", 1.0),
    "result_unused": ("C4", 0.5),
    "harmed": ("C5", 1.0),
    "out_of_reach": ("C0", 0.6),
}
"""Of `plots.PALETTE`, and how opaque."""
_CAPTION = (
    "Above the rule, every example in one class; below, percent right when ever more of the right call is given, at the "
    "place of the call-free completion where a call is most probable. What each class means: docs/ladder.md."
)


def ladder(ladders: Ladders) -> Table:
    """Examples by class, and percent right by rung: a column a benchmark."""
    tasks = in_table_order(ladders)
    columns = [Column("", numeric=False)]
    columns += [
        Column(title_of(task), detail=f"n = {shown_count(round(ladders[task]['n']))}") for task in tasks
    ]

    def row(key: str, name: str) -> tuple[Cell, ...]:
        cells = [Cell(name)]
        for task in tasks:
            value, n = ladders[task].get(key), ladders[task]["n"]
            if value is None:
                cells.append(Cell(DASH))
            elif key.startswith("class/"):
                cells.append(Cell(shown_count(round(value)), f"({100 * value / n:.1f} %)"))
            else:
                of = ladders[task].get(key.replace("rung/", "rung_n/"), n)
                cells.append(Cell(f"{value:.1f}", "" if of == n else f"(of {shown_count(round(of))})"))
        return tuple(cells)

    rows = [row(f"class/{name}", shown) for name, shown in CLASSES.items()]
    rows += [row(f"rung/{name}", f"right, {shown}, %") for name, shown in RUNGS.items()]
    title = "Why answers are right or wrong"
    return Table(
        "ladder", "Ladder", title, tuple(columns), tuple(rows) if tasks else (), _CAPTION, (len(CLASSES),)
    )


def picture(ladders: Ladders) -> Figure | None:
    """A stacked bar a benchmark; None without any."""
    tasks = in_table_order(ladders)[::-1]  # the first stands at the top
    if not tasks:
        return None

    def panel(axes: Any) -> None:
        left = [0.0] * len(tasks)
        for name, shown in CLASSES.items():
            colour, alpha = COLOURS[name]
            width = [100 * ladders[task][f"class/{name}"] / ladders[task]["n"] for task in tasks]
            axes.barh(range(len(tasks)), width, 0.6, left, color=colour, alpha=alpha, label=shown)
            left = [start + more for start, more in zip(left, width, strict=True)]
        axes.set(xlabel="percent of the examples", xlim=(0, 100), ylim=(-0.6, len(tasks) + 0.6))
        axes.set_yticks(range(len(tasks)), [clean(title_of(task)) for task in tasks])
        axes.legend(ncols=5, loc="upper center")

    height = max(2.6, 0.42 * len(tasks) + 1.6)
    title = "Why answers are right or wrong"
    return Figure("ladder", "Ladder", title, (panel,), "The shares of the table above.", "ladder", height)


def lost(annotation: Annotation | None) -> Table:
    """Of the texts tried how far each tool came with its best call: a row a tool."""
    fates = annotation.lost if annotation else {}
    rows = []
    for tool in in_order(fates):
        tried = sum(fates[tool].values())
        cells = [
            Cell(
                shown_count(fates[tool][fate]), f"({100 * fates[tool][fate] / tried:.1f} %)" if tried else ""
            )
            for fate in FATES
        ]
        rows.append((Cell(paper.TOOLS.get(tool, tool)), Cell(shown_count(tried)), *cells))
    columns = (Column("Tool", numeric=False), Column("texts tried"), *(Column(fate) for fate in FATES))
    caption = (
        "Every text tried counts once, with the call that came furthest: no position (no call was tried), malformed, the "
        "tool gave no result, no result lowers the loss, no gain reaches τ_f, kept."
    )
    return Table("lost", "Annotation", "Where the yield is lost", columns, tuple(rows), caption)


def nearest(passages: Sequence[Passage]) -> Table:
    """The calls nearest below τ_f, in their texts."""
    rows = tuple(
        (
            Cell(paper.TOOLS.get(passage.tool, passage.tool)),
            Cell(f"{passage.gain:.2f}"),
            Cell(f"{passage.before} {passage.call}{passage.after}"),
        )
        for passage in passages
    )
    columns = (Column("Tool", numeric=False), Column("gain"), Column("Example", numeric=False, wide=True))
    return Table("misses", "Annotation", "Nearest misses", columns, rows, "Gains in nats, below τ_f.")
