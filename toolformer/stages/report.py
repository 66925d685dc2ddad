"""Stage 4: the paper's tables from the runs, and the paper's figures beside them."""

import logging
import shlex
from pathlib import Path

from toolformer.credentials import printable
from toolformer.reporting import Report, terminal
from toolformer.reporting import build as build_report
from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.stages.train import came_to
from toolformer.storage import below
from toolformer.tracking import Tracker
from toolformer.tracking.sweep import attach

log = logging.getLogger(__name__)

SUMMARY = (
    "funnel",
    *(f"table{number}" for number in range(3, 10)),
    *("arithmetic", "xquad", "own", "by_threshold", "ladder"),
)
"""Tables that say what an experiment came to."""


def report(config: Config, brief: bool = False) -> Report:
    """Writes Markdown, LaTeX, HTML and the figures under the runs folder, and prints the tables or, `brief`, a summary."""
    tracker = instantiate.tracker(config)
    log.info("report: of the runs with name=%s", config.name)
    folder = below(Path(config.paths.root) / "report", config.name)
    report = build_report(tracker, config.name, folder, config.seed, full=config.paper == "full")
    if brief:
        _summarise(tracker, config, report)
    terminal(report, SUMMARY if brief else ())
    pages = {name: path for name, path in (("report", report.html), ("samples", report.samples)) if path}
    attach(tracker, config.name, pages.values())
    for name, path in pages.items():
        log.info("%s: %s", name, path)
    root = Path(config.paths.root)
    words = [] if root.resolve() == Path("runs").resolve() else [f"paths.root={root}"]
    log.info("runs: %s, browse them with: %s", tracker.shown_uri, shlex.join(["toolformer", "ui", *words]))
    return report


def _summarise(tracker: Tracker, config: Config, report: Report) -> None:
    """Prints the best kept call in its text, and what the newest trainings came to."""
    for table in report.content.tables:
        if table.key == "table10":
            call, gain, decision = table.rows[0]  # the kept ones come first, by gain
            if decision.text == "kept":
                print(printable(f"gain {gain.text} nats: {call.before} {call.text}{call.after}\n"))
    for data, made in (("plain", "M + CC"), ("augmented", "Toolformer")):
        if run := tracker.latest("train", experiment=config.name, data=data):
            print(f"Trained {made}: {came_to(run.metrics)}\n")
