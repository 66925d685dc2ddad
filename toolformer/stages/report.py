"""Stage 4: the paper's tables from the runs, and the paper's figures beside them."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

from toolformer.reporting import Report, terminal
from toolformer.reporting import build as build_report
from toolformer.stages import instantiate, summary
from toolformer.stages.config import Config
from toolformer.storage import below
from toolformer.tracking.sweep import attach

log = logging.getLogger(__name__)

_OF_SWEEPS = ("table9", "by_threshold")
"""Tables that a summary shows too: its own has one row for Toolformer, the newest."""


def report(config: Config, brief: bool = False) -> Report:
    """Writes Markdown, LaTeX, HTML and the figures under the runs folder, and prints the tables or, `brief`, a summary."""
    tracker = instantiate.tracker(config)
    log.info("report: of the runs with name=%s", config.name)
    folder = below(Path(config.paths.root) / "report", config.name)
    report = build_report(tracker, config.name, folder, config.seed, full=config.paper == "full")
    if brief:
        summary.show(tracker, config)
        terminal(report, _OF_SWEEPS)
    else:
        terminal(report)
    attach(tracker, config.name, [place for place in (report.html, report.samples) if place])
    for name, place in (("report", report.html), ("samples", report.samples)):
        if place:
            log.info("%s: %s", name, place)
    root = Path(config.paths.root)
    words = [] if root.resolve() == Path("runs").resolve() else [f"paths.root={root}"]
    log.info("runs: %s, browse them with: %s", tracker.shown_uri, shlex.join(["toolformer", "ui", *words]))
    return report
