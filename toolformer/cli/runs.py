"""`toolformer runs`: runs and what they were made from, in the terminal; `toolformer runs push` copies to a server what it lacks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer.cli.parser import Parser, configured, console
from toolformer.credentials import printable
from toolformer.errors import UserError
from toolformer.tracking.run import figures

if TYPE_CHECKING:
    from rich.table import Table

    from toolformer.tracking import Run, Tracker

LINEAGE = ("lineage.evaluate_run_id", "lineage.train_run_id", "lineage.dataset_run_id")
"""Tags that name the run which a run was made from, the nearest first."""


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    from toolformer.decoding.settings import SYSTEMS
    from toolformer.tracking import StoreFault, Tracker
    from toolformer.tracking.run import STATUSES

    parser = Parser("runs", "lists runs, each below the run that it was made from, the newest first")
    words = (
        "a run's id or its first characters: its line of descent alone; push: copy to the tracking server what it lacks; "
        "configuration: name=EXPERIMENT, paths.root=DIR, tracking.uri=URI"
    )
    parser.add_argument("words", nargs="*", help=words)
    stages = ("generate", "train", "evaluate", "explain")
    parser.add_argument("--stage", choices=stages, help="only runs of this stage")
    parser.add_argument("--experiment", help="only runs of this experiment (the key name)")
    parser.add_argument("--system", choices=SYSTEMS, help="only evaluations of this system")
    parser.add_argument("--status", choices=STATUSES, help="only runs of this status")
    parser.add_argument("--json", action="store_true", help="print JSON, with all tags and metrics")
    options = parser.parse_intermixed_args(arguments)
    config = configured("report", [word for word in options.words if "=" in word])
    tracker = Tracker(config.tracking.uri, Path(config.paths.root))
    named = [word for word in options.words if "=" not in word]
    if named == ["push"]:
        return _push(tracker)
    runs = [run for run in tracker.all_runs() if run.stage]
    for reference in named:
        runs = _related(runs, reference)
    is_named = any(word.startswith(("name=", "experiment=")) for word in options.words)
    experiment = options.experiment or (config.name if is_named else None)
    wanted = {"stage": options.stage, "experiment": experiment, "system": options.system}
    tags = {tag: value for tag, value in wanted.items() if value is not None}.items()
    runs = [run for run in runs if tags <= run.tags.items() and options.status in (None, run.status)]
    unsent: set[str] = set()
    with suppress(StoreFault):  # the heading says that it does not answer
        unsent = {run.run_id for run in tracker.pending()}
    if options.json:
        print(json.dumps([_as_json(run, run.run_id in unsent) for run in runs], indent=1))
        return 0
    screen = console()
    screen.print(_table(runs, tracker.place(), unsent, screen.width))
    if unsent:
        print(
            f"not whole on {tracker.shown_uri}: {len(unsent)} of the runs; toolformer runs push copies them"
        )
    return 0


def _push(tracker: Tracker) -> int:
    if tracker.server is None:
        raise UserError("runs push: name the server: tracking.uri=http://HOST:PORT")
    copied, faults = tracker.push()
    print(f"{_count(copied)} copied to {tracker.shown_uri}")
    if faults:
        raise UserError(f"runs push: {_count(len(faults))} not whole there, the first: {faults[0]}")
    return 0


def _count(runs: int) -> str:
    return f"{runs} run{'' if runs == 1 else 's'}"


def _made_from(run: Run) -> str:
    return next((run.tags[tag] for tag in LINEAGE if run.tags.get(tag)), "")


def _related(runs: Sequence[Run], reference: str) -> list[Run]:
    """A run, what it was made from, and what was made from it."""
    ids = {run.run_id for run in runs if run.is_named(reference)}
    if len(ids) != 1:
        what = "there is no run" if not ids else f"{len(ids)} runs begin with"
        raise UserError(f"runs: {what} {reference}; toolformer runs lists them")
    above, below = ids, set(ids)
    for _ in LINEAGE:
        above |= {_made_from(run) for run in runs if run.run_id in above}
        below |= {run.run_id for run in runs if _made_from(run) in below}
    return [run for run in runs if run.run_id in above | below]


def _as_json(run: Run, unsent: bool) -> dict[str, Any]:
    shown = {"stage": run.stage, **asdict(run), "made_from": _made_from(run) or None, "sent": not unsent}
    return {**shown, "started": run.started.isoformat(), "ended": run.ended and run.ended.isoformat()}


def _in_order(runs: Sequence[Run]) -> Iterable[tuple[int, Run]]:
    """Each run with its depth, below the one that it was made from."""
    ids = {run.run_id for run in runs}
    below: dict[str, list[Run]] = {}
    for run in runs:
        source = _made_from(run)
        below.setdefault(source if source in ids else "", []).append(run)

    def under(run_id: str, depth: int) -> Iterable[tuple[int, Run]]:
        for run in below.get(run_id, ()):
            yield depth, run
            yield from under(run.run_id, depth + 1)

    return under("", 0)


def _table(runs: Sequence[Run], place: str, unsent: set[str], width: int) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = Text(printable(f"{_count(len(runs))} in {place}"), style="table.title")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    deepest = max((depth for depth, _ in _in_order(runs)), default=0)
    table.add_column("run", no_wrap=True, min_width=2 * deepest + 9)
    names = ("what", "status", "figures", "experiment", "began (UTC)", "minutes")
    for name in names if width >= 120 else names[:3]:  # in a narrow terminal words would be cut
        table.add_column(name, overflow="fold", justify="right" if name == "minutes" else "left")
    for depth, run in _in_order(runs):
        seconds = run.metrics.get("duration_seconds")
        cells = (
            "  " * depth + run.run_id[:8] + ("*" if run.run_id in unsent else ""),
            run.name if run.name.startswith(run.stage) else f"{run.stage} {run.name}",
            run.status,
            ", ".join([*(_figure(key, value) for key, value in figures(run).items()), *_dtype(run)]),
            run.tags.get("experiment", ""),
            f"{run.started:%Y-%m-%d %H:%M}",
            "" if seconds is None else f"{seconds / 60:.1f}",
        )
        # As text: what a run holds is neither markup nor an escape sequence.
        table.add_row(*(Text(printable(cell)) for cell in cells[: len(table.columns)]))
    return table


def _dtype(run: Run) -> Iterable[str]:
    return [run.tags["dtype"]] if run.tags.get("dtype") and figures(run) else []


def _figure(key: str, value: float) -> str:
    task, slash, _ = key.rpartition("/")
    return f"{task} {value:.1f}" if slash else f"{key.replace('_', ' ')} {value:g}"
