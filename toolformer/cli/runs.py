"""`toolformer runs`: runs and what they were made from; `push` and `pull` copy them to and from an MLflow server."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer.cli.parser import Parser, configured, console
from toolformer.credentials import printable
from toolformer.errors import UserError
from toolformer.results import Results, Run
from toolformer.results.run import STAGES, STATUSES, SWEEP, figures

if TYPE_CHECKING:
    from rich.table import Table

    from toolformer.tracking import Store


SHOWN = 6
"""Figures of a run in the table; `--json` has all."""


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    from toolformer.decoding.settings import SYSTEMS
    from toolformer.tracking import Store

    parser = Parser("runs", "lists runs, each below the run that it was made from, the newest first")
    meaning = (
        "a run's id or its first characters: only its lineage; push [RUN]: log to the tracking server the runs that it lacks; "
        "pull [RUN]: bring runs from there; overrides: name=EXPERIMENT, paths.root=DIR, tracking.uri=URI"
    )
    parser.add_argument("arguments", nargs="*", help=meaning)
    parser.add_argument("--stage", choices=STAGES, help="only runs of this stage")
    parser.add_argument("--experiment", help="only runs of this experiment (the key name)")
    parser.add_argument("--system", choices=SYSTEMS, help="only evaluations of this system")
    parser.add_argument("--status", choices=STATUSES, help="only runs of this status")
    parser.add_argument("--limit", type=int, default=100, help="how many runs to list, the newest (100)")
    parser.add_argument(
        "--json", action="store_true", help="print JSON of all runs, with all facts and metrics"
    )
    options = parser.parse_intermixed_args(arguments)
    overrides = [argument for argument in options.arguments if "=" in argument]
    config = configured("report", overrides)
    results = Results(Path(config.paths.root))
    store = Store(results.root, config.tracking.uri)
    named = [argument for argument in options.arguments if "=" not in argument]
    if named[:1] in (["push"], ["pull"]):
        return _transfer(named[0], results, store, named[1:])
    results.check_root()
    runs = every = results.all_runs()
    sources = {run.id: run.made_from for run in runs}
    for reference in named:
        runs = _related(runs, sources, reference)
    is_named = any(override.startswith(("name=", "experiment=")) for override in overrides)
    experiment = options.experiment or (config.name if is_named else None)
    runs = [run for run in runs if _matches(run, options, experiment)]
    unsent = {run.id for run in runs if run.status != "RUNNING" and not run.is_sent(store.address)}
    if options.json:
        print(json.dumps([_as_json(run, run.id not in unsent) for run in runs], indent=1, default=str))
    elif runs:
        _show(runs, sources, f"{_count(len(runs))} in {results.root}", unsent, max(options.limit, 1))
    else:
        matching = " that match" if every else ""
        print(printable(f"no runs{matching} in {results.root}"))
    return 0


def _show(
    runs: Sequence[Run], sources: Mapping[str, Sequence[str]], title: str, unsent: set[str], limit: int
) -> None:
    """Prints the newest runs, and how many others there are."""
    screen = console()
    screen.print(_table(runs[:limit], sources, title, unsent, screen.width))
    if len(runs) > limit:
        print(f"{len(runs) - limit:,} older; --limit {len(runs)} lists all")
    if unsent:
        print(f"* not in MLflow: {len(unsent)}; toolformer runs push logs them there")


def _matches(run: Run, options: Namespace, experiment: str | None) -> bool:
    """Whether the options choose a run."""
    return (
        options.stage in (None, run.stage)
        and options.status in (None, run.status)
        and options.system in (None, run.facts.get("system"))
        and (experiment is None or experiment in run.experiments)
    )


def _transfer(action: str, results: Results, store: Store, references: Sequence[str]) -> int:
    """`runs push [RUN]` and `runs pull [RUN]`."""
    from toolformer.tracking import transfer

    if len(references) > 1:
        raise UserError(f"runs {action}: name one run, or none for all")
    reference = "".join(references)
    if action == "pull" and store.is_local:
        raise UserError("runs pull: name the server: tracking.uri=http://HOST:PORT")
    if action == "push":
        if reference and not any(run.is_named(reference) for run in results.all_runs(*STAGES, SWEEP)):
            raise UserError(f"runs push: there is no run {reference}; toolformer runs lists them")
        runs = transfer.pending(results, store)
        count, refused = transfer.push(store, [run for run in runs if run.is_named(reference)])
    else:
        count, refused = transfer.pull(results, store, reference)
    print(f"{_count(count)} {'logged to' if action == 'push' else 'brought from'} {store.shown_uri}")
    for line in refused:
        print(f"toolformer: runs {action}: {printable(line)}", file=sys.stderr)
    return 2 if refused else 0


def _count(runs: int) -> str:
    return f"{runs} run{'' if runs == 1 else 's'}"


def _related(runs: Sequence[Run], sources: Mapping[str, Sequence[str]], reference: str) -> list[Run]:
    """A run, what it was made from, and what was made from it."""
    ids = {run.id for run in runs if run.is_named(reference)}
    if len(ids) != 1:
        count = "there is no run" if not ids else f"{len(ids)} runs begin with"
        raise UserError(f"runs: {count} {reference}; toolformer runs lists them")
    above, below = ids, set(ids)
    for _ in STAGES:
        above = above | {source for run_id in above for source in sources.get(run_id, ())}
        below |= {run_id for run_id, made_from in sources.items() if below & {*made_from}}
    return [run for run in runs if run.id in above | below]


def _as_json(run: Run, sent: bool) -> dict[str, Any]:
    return {
        **{"id": run.id, "stage": run.stage, "name": run.name, "status": run.status},
        **{"started": run.started.isoformat(), "ended": run.ended and run.ended.isoformat()},
        **{"experiments": sorted(run.experiments), "made_from": run.made_from, "parent": run.parent or None},
        **{"command": run.command, "folder": str(run.folder), "config": run.config, "facts": run.facts},
        **{"metrics": run.metrics, "mlflow_ids": run.mlflow_ids, "sent": sent},
    }


def _in_order(runs: Sequence[Run], sources: Mapping[str, Sequence[str]]) -> Iterable[tuple[int, Run]]:
    """Each run with its depth, below the first one that it was made from."""
    ids = {run.id for run in runs}
    below: dict[str, list[Run]] = {}
    for run in runs:
        below.setdefault(next((source for source in sources[run.id] if source in ids), ""), []).append(run)

    def descend(run_id: str, depth: int) -> Iterable[tuple[int, Run]]:
        for run in below.get(run_id, ()):
            yield depth, run
            yield from descend(run.id, depth + 1)

    return descend("", 0)


def _table(
    runs: Sequence[Run], sources: Mapping[str, Sequence[str]], title: str, unsent: set[str], width: int
) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    heading = Text(printable(title), style="table.title")
    table = Table(title=heading, title_justify="left", box=SIMPLE_HEAD)
    ordered = list(_in_order(runs, sources))
    deepest = max((depth for depth, _ in ordered), default=0)
    table.add_column("run", no_wrap=True, min_width=2 * deepest + 9)
    names = ("what", "status", "figures", "experiment", "began (UTC)", "minutes")
    for name in names if width >= 120 else names[:3]:  # in a narrow terminal they would be cut
        table.add_column(name, overflow="fold", justify="right" if name == "minutes" else "left")
    for depth, run in ordered:
        seconds = run.metrics.get("duration_seconds")
        cells = (
            "  " * depth + run.id[:8] + ("*" if run.id in unsent else ""),
            run.name if run.name.startswith(run.stage) else f"{run.stage} {run.name}",
            run.status,
            ", ".join(_figures(run)),
            ", ".join(sorted(run.experiments)),
            f"{run.started:%Y-%m-%d %H:%M}",
            "" if seconds is None else f"{seconds / 60:.1f}",
        )
        # As text: what a run holds is neither markup nor an escape sequence.
        table.add_row(*(Text(printable(cell)) for cell in cells[: len(table.columns)]))
    return table


def _figures(run: Run) -> list[str]:
    """The first figures of a run, and its dtype."""
    shown = [_figure(key, value) for key, value in figures(run).items()]
    if len(shown) > SHOWN:
        shown[SHOWN:] = [f"{len(shown) - SHOWN} more"]
    dtype = run.facts.get("dtype")
    return [*shown, str(dtype)] if dtype and shown else shown


def _figure(key: str, value: float) -> str:
    task, slash, _ = key.rpartition("/")
    return f"{task} {value:.1f}" if slash else f"{key.replace('_', ' ')} {value:g}"
