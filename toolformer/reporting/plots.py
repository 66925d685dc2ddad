"""Figures drawn by Matplotlib as SVG and PDF files; the same figure gives the same bytes."""

from __future__ import annotations

import io
import math
import re
from typing import Any
from xml.etree import ElementTree

from toolformer.reporting.escape import clean
from toolformer.reporting.table import Figure

PALETTE = ("#6b7080", "#2456c8", "#c2571a", "#1b8a6b", "#8a4fc4", "#a8841a")
"""Colours on white that readers with red-green colour blindness can tell apart."""
INK, _EDGE, _GRID, _WHITE = "#3c4049", "#9a9ea8", "#ececea", "#ffffff"
_THEME = {colour: f"var(--c{index})" for index, colour in enumerate(PALETTE)} | {
    INK: "var(--strong)", _EDGE: "var(--soft)", _GRID: "var(--line)", _WHITE: "var(--sheet)",
}  # fmt: skip
"""The page's variables for these colours, so that figures follow its light and dark style."""
_WIDTH = 8.6  # inches
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_STYLE: dict[Any, Any] = {
    "axes.prop_cycle": f"cycler(color={PALETTE})",
    "svg.fonttype": "none", "pdf.fonttype": 42, "font.size": 8.5, "font.family": ["DejaVu Sans", "sans-serif"],
    "text.color": INK, "text.parse_math": False, "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "axes.edgecolor": _EDGE, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.grid": True, "grid.color": _GRID, "axes.titlesize": 9.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "legend.frameon": False, "legend.fontsize": 7.5, "legend.handlelength": 1.6,
}  # fmt: skip


def files(figure: Figure) -> dict[str, bytes]:
    """`<key>.svg`, with its text as text, and `<key>.pdf`, on white."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    columns = min(len(figure.panels), 2)
    rows = math.ceil(len(figure.panels) / columns)
    metadata: dict[str, dict[str, Any]] = {
        "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    images = {}
    with rc_context(_STYLE | {"svg.hashsalt": figure.key}):
        canvas = Canvas(figsize=(_WIDTH, rows * figure.height), layout="constrained")
        for number, panel in enumerate(figure.panels, start=1):
            axes = canvas.add_subplot(rows, columns, number)
            panel(axes)
            if axes.get_legend() is None and len(axes.get_legend_handles_labels()[0]) > 1:
                axes.legend()
        for kind, fields in metadata.items():
            buffer = io.BytesIO()
            canvas.savefig(buffer, format=kind, metadata=fields)
            images[f"{figure.key}.{kind}"] = buffer.getvalue()
    return images


def inline(svg: bytes, key: str, label: str) -> str:
    """The SVG file as an element of a page: ids begin with `key`, colours are the page's variables.

    `label` is what a screen reader reads in its place.
    """
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == "id":
                value = f"{key}-{value}"
            elif name == f"{{{_XLINK}}}href":
                value = f"#{key}-{value.removeprefix('#')}"
            value = value.replace("url(#", f"url(#{key}-")
            element.set(name, re.sub("#[0-9a-f]{6}", lambda match: _THEME.get(match[0], match[0]), value))
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", clean(label))
    return ElementTree.tostring(root, encoding="unicode")
