"""What a sweep of evaluations over seeds came to: means with intervals, as metrics of its parent run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from toolformer.errors import UserError
from toolformer.stages import instantiate
from toolformer.stages.config import Config

if TYPE_CHECKING:
    from toolformer.reporting.selection import Kind
    from toolformer.tracking import Run

log = logging.getLogger(__name__)


def sum_up(config: Config, parent: str, outcomes: Sequence[object]) -> None:
    """Logs `<task>/score` (or perplexity), `ci_low`, `ci_high` and `seeds` of the runs that differ only in their seed.

    With several systems or settings in the sweep, these stand before the task: `toolformer/svamp/score`.

    Args:
        outcomes: the runs' ids; anything else is of a job that failed.
    """
    from toolformer.reporting.pairing import over_seeds, read_samples
    from toolformer.reporting.selection import kind_of, measured, seed_of

    tracker = instantiate.tracker(config)
    runs = [tracker.get(run_id) for run_id in outcomes if isinstance(run_id, str) and run_id]
    trained = {run.run_id: run for run in tracker.runs("train")}
    groups: dict[Kind, dict[str, dict[int, Run]]] = {}
    for run in runs:
        tasks = groups.setdefault(kind_of(run, trained), {})
        for task, _ in measured(run):
            tasks.setdefault(task, {})[seed_of(run, trained)] = run
    names, metrics = _names(groups), dict[str, float]()
    for kind, tasks in groups.items():
        for task, seeds in tasks.items():
            if len(seeds) < 2:
                continue
            with suppress(UserError):  # samples that are gone cost their own figures only
                files = [
                    tracker.artifact_path(seeds[seed], f"samples/{task}.parquet") for seed in sorted(seeds)
                ]
                mean = over_seeds([read_samples(file) for file in files], config.seed)
                figure = "perplexity" if task.endswith("perplexity") else "score"
                values = {figure: mean.value, "ci_low": mean.low, "ci_high": mean.high, "seeds": len(seeds)}
                metrics |= {f"{names[kind]}{task}/{name}": value for name, value in values.items()}
    tracker.sum_up(parent, metrics, [run.run_id for run in runs])
    if metrics:
        log.info(
            "evaluate: means over seeds are on the sweep's run %s, which toolformer compare takes too", parent
        )


def _names(kinds: Iterable[Kind]) -> dict[Kind, str]:
    """What tells each kind of run from the others, to stand before a task."""
    known = list(kinds)
    if len(known) == 1:
        return {known[0]: ""}
    names = {kind: kind.baseline or kind.system for kind in known}
    if len({kind.wording for kind in known}) > 1:
        names = {kind: f"{name} {kind.wording}" for kind, name in names.items()}
    for kind, name in list(names.items()):
        if list(names.values()).count(name) > 1:
            names[kind] = f"{name} k={kind.k}"
    several = [name for name in names.values() if list(names.values()).count(name) > 1]
    return {
        kind: f"{name} {kind.replicate[:8] or kind.model}/" if name in several else f"{name}/"
        for kind, name in names.items()
    }
