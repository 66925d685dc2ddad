"""Stage 4: the paper's tables from the runs, and the paper's figures beside them."""

from __future__ import annotations

import logging
from pathlib import Path

from toolformer import build
from toolformer.config import Config, experiments
from toolformer.reporting import Report, terminal
from toolformer.reporting import build as build_report

log = logging.getLogger(__name__)


def report(config: Config) -> Report:
    """Writes Markdown, LaTeX, HTML and the figures under the runs folder, and prints the tables."""
    build.apply_paths(config)
    tracker = build.tracker(config.paths.root, config.tracking)
    # `default` is the name of runs that belong to no experiment: they are reported with all others.
    experiment = None if config.name == "default" else config.name
    out = Path(config.paths.root) / "report" / config.name
    made = build_report(tracker, experiment, out, config.seed, experiments())
    terminal(made)
    log.info("report: %s", made.html)
    if made.samples:
        log.info("samples: %s", made.samples)
    log.info("runs: %s, browse them with: toolformer ui", tracker.shown_uri)
    return made
