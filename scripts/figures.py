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
from toolformer.reporting.plots import PALETTE, files
from toolformer.reporting.table import Figure
from toolformer.storage import atomic_write

DOCS = Path(__file__).resolve().parents[1] / "docs"
GREY, ORANGE = PALETTE[0], PALETTE[2]
"""Grey is calls disabled and orange Toolformer, as in the report."""
BENCHMARKS = ("arithmetic", "mawps", "svamp", "dateset", "nq", "lama_trex")


@dataclass(frozen=True)
class Gain:
    """A row of the figure, in percent and percentage points."""

    benchmark: str
    disabled: float
    toolformer: float
    gain: float
    low: float
    high: float
    seeds: int

    @property
    def label(self) -> str:
        return f"{self.gain:+.1f}  [{self.low:+.1f}, {self.high:+.1f}]".replace("-", "−")


def gains() -> list[Gain]:
    """Toolformer over the same model with calls disabled, on six benchmarks."""
    compared = answers.Answers().compared("Toolformer", "disabled", BENCHMARKS)
    found = [(each, each.comparison, each.comparison.difference) for each in compared]
    return [
        Gain(answers.title(each.task), c.first, c.second, d.value, d.low, d.high, max(each.seeds))
        for each, c, d in found
    ]


def figure_of(rows: Sequence[Gain]) -> Figure:
    """Percent correct, calls disabled to Toolformer, with the gain and its interval."""
    return Figure("gains", "Gains", "", [partial(_draw_gains, rows[::-1])], "", height=3.0)


def _draw_gains(rows: Sequence[Gain], axes: Any) -> None:
    positions = range(len(rows))
    disabled, toolformer = [row.disabled for row in rows], [row.toolformer for row in rows]
    axes.hlines(positions, disabled, toolformer, color=ORANGE, linewidth=2.2, alpha=0.45)
    axes.plot(disabled, positions, "o", color=GREY, markersize=7, label="tool calls disabled")
    axes.plot(toolformer, positions, "o", color=ORANGE, markersize=7, label="Toolformer")
    for position, row in enumerate(rows):
        axes.annotate(row.label, (row.toolformer, position), (8, 0), textcoords="offset points", va="center")
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
