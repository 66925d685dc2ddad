"""The figure of README.md and docs/results.md, drawn from the published answers.

    python scripts/figures.py

Writes docs/gains.svg. The output is deterministic: unchanged answers give an unchanged file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scripts import answers
from scripts.answer_tables import EFFECT
from toolformer.reporting.plots import PALETTE, files
from toolformer.reporting.table import Figure
from toolformer.storage import atomic_write

DOCS = Path(__file__).resolve().parents[1] / "docs"
GREY, ORANGE = PALETTE[0], PALETTE[2]
"""Grey is calls disabled and orange Toolformer, as in the report."""
BLACK = "#222222"


@dataclass(frozen=True)
class Gain:
    """A row of the figure, in percent and percentage points."""

    benchmark: str
    disabled: float
    toolformer: float
    gain: float
    low: float | None
    high: float | None
    seeds: int
    rule: float | None
    """What the rule scores in place of learned calls, if there is one."""

    @property
    def label(self) -> str:
        ends = "" if self.low is None else f"  [{self.low:+.1f}, {self.high:+.1f}]"
        return f"{self.gain:+.1f}{ends}".replace("-", "−")


def gains() -> list[Gain]:
    """Toolformer over the same model with calls disabled, on the main benchmarks, without passages chosen for them."""
    published = answers.Answers()
    rows = []
    for task, of, rule in EFFECT:
        compared = published.compare_one(of, "disabled", task)
        found, gain = compared.comparison, compared.comparison.difference
        by_rule = published.compare_one(of, rule, task).comparison.first if rule else None
        rows.append(
            Gain(
                answers.title(task),
                found.first,
                found.second,
                gain.value,
                gain.low,
                gain.high,
                max(compared.seeds),
                by_rule,
            )
        )
    return rows


def figure_of(rows: Sequence[Gain]) -> Figure:
    """Percent correct, calls disabled to Toolformer, with the gain and its interval, and the rule."""
    return Figure("gains", "Gains", "", [partial(_draw_gains, rows[::-1])], "", height=3.0)


def _draw_gains(rows: Sequence[Gain], axes: Any) -> None:
    positions = range(len(rows))
    disabled, toolformer = [row.disabled for row in rows], [row.toolformer for row in rows]
    axes.hlines(positions, disabled, toolformer, color=ORANGE, linewidth=2.2, alpha=0.45)
    axes.plot(disabled, positions, "o", color=GREY, markersize=7, label="tool calls disabled")
    axes.plot(toolformer, positions, "o", color=ORANGE, markersize=7, label="Toolformer")
    ruled = [(row.rule, position) for position, row in enumerate(rows) if row.rule is not None]
    axes.plot(
        *zip(*ruled, strict=True), "|", color=BLACK, markersize=13, markeredgewidth=2, label="a rule instead"
    )
    for position, row in enumerate(rows):
        axes.annotate(
            row.label,
            (max(row.toolformer, row.rule or 0), position),
            (8, 0),
            textcoords="offset points",
            va="center",
        )
    trainings = {3: "three", 5: "five"}.get(rows[0].seeds, f"{rows[0].seeds}")
    over = f"gain in points, 95 % interval over {trainings} trainings"
    axes.set(xlabel=f"percent correct; {over}", xlim=(0, 118))
    axes.set(ylim=(-0.6, len(rows) - 0.4))
    axes.set_yticks(positions, [row.benchmark.replace(" ", "\n") for row in rows])
    axes.set_xticks(range(0, 101, 20))
    axes.grid(axis="y", visible=False)
    axes.legend(loc="lower right")


def main() -> None:
    """Draws the figure."""
    figure = figure_of(gains())
    path = DOCS / f"{figure.key}.svg"
    atomic_write(path, files(figure)[path.name])
    print(path)


if __name__ == "__main__":
    main()
