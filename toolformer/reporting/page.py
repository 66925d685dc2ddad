"""A report's content as HTML pages: one file each, no request, and only the scripts that are in them.

Every text from data or a model is escaped for where it stands. A content security policy names each script by its
hash, so that nothing else runs even where an escape were missing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

from toolformer.reporting import plots
from toolformer.reporting.layout import Column, Content, Figure
from toolformer.reporting.render import FOLDER, clean, title

LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def html(content: Content, samples: str = "") -> str:
    """The report; `samples` is the address of the page of samples, beside it."""
    drawn = {figure.key: plots.plotly_json(figure) for figure in content.figures if figure.panels}
    scripts = [plots.plotly_script(), _own("charts.js")] if drawn else []
    return _page(
        "report.html",
        scripts,
        styles=["theme.css", "report.css"],
        content=content,
        title_of=title,
        groups=_groups,
        bars=_bars(content),
        data={"figures": drawn},
        samples=samples,
        folder=FOLDER,
        clean=clean,
        values=_values,
    )


def samples_html(heading: str, data: dict[str, Any]) -> str:
    """The page on which candidates and samples are read; `data` as `viewer` gives it."""
    scripts = [
        _own(name) for name in ("list.js", "elements.js", "candidates.js", "questions.js", "viewer.js")
    ]
    return _page(
        "samples.html",
        ["\n".join(scripts)],
        styles=["theme.css", "samples.css"],
        data={"samples": data},
        heading=heading,
        counts={name: bool(value) for name, value in data.items()},
    )


def json_in_script(value: Any) -> str:
    """JSON that no text in it can end the script element with, nor open a comment or a tag."""
    text = LONE_SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False, allow_nan=False))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _page(name: str, scripts: Sequence[str], styles: Sequence[str], data: dict[str, Any], **rest: Any) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("toolformer.reporting", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    return environment.get_template(name).render(
        policy=_policy(scripts),
        style="\n".join(map(_own, styles)),
        scripts=scripts,
        data={key: json_in_script(value) for key, value in data.items()},
        **rest,
    )


def _policy(scripts: Sequence[str]) -> str:
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'"


@cache
def _own(name: str) -> str:
    """A style or script of the templates folder."""
    return files("toolformer.reporting").joinpath("templates", name).read_text(encoding="utf-8")


def _finalize(value: Any) -> Any:
    """Every text that the template prints is cleaned before it is escaped."""
    return clean(value) if type(value) is str else value


def _groups(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """(heading, number of columns) of neighbours under one heading; empty if there is none."""
    if not any(column.group for column in columns):
        return []
    return [
        (group, len(list(members))) for group, members in groupby(columns, key=lambda column: column.group)
    ]


def _values(figure: Figure) -> list[tuple[str, ...]]:
    """A figure's points as text: panel, series, x, y, and the ends of the interval; a cloud by its extent."""
    rows: list[tuple[str, ...]] = []
    for panel in figure.panels:
        for one in panel.series:
            names = [dict(axis.ticks) for axis in (panel.x, panel.y)]
            if one.kind == "cloud":
                ends = [f"{min(part):.4g} to {max(part):.4g}" for part in (one.x, one.y)]
                rows.append((panel.title, f"{one.name} ({len(one.x):,} points)", *ends, "", ""))
                continue
            for number, (x, y) in enumerate(zip(one.x, one.y, strict=True)):
                # A point may stand beside its tick, so that intervals do not cover each other.
                at = [_nearest(value, ticks) for value, ticks in zip((x, y), names, strict=True)]
                ends = [f"{part[number]:.4g}" if part else "" for part in (one.low, one.high)]
                rows.append((panel.title, one.name, *at, *ends))
    return rows


def _nearest(value: float, ticks: dict[float, str]) -> str:
    near = min(ticks, key=lambda tick: abs(tick - value), default=None)
    return f"{value:.4g}" if near is None or abs(near - value) >= 0.5 else ticks[near]


def _bars(content: Content) -> dict[tuple[int, int], float]:
    """(row, column) of the annotation table -> width in percent of its row's largest count, on a log scale."""
    table = next(table for table in content.tables if table.key == "funnel")
    widths: dict[tuple[int, int], float] = {}
    for y, row in enumerate(table.rows):
        counts = {
            x: int(cell.text.replace(",", ""))
            for x, cell in enumerate(row)
            if cell.text.replace(",", "").isdigit()
        }
        top = math.log1p(max(counts.values(), default=0))
        widths |= {
            (y, x): round(100 * math.log1p(count) / top, 1) if top else 0.0 for x, count in counts.items()
        }
    return widths
