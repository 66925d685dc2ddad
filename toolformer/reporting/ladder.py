"""Why answers are right or wrong (error analysis with oracles): a table and a picture."""

from collections.abc import Mapping
from typing import Any

from toolformer.evaluation.ladder.classes import CLASSES, RUNGS
from toolformer.reporting.escape import clean
from toolformer.reporting.formatting import in_table_order, title_of
from toolformer.reporting.table import Cell, Column, Figure, Table, Value, cell, text_columns

Ladders = Mapping[str, Mapping[str, float]]
"""By task, the metrics of its explanation: `n`, `class/<name>` (examples), `rung/<name>` (percent), `rung_n/<name>`."""
COLOURS = {
    "right_without_need": ("C1", 0.45), "helped": ("C1", 1.0), "did_not_call": ("C2", 1.0),
    "wrong_tool": ("C2", 0.7), "wrong_input": ("C2", 0.4), "tool_failed": ("C4", 1.0),
    "result_unused": ("C4", 0.5), "harmed": ("C5", 1.0), "out_of_reach": ("C0", 0.6),
}  # fmt: skip
"""Colours of `plots.PALETTE`, with their opacity."""
_TITLE = "Why answers are right or wrong"
_CAPTION = (
    "Above the rule, every example in one class (docs/ladder.md); below, percent right with increasingly strong oracles, "
    "where a call is most probable in the completion without one."
)


def ladder(ladders: Ladders) -> Table:
    """Examples by class, and percent right by rung: a column per benchmark."""
    tasks = in_table_order(ladders)
    sizes = {task: round(ladders[task]["n"]) for task in tasks}
    columns = [*text_columns(""), *(Column(title_of(task), detail=f"n = {sizes[task]:,}") for task in tasks)]
    rows: list[list[Value]] = []
    for name, label in CLASSES.items():
        counts = [(ladders[task][f"class/{name}"], ladders[task]["n"]) for task in tasks]
        rows.append([label, *(cell(round(count), f"({100 * count / n:.1f} %)") for count, n in counts)])
    for name, label in RUNGS.items():
        rows.append([f"right, {label}, %"])
        for task in tasks:
            value, count = (ladders[task].get(f"{kind}/{name}") for kind in ("rung", "rung_n"))
            of = round(count or ladders[task]["n"])
            detail = "" if of == sizes[task] else f"(of {of:,})"
            rows[-1].append(None if value is None else Cell(value, 1, note=detail))
    return Table.of("ladder", "Ladder", _TITLE, columns, rows if tasks else [], _CAPTION, [len(CLASSES)])


def picture(ladders: Ladders) -> Figure | None:
    """A stacked bar per benchmark; None without any."""
    tasks = in_table_order(ladders)[::-1]  # the first is at the top
    if not tasks:
        return None

    def panel(axes: Any) -> None:
        left = [0.0] * len(tasks)
        for name, label in CLASSES.items():
            colour, alpha = COLOURS[name]
            width = [100 * ladders[task][f"class/{name}"] / ladders[task]["n"] for task in tasks]
            axes.barh(range(len(tasks)), width, 0.6, left, color=colour, alpha=alpha, label=label)
            left = [start + more for start, more in zip(left, width, strict=True)]
        axes.set(xlabel="percent of the examples", xlim=(0, 100), ylim=(-0.6, len(tasks) + 0.9))
        axes.set_yticks(range(len(tasks)), [clean(title_of(task)) for task in tasks])
        axes.legend(ncols=4, loc="upper center")

    height = max(2.0, 0.42 * len(tasks) + 1.6)
    return Figure("ladder", "Ladder", _TITLE, [panel], "The shares of the table above.", "ladder", height)
