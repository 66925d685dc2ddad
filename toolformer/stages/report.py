"""Stage 4: the paper's tables from the runs, and the paper's figures beside them."""

from __future__ import annotations

import logging
import shlex
from dataclasses import replace
from pathlib import Path

from toolformer.reporting import Report
from toolformer.reporting import build as build_report
from toolformer.reporting.console import show
from toolformer.reporting.table import Content
from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.storage import below
from toolformer.tracking.sweep import attach

log = logging.getLogger(__name__)

_BRIEF = (
    *("table3", "table4", "arithmetic", "table5", "table6", "xquad", "table7", "own", "table8", "table9"),
    *("by_threshold", "table10"),
)
"""Tables of a summary: what the systems came to, and the best of the calls that were kept."""


def report(config: Config, brief: bool = False) -> Report:
    """Writes Markdown, LaTeX, HTML and the figures under the runs folder, and prints the tables or, `brief`, a summary."""
    tracker = instantiate.tracker(config)
    log.info("report: of the runs with name=%s", config.name)
    folder = below(Path(config.paths.root) / "report", config.name)
    report = build_report(tracker, config.name, folder, config.seed, full=config.paper == "full")
    show(_summary(report.content) if brief else report.content)
    pages = {name: path for name, path in (("report", report.html), ("samples", report.samples)) if path}
    attach(tracker, config.name, pages.values())
    for name, path in pages.items():
        log.info("%s: %s", name, path)
    root = Path(config.paths.root)
    words = [] if root.resolve() == Path("runs").resolve() else [f"paths.root={root}"]
    log.info("runs: %s, browse them with: %s", tracker.shown_uri, shlex.join(["toolformer", "ui", *words]))
    return report


def _summary(content: Content) -> Content:
    tables = [table for table in content.tables if table.key in _BRIEF]
    parts = [replace(table, rows=table.rows[:1]) if table.key == "table10" else table for table in tables]
    counts = ", ".join(f"{value} {label}" for value, label in content.facts)
    return replace(content, parts=parts, remarks=[counts, *content.remarks])
