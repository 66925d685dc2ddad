"""Stage 4: the paper's tables from the runs, and the paper's figures beside them."""

import logging
import shlex
from pathlib import Path

from toolformer.credentials import printable
from toolformer.jobs import instantiate
from toolformer.jobs.config import Config
from toolformer.jobs.train import summary
from toolformer.reporting import Report, terminal
from toolformer.reporting import build as build_report
from toolformer.results import Results
from toolformer.storage import safe_join
from toolformer.tracking import MlflowLogger

log = logging.getLogger(__name__)

SUMMARY = (
    "funnel",
    *(f"table{number}" for number in range(3, 10)),
    *("arithmetic", "xquad", "own", "by_threshold", "ladder"),
)
"""Tables that sum up an experiment."""


def write_report(config: Config, brief: bool = False, parent: str = "") -> Report:
    """Writes Markdown, LaTeX, HTML and the figures under the runs folder, and prints the tables or, `brief`, a summary.

    Args:
        parent: the sweep or the experiment that it belongs to.
    """
    root = Path(config.paths.root)
    Results(root).check_root()
    results = instantiate.results(config)
    log.info("report: from the runs with name=%s", config.name)
    folder = safe_join(root / "report", config.name)
    at = overrides_of(root)
    report = build_report(results, config.name, folder, config.paper == "full", config.lm_eval, at)
    if brief:
        _summarise(results, config, report)
    terminal(report, SUMMARY if brief else ())
    logger = MlflowLogger(config.tracking.uri, root)
    logger.report(folder, config.name, report.content.headline or report.content.title, parent)
    pages = {name: path for name, path in (("report", report.html), ("samples", report.samples)) if path}
    for name, path in pages.items():
        log.info("%s: %s", name, path)
    store = logger.store
    if store.database is None or store.database.exists():
        log.info("runs: %s, browse them with: %s", results.root, shlex.join(["toolformer", "ui", *at]))
    else:
        log_runs = shlex.join(["toolformer", "runs", "log", *at])
        log.info("runs: %s, not in MLflow; to log them there: %s", results.root, log_runs)
    return report


def overrides_of(root: Path) -> list[str]:
    """The overrides by which a command reads this folder of runs: none for `runs` in the working directory."""
    root, here = root.resolve(), Path.cwd()
    if root == here / "runs":
        return []
    return [f"paths.root={root.relative_to(here) if root.is_relative_to(here) else root}"]


def _summarise(results: Results, config: Config, report: Report) -> None:
    """Prints the best kept call in its text, and the results of the newest trainings."""
    for table in report.content.tables:
        if table.key == "table10":
            call, gain, decision = table.rows[0]  # the kept ones come first, by gain
            if decision.text == "kept":
                print(printable(f"gain {gain.text} nats: {call.before} {call.text}{call.after}\n"))
    for data, system in (("plain", "M + CC"), ("augmented", "Toolformer")):
        if run := results.latest("train", config.name, data=data):
            print(f"Trained {system}: {summary(run.metrics)}\n")
