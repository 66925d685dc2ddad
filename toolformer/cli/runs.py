"""`toolformer runs`: lists runs and their lineage, logs them to MLflow again, and removes what is not needed."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer.cli.parser import Parser, configured, console
from toolformer.credentials import printable
from toolformer.errors import UserError, near
from toolformer.progress import size
from toolformer.results import Results, Run
from toolformer.results.run import RUN_STEPS, STATUSES, headline_metrics

if TYPE_CHECKING:
    from rich.table import Table

    from toolformer.jobs.config import Config

_ACTIONS = ("log", "clean")
MOST_FIGURES = 6
"""Figures of a run in the table; `--json` has all."""


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = Parser("runs", "lists runs, each below the run that it was made from, the newest first")
    meaning = (
        "a run's id or its first characters: only its lineage; log RUN...: log runs to MLflow again (without RUN: all); "
        "clean: remove what is not needed, after asking; overrides: name=EXPERIMENT, paths.root=DIR, tracking.uri=URI"
    )
    parser.add_argument("arguments", nargs="*", help=meaning)
    parser.add_argument("--stage", choices=RUN_STEPS, help="only runs of this stage")
    parser.add_argument("--status", choices=STATUSES, help="only runs of this status")
    parser.add_argument("--limit", type=int, default=100, help="how many runs to list, the newest (100)")
    parser.add_argument(
        "--json", action="store_true", help="print JSON of all runs, with all facts and metrics"
    )
    parser.add_argument("--yes", action="store_true", help="clean without asking")
    options = parser.parse_intermixed_args(arguments)
    overrides = [argument for argument in options.arguments if "=" in argument]
    names = [argument for argument in options.arguments if "=" not in argument]
    config = configured("report", overrides)
    results = Results(Path(config.paths.root))
    results.check_root()
    if names[:1] == ["log"]:
        return _log(config, results, names[1:])
    if names[:1] == ["clean"]:
        if names[1:]:
            raise UserError(f"runs clean: it takes no run; leave {names[1]} out")
        return _clean(results, options.yes)
    is_named = any(override.startswith(("name=", "experiment=")) for override in overrides)
    _list(results, names, options, config.name if is_named else None)
    return 0


def _list(results: Results, references: Sequence[str], options: Namespace, experiment: str | None) -> None:
    runs = all_runs = results.all_runs()
    sources = {run.id: run.made_from for run in runs}
    for reference in references:
        runs = _related(runs, sources, reference)
    runs = [
        run
        for run in runs
        if options.stage in (None, run.stage)
        and options.status in (None, run.status)
        and (experiment is None or experiment in run.experiments)
    ]
    if options.json:
        print(json.dumps([_as_json(run) for run in runs], indent=1, default=str))
    elif runs:
        screen, limit = console(), max(options.limit, 1)
        title = f"{_count(len(runs))} in {results.root}"
        screen.print(_table(runs[:limit], sources, title, screen.width))
        if len(runs) > limit:
            print(f"{len(runs) - limit:,} older; --limit {len(runs)} lists all")
    else:
        matching = " that match" if all_runs else ""
        print(printable(f"no runs{matching} in {results.root}"))


def _log(config: Config, results: Results, references: Sequence[str]) -> int:
    """`runs log [RUN...]`: logs runs that ended to MLflow, in the order in which they began."""
    from toolformer.tracking import Store, log_run

    all_runs = results.all_runs()
    runs = [_find_run(all_runs, reference) for reference in references] or all_runs
    store = Store(results.root, config.tracking.uri)
    ended = sorted((run for run in runs if run.status != "RUNNING"), key=lambda run: run.started)
    for run in ended:
        log_run(store, run.folder, config.tracking.traces)
    print(f"{_count(len(ended))} logged to {printable(store.label)}")
    return 0


def _clean(results: Results, is_confirmed: bool) -> int:
    """`runs clean [--yes]`: lists sizes, asks, and removes what is not needed."""
    from toolformer.results.clean import removable, remove, sizes

    for name, count in sizes(results.root).items():
        print(f"{size(count):>9}  {printable(name)}")
    items = removable(results)
    if not items:
        print("nothing to remove")
        return 0
    print("\nnot needed by any finished result:")
    for what in dict.fromkeys(item.what for item in items):
        print(f"{size(sum(item.size for item in items if item.what == what)):>9}  {what}")
    if not is_confirmed:
        if not sys.stdin.isatty():
            print("\nnothing was removed; --yes removes it")
            return 0
        if input("\nremove it? [y/N] ").strip().lower() not in ("y", "yes"):
            return 0
    removed = sum(item.size for item in items if remove(item))
    print(f"{size(removed)} removed")
    return 0


def _find_run(runs: Sequence[Run], reference: str) -> Run:
    """The run whose id begins like this. UserError if there is none, or more than one."""
    matches = [run for run in runs if run.id.startswith(reference)]
    if len(matches) != 1:
        count = f"{len(matches)} runs begin with" if matches else "there is no run"
        raise UserError(f"runs: {count} {reference}{near(reference, _ACTIONS)}; toolformer runs lists them")
    return matches[0]


def _count(runs: int) -> str:
    return f"{runs} run{'' if runs == 1 else 's'}"


def _related(runs: Sequence[Run], sources: Mapping[str, Sequence[str]], reference: str) -> list[Run]:
    """A run, what it was made from, and what was made from it."""
    ids = {_find_run(runs, reference).id}
    ancestors, descendants = ids, set(ids)
    for _ in RUN_STEPS:
        ancestors = ancestors | {source for run_id in ancestors for source in sources.get(run_id, ())}
        descendants |= {run_id for run_id, made_from in sources.items() if descendants & {*made_from}}
    return [run for run in runs if run.id in ancestors | descendants]


def _as_json(run: Run) -> dict[str, Any]:
    return {
        **{"id": run.id, "stage": run.stage, "name": run.name, "status": run.status},
        **{"started": run.started.isoformat(), "ended": run.ended and run.ended.isoformat()},
        **{"experiments": sorted(run.experiments), "made_from": run.made_from, "parent": run.parent or None},
        **{"command": run.command, "folder": str(run.folder), "config": run.config, "facts": run.facts},
        **{"metrics": run.metrics, "tasks": run.tasks},
    }


def _in_order(runs: Sequence[Run], sources: Mapping[str, Sequence[str]]) -> Iterable[tuple[int, Run]]:
    """Each run with its depth, below the first one that it was made from."""
    ids = {run.id for run in runs}
    children: dict[str, list[Run]] = {}
    for run in runs:
        children.setdefault(next((source for source in sources[run.id] if source in ids), ""), []).append(run)

    def descend(run_id: str, depth: int) -> Iterable[tuple[int, Run]]:
        for run in children.get(run_id, ()):
            yield depth, run
            yield from descend(run.id, depth + 1)

    return descend("", 0)


def _table(runs: Sequence[Run], sources: Mapping[str, Sequence[str]], title: str, width: int) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    heading = Text(printable(title), style="table.title")
    table = Table(title=heading, title_justify="left", box=SIMPLE_HEAD)
    ordered = list(_in_order(runs, sources))
    deepest = max((depth for depth, _ in ordered), default=0)
    table.add_column("run", no_wrap=True, min_width=2 * deepest + 8)
    names = ("what", "status", "figures", "seed", "experiment", "began (UTC)", "minutes")
    for name in names if width >= 120 else names[:3]:  # in a narrow terminal they would be cut
        table.add_column(name, overflow="fold", justify="right" if name == "minutes" else "left")
    for depth, run in ordered:
        seconds = run.metrics.get("duration_seconds")
        cells = (
            "  " * depth + run.id[:8],
            _title(run),
            run.status,
            ", ".join(_figure_texts(run)),
            str(run.seed),
            ", ".join(sorted(run.experiments)),
            f"{run.started:%Y-%m-%d %H:%M}",
            "" if seconds is None else f"{seconds / 60:.1f}",
        )
        # As text: what a run holds is neither markup nor an escape sequence.
        table.add_row(*(Text(printable(cell)) for cell in cells[: len(table.columns)]))
    return table


def _title(run: Run) -> str:
    """Title of a run; an annotation's has its thresholds, which distinguish annotations of one text."""
    title = run.name if run.name.startswith(run.stage) else f"{run.stage} {run.name}"
    if run.stage != "generate":
        return title
    by_tool = {tool: f"{value:g}" for tool, value in run.thresholds.items()}
    values = {*by_tool.values()}
    shown = values.pop() if len(values) == 1 else ", ".join(f"{tool} {by_tool[tool]}" for tool in by_tool)
    return f"{title} τ_f={shown}" if shown else title


def _figure_texts(run: Run) -> list[str]:
    """The first figures of a run, and its dtype."""
    texts = [
        f"{key} {value:.1f}" if run.tasks else f"{key.replace('_', ' ')} {value:g}"
        for key, value in headline_metrics(run).items()
    ]
    if len(texts) > MOST_FIGURES:
        texts[MOST_FIGURES:] = [f"{len(texts) - MOST_FIGURES} more"]
    dtype = run.facts.get("dtype")
    return [*texts, str(dtype)] if dtype and texts else texts
