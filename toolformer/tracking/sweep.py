"""Runs that hold what others came to: a sweep's parent with its table and best child, an experiment's pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean

from toolformer.tracking.mirror import Follower, Mirror
from toolformer.tracking.run import NOTE, Run, figures, now
from toolformer.tracking.run_logger import ActiveRun
from toolformer.tracking.tracker import Tracker

BEST = "best_child"
"""The tag of a parent run that names the child with the best figures."""
_BETTER: tuple[tuple[str, Callable[..., Run]], ...] = (
    ("/score", max),
    ("/perplexity", min),
    ("best_heldout_perplexity", min),
)


def summarise(tracker: Tracker, parent: str, children: Mapping[str, str]) -> None:
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
    log = ActiveRun(tracker.store, parent, resumed=True)
    log.table("sweep", rows)
    chosen = best(runs)
    tags = {BEST: chosen.run_id, "best_child_swept": children[chosen.run_id]} if chosen else {}
    note = tracker.get(parent).tags.get(NOTE, "").partition("\n\n| run |")[0]
    log.tags({NOTE: f"{note}\n\n{_markdown(rows, chosen)}", **tags})
    _close(tracker, parent)


def attach(tracker: Tracker, name: str, pages: Iterable[Path]) -> None:
    """Attaches an experiment's pages to a run of their own, `report NAME`, in place of earlier ones."""
    if tracker.store.is_absent():  # there are no runs
        return
    run_id = tracker.parent_run(name, f"report {name}", {"experiment": name}, kind="report")
    log = ActiveRun(tracker.store, run_id, resumed=True)
    for page in pages:
        log.artifact(page)
    _close(tracker, run_id)


def _close(tracker: Tracker, run_id: str) -> None:
    """Ends a run that did no work of its own, once more, and copies it to the server."""
    tracker.store.status(run_id, "FINISHED", now())
    if tracker.server:
        Follower(Mirror(tracker.store, tracker.server), run_id).close()


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


def _markdown(rows: Sequence[Mapping[str, object]], chosen: Run | None) -> str:
    lines = [" | ".join(map(str, rows[0])), " | ".join("---" for _ in rows[0])] if rows else []
    for row in rows:
        cells = [f"{value:.2f}" if isinstance(value, float) else str(value or "") for value in row.values()]
        cells[0] = f"**{cells[0]}**" if chosen and chosen.run_id.startswith(cells[0]) else cells[0]
        lines.append(" | ".join(cell.replace("|", "\\|") for cell in cells))
    return "\n".join(f"| {line} |" for line in lines)
