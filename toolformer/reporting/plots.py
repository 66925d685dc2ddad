"""Figures drawn: as Plotly's JSON for the page, and as SVG and PDF files by Matplotlib. The same figure, the same bytes.

No browser and no network takes part. Colours are numbers of a palette, which the page fills in for light and dark.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from typing import Any

from toolformer.reporting.layout import Axis, Figure, Panel, Series
from toolformer.reporting.render import clean

PALETTE = ("#6b7080", "#2456c8", "#c2571a", "#1b8a6b", "#8a4fc4", "#a8841a")
"""Colours on white, told apart also by those who do not see red or green; the page's dark ones stand in its style."""
_WIDTH, _HEIGHT = 3.7, 2.9  # inches of a panel


def plotly_json(figure: Figure) -> list[dict[str, Any]]:
    """A figure's panels as Plotly's data and layout, without colours: a trace's `meta` is its number in the palette."""
    import plotly.graph_objects as go

    drawn = []
    for panel in figure.panels:
        traces = [_trace(go, one) for one in panel.series]
        layout = go.Layout(
            title={"text": _plain(panel.title)} if panel.title else None,
            xaxis=_plotly_axis(panel.x, [x for one in panel.series for x in one.x]),
            yaxis=_plotly_axis(panel.y, [y for one in panel.series for y in one.y]),
            showlegend=len(panel.series) > 1,
            bargap=0.06,
            height=max(320, 46 * panel.tall + 120) if panel.tall else 320,
            shapes=[
                {
                    "type": "line",
                    "x0": x,
                    "x1": x,
                    "y0": 0,
                    "y1": 1,
                    "yref": "paper",
                    "layer": "above",
                    "line": {"width": 1, "dash": "dash" if label else "solid"},
                }
                for x, label in panel.marks
            ],  # fmt: skip
            annotations=[
                {
                    "x": x,
                    "y": 1,
                    "yref": "paper",
                    "text": _plain(label),
                    "showarrow": False,
                    "xanchor": "left",
                    "yanchor": "bottom",
                    "font": {"size": 11},
                }
                for x, label in panel.marks
                if label
            ],  # fmt: skip
        )
        plot = go.Figure(traces, layout)
        found = json.loads(plot.to_json(engine="json"))
        found["layout"].pop("template", None)
        drawn.append({"data": found["data"], "layout": found["layout"]})
    return drawn


def _plain(text: str) -> str:
    """Plotly reads some tags in its texts; none of ours is one."""
    return (
        clean(text)
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace("τ_f", "τ<sub>f</sub>")
    )


def _trace(go: Any, one: Series) -> Any:
    shown = {"name": _plain(one.name), "x": list(one.x), "y": list(one.y), "meta": one.colour}
    if one.kind == "bars":
        return go.Bar(**shown, hovertemplate="gain %{x:.2f}: %{y}<extra></extra>")
    if one.labels:
        shown["text"] = [_plain(label) for label in one.labels]
    mode = {"line": "lines+markers", "points": "markers", "cloud": "markers"}[one.kind]
    marker: dict[str, Any] = {
        "size": 4 if one.kind == "cloud" else 8,
        "symbol": "circle-open" if one.paper else "circle",
    }
    if one.kind == "cloud":
        marker["opacity"] = 0.55
    if one.kind == "line" and len(one.x) > 30:
        mode = "lines"
    value, axis = ("x", "error_x") if one.lying else ("y", "error_y")
    if one.low and one.high:
        values = one.x if one.lying else one.y
        up = [high - at for at, high in zip(values, one.high, strict=True)]
        down = [at - low for at, low in zip(values, one.low, strict=True)]
        shown[axis] = {
            "type": "data",
            "symmetric": False,
            "array": up,
            "arrayminus": down,
            "thickness": 1.2,
            "width": 0,
        }
    name = "%{fullData.name}: " if not one.labels else "%{fullData.name}, %{text}: "
    hover = f"{name}%{{{value}:.4~g}}<extra></extra>"
    line = {"width": 2, "dash": "dash" if one.paper else "solid"}
    return go.Scatter(**shown, mode=mode, marker=marker, line=line, hovertemplate=hover)


def _plotly_axis(axis: Axis, values: Sequence[float]) -> dict[str, Any]:
    found: dict[str, Any] = {"title": {"text": _plain(axis.label)}, "automargin": True}
    if axis.logarithmic:
        found["type"] = "log"
        if not axis.ticks:
            found |= {"dtick": 1, "exponentformat": "power"}
    if axis.ticks:
        found |= {
            "tickvals": [at for at, _ in axis.ticks],
            "ticktext": [_plain(label) for _, label in axis.ticks],
        }
        if not axis.logarithmic:
            places = [at for at, _ in axis.ticks]
            found |= {"range": [min(places) - 0.6, max(places) + 0.6], "zeroline": False}
    elif axis.whole and all(value >= 0 for value in values):
        found["rangemode"] = "tozero"
    return found


def plotly_script() -> str:
    """Plotly's own program, as its package brings it."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def files(figure: Figure) -> dict[str, bytes]:
    """The figure as `<key>.svg` and `<key>.pdf`, on white; text in the SVG stays text."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    settings: Any = {
        "svg.fonttype": "none", "svg.hashsalt": figure.key, "pdf.fonttype": 42, "font.size": 8.5,
        "font.family": "DejaVu Sans", "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
        "axes.edgecolor": "#9a9ea8", "axes.labelcolor": "#3c4049", "xtick.color": "#3c4049", "ytick.color": "#3c4049",
        "axes.grid": True, "grid.color": "#ececea", "axes.titlesize": 9.5, "axes.titleweight": "bold",
        "legend.frameon": False, "text.parse_math": False,
    }  # fmt: skip
    columns = min(len(figure.panels), 3)
    rows = math.ceil(len(figure.panels) / columns)
    tall = max(panel.tall for panel in figure.panels)
    width = _WIDTH * columns if columns > 1 else 2 * _WIDTH
    with rc_context(settings):
        canvas = Canvas(figsize=(width, max(_HEIGHT * rows, 0.42 * tall + 1)), layout="constrained")
        FigureCanvasAgg(canvas)
        for number, panel in enumerate(figure.panels):
            _draw(canvas.add_subplot(rows, columns, number + 1), panel)
        found: dict[str, bytes] = {}
        for kind, metadata in (
            ("svg", {"Date": None, "Creator": None}),
            ("pdf", {"CreationDate": None, "Creator": None, "Producer": None}),
        ):
            buffer = io.BytesIO()
            canvas.savefig(buffer, format=kind, metadata=metadata)
            found[f"{figure.key}.{kind}"] = buffer.getvalue()
    return found


def _draw(axes: Any, panel: Panel) -> None:
    for one in panel.series:
        colour = PALETTE[one.colour % len(PALETTE)]
        if one.kind == "bars":
            width = (one.x[1] - one.x[0]) * 0.94 if len(one.x) > 1 else 1.0
            axes.bar(one.x, one.y, width=width, color=colour)
            continue
        if one.low and one.high:
            ends = {"color": colour, "linewidth": 1.1, "alpha": 0.7}
            if one.lying:
                axes.hlines(one.y, one.low, one.high, **ends)
            else:
                axes.vlines(one.x, one.low, one.high, **ends)
        marked = one.kind != "line" or len(one.x) <= 30
        axes.plot(
            one.x, one.y, label=_label(one.name), color=colour, alpha=0.55 if one.kind == "cloud" else 1.0,
            linestyle="none" if one.kind != "line" else "dashed" if one.paper else "solid",
            linewidth=1.6, marker="o" if marked else None, markersize=2 if one.kind == "cloud" else 4.5,
            markerfacecolor="white" if one.paper else colour, rasterized=one.kind == "cloud",
        )  # fmt: skip
    for x, label in panel.marks:
        axes.axvline(x, color="#3c4049", linewidth=0.9, linestyle="dashed" if label else "solid")
        if label:
            axes.annotate(clean(label), (x, 1), xycoords=("data", "axes fraction"), xytext=(3, -2), fontsize=7.5,
                          textcoords="offset points", va="top")  # fmt: skip
    axes.set_title(clean(panel.title), loc="left")
    _draw_axis(axes.xaxis, axes.set_xscale, panel.x)
    _draw_axis(axes.yaxis, axes.set_yscale, panel.y)
    for axis, limit in ((panel.x, axes.set_xlim), (panel.y, axes.set_ylim)):
        if axis.ticks and not axis.logarithmic:
            limit(axis.ticks[0][0] - 0.6, axis.ticks[-1][0] + 0.6)
    values = {
        "x": [x for one in panel.series for x in one.x],
        "y": [y for one in panel.series for y in one.y],
    }
    if panel.x.whole and min(values["x"]) >= 0:
        axes.set_xlim(left=0)
    if panel.y.whole and min(values["y"]) >= 0:
        axes.set_ylim(bottom=0)
    if len(panel.series) > 1:
        axes.legend(fontsize=7.5, handlelength=1.6, markerscale=2 if panel.series[0].kind == "cloud" else 1)


def _label(name: str) -> str:
    """A name for the legend, from which Matplotlib leaves out those that begin with an underscore."""
    name = clean(name)
    return f" {name}" if name.startswith("_") else name


def _draw_axis(axis: Any, scale: Any, wanted: Axis) -> None:
    axis.set_label_text(clean(wanted.label))
    if wanted.logarithmic:
        scale("log")
    if wanted.ticks:
        axis.set_ticks([at for at, _ in wanted.ticks], [clean(label) for _, label in wanted.ticks])
        axis.set_ticks([], minor=True)
