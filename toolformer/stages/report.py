"""Stage 4: the paper's tables from the runs, and the paper's figures beside them."""

import logging
import shlex
import sys
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks import PAPER
from toolformer.calls import ApiCall, strip
from toolformer.credentials import printable
from toolformer.decoding.settings import SYSTEMS
from toolformer.reporting import Report, terminal
from toolformer.reporting import build as build_report
from toolformer.reporting.candidate_stats import passage
from toolformer.reporting.selection import wording_of
from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.stages.train import came_to
from toolformer.storage import below
from toolformer.tracking import Run, Tracker
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
        _summarise(tracker, config, report.content.headline)
    terminal(report, _OF_SWEEPS if brief else ())
    pages = {name: path for name, path in (("report", report.html), ("samples", report.samples)) if path}
    attach(tracker, config.name, pages.values())
    for name, path in pages.items():
        log.info("%s: %s", name, path)
    root = Path(config.paths.root)
    words = [] if root.resolve() == Path("runs").resolve() else [f"paths.root={root}"]
    log.info("runs: %s, browse them with: %s", tracker.shown_uri, shlex.join(["toolformer", "ui", *words]))
    return report


def _summarise(tracker: Tracker, config: Config, headline: str) -> None:
    """Prints what the newest runs came to: what was annotated and trained, an annotated sentence, a table, the difference."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    if annotation := tracker.latest("generate", experiment=config.name):
        console.print(Text(printable(_annotated(annotation, config))))
        if sentence := _best_call(tracker, annotation, config):
            console.print(Text(printable(f"  {sentence}")))
    for data, made in (("plain", "M + CC"), ("augmented", "Toolformer")):
        if run := tracker.latest("train", experiment=config.name, data=data):
            console.print(f"Trained {made}: {came_to(run.metrics)}")
    newest: dict[str, Run] = {}
    for run in tracker.runs("evaluate", experiment=config.name):
        if wording_of(run) == PAPER:
            newest.setdefault(run.tags.get("system", ""), run)
    evaluations = {system: newest[system] for system in SYSTEMS if system in newest}
    keys = dict.fromkeys(key for run in evaluations.values() for key in run.metrics)
    columns = [key for key in keys if key.endswith(("/score", "/perplexity"))]
    table = Table("system", title=f"Measured ({config.name})", title_justify="left")
    for key in columns:
        task, _, kind = key.rpartition("/")
        counts = {int(run.metrics[f"{task}/n"]) for run in evaluations.values() if f"{task}/n" in run.metrics}
        unit = "% correct" if kind == "score" else "a token"
        head = f"{task}\n{unit}, n = {'/'.join(map(str, sorted(counts)))}"
        table.add_column(Text(printable(head)), justify="right")
    for system, run in evaluations.items():
        table.add_row(SYSTEMS[system], *(_cell(run, key) for key in columns))
    if columns:
        console.print(table)
    if headline:
        console.print(Text(printable(headline)))


def _annotated(run: Run, config: Config) -> str:
    kept = sorted(
        (key.removesuffix("/kept"), count) for key, count in run.metrics.items() if key.endswith("/kept")
    )
    names = (f"{_called(key, config)} {count:.0f}" for key, count in kept)
    return (
        f"Annotated {run.metrics['documents']:.0f} texts: {run.metrics['texts_kept']:.0f} keep a call, "
        f"{run.metrics['calls_kept']:.0f} calls in all ({', '.join(names)})"
    )


def _best_call(tracker: Tracker, run: Run, config: Config) -> str:
    """The kept call of the largest gain, inside of its text where there is one, with the gain."""
    rows = pq.read_table(tracker.artifact_path(run, "dataset_augmented.parquet")).to_pylist()
    calls = [(call["position"] > 0, call["gain"], call, row["text"]) for row in rows for call in row["calls"]]
    if not calls:
        return ""
    _, gain, call, text = max(calls, key=lambda item: item[:2])
    written = ApiCall(_called(call["tool"], config), call["input"], call["result"])
    shown = passage(written.tool, strip(text), call["position"], written, gain, kept=True)
    return f"gain {gain:.2f} nats: {shown.before} {shown.call}{shown.after}"


def _called(tool: str, config: Config) -> str:
    """A tool's name, by its key."""
    return config.tool[tool].name if tool in config.tool else tool


def _cell(run: Run, key: str) -> str:
    if key not in run.metrics:
        return ""
    low, high = (run.metrics.get(f"{key.rpartition('/')[0]}/{end}") for end in ("ci_low", "ci_high"))
    interval = "" if low is None or high is None else f" [{low:.1f}, {high:.1f}]"
    return f"{run.metrics[key]:.1f}{interval}"
