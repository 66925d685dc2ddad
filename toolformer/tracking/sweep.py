"""Runs that hold what others came to: a sweep's parent with its table and best child, an experiment's pages."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean

from toolformer.tracking.run import Run, figures
from toolformer.tracking.run_logger import ActiveRun
from toolformer.tracking.tracker import Tracker

BEST = "best_child"
"""The tag of a parent run that names the child with the best figures."""
_BETTER: tuple[tuple[str, Callable[..., Run]], ...] = (
    ("/score", max),
    ("/perplexity", min),
    ("best_heldout_perplexity", min),
)


def summarise(tracker: Tracker, log: ActiveRun, children: Mapping[str, str]) -> None:
    """Writes the sweep's table into its parent run, and which child is best; `children` are ids with what was swept."""
    runs = [tracker.get(run_id) for run_id in children]
    columns = list(dict.fromkeys(key for run in runs for key in figures(run)))
    rows = [
        {
            "run": run.run_id[:8],
            "swept": children[run.run_id],
            **{key: figures(run).get(key) for key in columns},
        }
        for run in runs
    ]
    log.table("sweep", rows)
    if chosen := best(runs):
        log.tags({BEST: chosen.run_id, "best_child_swept": children[chosen.run_id]})


def attach(tracker: Tracker, name: str, pages: Iterable[Path]) -> None:
    """Attaches an experiment's pages to a run of their own, `report NAME`, in place of earlier ones."""
    if tracker.store.is_absent():  # there are no runs
        return
    parent = tracker.parent_run(name, f"report {name}", {"experiment": name}, kind="report")
    with tracker.reopened(parent) as log:
        for page in pages:
            log.artifact(page)


def best(runs: Sequence[Run]) -> Run | None:
    """The run with the highest mean score, else with the lowest mean perplexity; None where they measured other things."""
    for ending, choose in _BETTER:
        keys = [{key for key in figures(run) if key.endswith(ending)} for run in runs]
        if any(keys):
            is_fair = len(runs) > 1 and all(own == keys[0] for own in keys)
            return (
                choose(runs, key=lambda run: mean(run.metrics[key] for key in keys[0])) if is_fair else None
            )
    return None
