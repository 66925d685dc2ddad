"""The figure of README.md and docs/results.md, drawn from docs/results/tables/.

    python scripts/figures.py

Writes docs/gains.svg. The output is deterministic: an unchanged table gives an unchanged file.
"""

import csv
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from toolformer.reporting.plots import PALETTE, files
from toolformer.reporting.table import Figure
from toolformer.storage import atomic_write

DOCS = Path(__file__).resolve().parents[1] / "docs"
GREY, ORANGE = PALETTE[0], PALETTE[2]
"""Grey is calls disabled and orange Toolformer, as in the report."""


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of docs/results/tables/NAME.csv, by column."""
    with (DOCS / "results" / "tables" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def gains() -> Figure:
    """Percent correct on six benchmarks, calls disabled to Toolformer, with the gain and its interval."""
    rows = read_table("gains")[::-1]  # the first row on top
    return Figure("gains", "Gains", "", [partial(_draw_gains, rows)], "", height=3.0)


def _draw_gains(rows: Sequence[dict[str, str]], axes: Any) -> None:
    positions = range(len(rows))
    disabled = [float(row["disabled"]) for row in rows]
    toolformer = [float(row["toolformer"]) for row in rows]
    axes.hlines(positions, disabled, toolformer, color=ORANGE, linewidth=2.2, alpha=0.45)
    axes.plot(disabled, positions, "o", color=GREY, markersize=7, label="tool calls disabled")
    axes.plot(toolformer, positions, "o", color=ORANGE, markersize=7, label="Toolformer")
    for position, row in enumerate(rows):
        text = "+{gain}  [{gain_low}, {gain_high}]".format(**row)
        axes.annotate(
            text, (float(row["toolformer"]), position), (8, 0), textcoords="offset points", va="center"
        )
    axes.set(xlabel="percent correct; gain in points, 95 % interval over three trainings", xlim=(0, 118))
    axes.set(ylim=(-0.6, len(rows) - 0.4))
    axes.set_yticks(positions, [row["benchmark"].replace(" ", "\n") for row in rows])
    axes.set_xticks(range(0, 101, 20))
    axes.grid(axis="y", visible=False)
    axes.legend(loc="lower right")


def main() -> None:
    """Draws the figure."""
    figure = gains()
    path = DOCS / f"{figure.key}.svg"
    atomic_write(path, files(figure)[path.name])
    print(path)


if __name__ == "__main__":
    main()
