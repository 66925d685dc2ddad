"""What an experiment came to, in a screenful: what was annotated and trained, one annotated sentence, one table."""

from __future__ import annotations

import sys

import pyarrow.parquet as pq

from benchmarks import PAPER
from toolformer.calls import ApiCall, strip
from toolformer.credentials import printable
from toolformer.decoding.settings import SYSTEMS
from toolformer.reporting.candidate_stats import passage
from toolformer.reporting.selection import wording_of
from toolformer.stages.config import Config
from toolformer.tracking import Run, Tracker


def show(tracker: Tracker, config: Config) -> None:
    """Prints the summary of the newest runs of `config.name`: at most twenty lines."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    annotation = tracker.latest("generate", experiment=config.name)
    if annotation:
        console.print(Text(printable(_annotated(annotation, config))))
        if sentence := _best_call(tracker, annotation, config):
            console.print(Text(f"  {sentence}"))
    for data in ("plain", "augmented"):
        if run := tracker.latest("train", experiment=config.name, data=data):
            console.print(Text(_trained(run, data)))
    evaluations: dict[str, Run] = {}
    for run in tracker.runs("evaluate", experiment=config.name):
        if wording_of(run) == PAPER:
            evaluations.setdefault(run.tags.get("system", ""), run)
    evaluations = {system: evaluations[system] for system in SYSTEMS if system in evaluations}
    columns = list(dict.fromkeys(
        key for run in evaluations.values() for key in run.metrics if key.endswith(("/score", "/perplexity"))
    ))  # fmt: skip
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


def _annotated(run: Run, config: Config) -> str:
    kept = sorted(
        (key.removesuffix("/kept"), count) for key, count in run.metrics.items() if key.endswith("/kept")
    )
    names = (f"{config.tool[key].name if key in config.tool else key} {count:.0f}" for key, count in kept)
    return (
        f"Annotated {run.metrics['documents']:.0f} texts: {run.metrics['texts_kept']:.0f} keep a call, "
        f"{run.metrics['calls_kept']:.0f} calls in all ({', '.join(names)})"
    )


def _trained(run: Run, data: str) -> str:
    made = "Toolformer" if data == "augmented" else "M + CC"
    before, after = (run.metrics[f"{when}_heldout_perplexity"] for when in ("initial", "best"))
    steps, texts = run.metrics["train_steps"], run.metrics["texts"]
    return f"Trained {made}: {steps:.0f} steps on {texts:.0f} texts, held-out perplexity {before:.2f} -> {after:.2f}"


def _best_call(tracker: Tracker, run: Run, config: Config) -> str:
    """The kept call of the largest gain, inside of its text where there is one, with the gain."""
    rows = pq.read_table(tracker.artifact_path(run, "dataset_augmented.parquet")).to_pylist()
    calls = [(call["position"] > 0, call["gain"], call, row["text"]) for row in rows for call in row["calls"]]
    if not calls:
        return ""
    _, gain, call, text = max(calls, key=lambda item: item[:2])
    name = config.tool[call["tool"]].name if call["tool"] in config.tool else call["tool"]
    written = ApiCall(name, call["input"], call["result"])
    shown = passage(name, strip(text), call["position"], written, gain, kept=True)
    return printable(f"gain {gain:.2f} nats: {shown.before} {shown.call}{shown.after}")


def _cell(run: Run, key: str) -> str:
    if key not in run.metrics:
        return ""
    task = key.rpartition("/")[0]
    bounds = [run.metrics[f"{task}/{end}"] for end in ("ci_low", "ci_high") if f"{task}/{end}" in run.metrics]
    return f"{run.metrics[key]:.1f}" + (f" [{bounds[0]:.1f}, {bounds[1]:.1f}]" if len(bounds) == 2 else "")
