"""`toolformer runs`: runs and what they were made from, in the terminal; `toolformer runs resend` sends what a server missed, `prune`
removes what it has."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from toolformer.tracking import Run, Tracker

LINEAGE = ("lineage.train_run_id", "lineage.dataset_run_id")
"""Tags that name the run which a run was made from, the nearest first."""
FIGURES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "generate": (("documents",), ("texts_kept",), ("calls_kept",)),
    "train": (("best_heldout_perplexity", "heldout_perplexity"),),
}
"""What is shown of a run of each stage: of every tuple the first metric that it has. Trainings of earlier versions, and those
still at work, have the last evaluation's perplexity alone."""


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        "toolformer runs",
        description="lists runs, each below the run that it was made from, the newest first",
    )
    parser.add_argument(
        "words",
        nargs="*",
        help="a run's id or its first characters: its line of descent alone; resend: send what a tracking server missed; "
        "prune: remove the local copies of runs that it has whole; "
        "configuration: paths.root=DIR, tracking.uri=URI",
    )
    parser.add_argument("--stage", help="only generate, train or evaluate")
    parser.add_argument("--experiment", help="only runs of this experiment (the key name)")
    parser.add_argument("--system", help="only evaluations of this system")
    parser.add_argument("--status", help="only FINISHED, RUNNING, FAILED or KILLED")
    parser.add_argument("--json", action="store_true", help="print JSON, with all tags and metrics")
    options = parser.parse_intermixed_args(arguments)
    from toolformer import build
    from toolformer.config import STAGES, SYSTEMS, compose, validate
    from toolformer.config.checks import one_of
    from toolformer.tracking.run import STATUSES

    for option, value, known in (
        ("--stage", options.stage, [stage for stage in STAGES if stage != "report"]),  # which is no run
        ("--system", options.system, SYSTEMS),
        ("--status", options.status, STATUSES),
    ):
        if value is not None:
            one_of(option, value, known)
    config = validate(compose("report", [word for word in options.words if "=" in word]))
    if Path(config.paths.root).exists() and not Path(config.paths.root).is_dir():
        raise UserError(f"paths.root: {config.paths.root} is no folder; name another")
    tracker = build.tracker(config.paths.root, config.tracking)
    named = [word for word in options.words if "=" not in word]
    if named == ["resend"]:
        return _resend(tracker)
    if named == ["prune"]:
        print(
            f"{_count(tracker.prune())} removed from {tracker.root}/journal; {tracker.shown_uri} has them whole"
        )
        return 0
    wanted = {"stage": options.stage, "experiment": options.experiment, "system": options.system}
    every = [run for run in tracker.all_runs() if run.stage]
    for reference in named:
        every = _related(every, reference)
    chosen = [
        run
        for run in every
        if all(value is None or run.tags.get(key) == value for key, value in wanted.items())
        and options.status in (None, run.status)
    ]
    unsent = {run.run_id for run in tracker.unsent()}
    if options.json:
        print(json.dumps([_as_json(run, run.run_id in unsent) for run in chosen], indent=1))
        return 0
    from rich.console import Console

    # Not on a terminal there is no width to keep to.
    Console(width=None if sys.stdout.isatty() else 160).print(_table(chosen, tracker.place(), unsent))
    if unsent:
        print(
            f"not sent to {tracker.shown_uri}: {len(unsent)} of the runs; toolformer runs resend sends them"
        )
    return 0


def _resend(tracker: Tracker) -> int:
    done = tracker.resend()
    said = f"{_count(done.runs)} sent" if done.runs or done.faults else "nothing is left to send"
    print(f"{said} to {tracker.shown_uri}")
    if done.refused:
        print(f"{done.refused} of their events are refused: see {tracker.root}/journal/*/refused.jsonl")
    if done.faults:
        raise UserError(f"runs resend: {_count(len(done.faults))} not taken, the first: {done.faults[0]}")
    return 0


def _count(runs: int) -> str:
    return f"{runs} run{'' if runs == 1 else 's'}"


def _made_from(run: Run) -> str:
    return next((run.tags[tag] for tag in LINEAGE if run.tags.get(tag)), "")


def _related(runs: Sequence[Run], reference: str) -> list[Run]:
    """A run, what it was made from, and what was made from it."""
    found = [
        run
        for run in runs
        if run.run_id.startswith(reference) or run.stored_as.startswith(reference) and run.stored_as
    ]
    if len(found) != 1:
        what = "there is no run" if not found else f"{len(found)} runs begin with"
        raise UserError(f"runs: {what} {reference}; toolformer runs lists them")
    above, below = {found[0].run_id}, {found[0].run_id}
    for _ in range(len(LINEAGE)):
        above |= {_made_from(run) for run in runs if run.run_id in above}
        below |= {run.run_id for run in runs if _made_from(run) in below}
    return [run for run in runs if run.run_id in above | below]


def _as_json(run: Run, unsent: bool) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "stage": run.stage,
        "name": run.name,
        "status": run.status,
        "started": run.started.isoformat(),
        "ended": run.ended.isoformat() if run.ended else None,
        "made_from": _made_from(run) or None,
        "sent": not unsent,
        "tags": dict(run.tags),
        "metrics": dict(run.metrics),
    }


def _in_order(runs: Sequence[Run]) -> Iterable[tuple[int, Run]]:
    """Each run with its depth, below the one that it was made from."""
    ids = {run.run_id for run in runs}

    def below(above: str, depth: int) -> Iterable[tuple[int, Run]]:
        for run in runs:
            if (_made_from(run) if _made_from(run) in ids else "") == above:
                yield depth, run
                yield from below(run.run_id, depth + 1)

    return below("", 0)


def _table(runs: Sequence[Run], place: str, unsent: set[str]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{_count(len(runs))} in {place}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column(
        "run", no_wrap=True, min_width=max([8, *(2 * depth + 9 for depth, _ in _in_order(runs))])
    )
    for name in ("what", "experiment", "status", "began (UTC)", "minutes", "figures"):
        table.add_column(name, overflow="fold", justify="right" if name == "minutes" else "left")
    for depth, run in _in_order(runs):
        seconds = run.metrics.get("duration_seconds")
        cells = (
            "  " * depth + run.run_id[:8] + ("*" if run.run_id in unsent else ""),
            run.name if run.name.startswith(run.stage) else f"{run.stage} {run.name}",
            run.tags.get("experiment", ""),
            run.status,
            f"{run.started:%Y-%m-%d %H:%M}",
            "" if seconds is None else f"{seconds / 60:.1f}",
            _figures(run),
        )
        # As text: what a run holds is no markup.
        table.add_row(*map(Text, cells))
    return table


def _figures(run: Run) -> str:
    if run.stage == "evaluate":
        shown = [(key.rpartition("/")[0], value) for key, value in run.metrics.items() if _is_score(key)]
        return ", ".join(f"{task} {value:.1f}" for task, value in sorted(shown))
    known = ([key for key in keys if key in run.metrics] for keys in FIGURES.get(run.stage, ()))
    return ", ".join(f"{keys[0].replace('_', ' ')} {run.metrics[keys[0]]:g}" for keys in known if keys)


def _is_score(key: str) -> bool:
    task, _, kind = key.rpartition("/")
    return kind in ("score", "perplexity") and "/" not in task
