"""Figures drawn by Matplotlib as SVG and PDF files; the output is deterministic."""

import io
import math
from dataclasses import replace
from typing import Any

from toolformer.reporting.table import Figure

PALETTE = ("#6b7080", "#2456c8", "#c2571a", "#1b8a6b", "#8a4fc4", "#a8841a")
"""Colours on white that readers with red-green colour blindness can distinguish."""
INK = "#3c4049"
_WIDTH = 8.6  # inches
_STYLE: dict[Any, Any] = {
    "axes.prop_cycle": f"cycler(color={PALETTE})",
    "svg.fonttype": "none", "pdf.fonttype": 42, "font.size": 8.5, "font.family": ["DejaVu Sans", "sans-serif"],
    "text.color": INK, "text.parse_math": False, "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "axes.edgecolor": "#9a9ea8", "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.grid": True, "grid.color": "#ececea", "axes.titlesize": 9.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "legend.frameon": False, "legend.fontsize": 7.5, "legend.handlelength": 1.6,
}  # fmt: skip


_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def files(figure: Figure) -> dict[str, bytes]:
    """`<key>.svg`, with its text as text, and `<key>.pdf`, on white."""
    return {f"{figure.key}.{kind}": image for kind, image in _drawn(figure, 2, _WIDTH, *_METADATA).items()}


def panels(figure: Figure) -> list[bytes]:
    """Each panel as an SVG, narrow enough for a phone."""
    alone = [
        replace(figure, key=f"{figure.key}-{n}", panels=[panel]) for n, panel in enumerate(figure.panels)
    ]
    return [_drawn(panel, 1, _WIDTH / 2, "svg")["svg"] for panel in alone]


def _drawn(figure: Figure, columns: int, width: float, *kinds: str) -> dict[str, bytes]:
    """The panels in a grid, by kind of file; `width` in inches."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    columns = min(len(figure.panels), columns)
    rows = math.ceil(len(figure.panels) / columns)
    images = {}
    with rc_context(_STYLE | {"svg.hashsalt": figure.key}):
        canvas = Canvas(figsize=(width, rows * figure.height), layout="constrained")
        for number, panel in enumerate(figure.panels, start=1):
            axes = canvas.add_subplot(rows, columns, number)
            panel(axes)
            if axes.get_legend() is None and len(axes.get_legend_handles_labels()[0]) > 1:
                axes.legend()
        for kind in kinds:
            buffer = io.BytesIO()
            canvas.savefig(buffer, format=kind, metadata=_METADATA[kind])
            images[kind] = buffer.getvalue()
    return images
