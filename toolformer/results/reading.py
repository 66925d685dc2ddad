"""A run read from its folder, which may be another machine's, half written or damaged."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolformer.errors import UserError
from toolformer.results.folder import names_in, read_json, record_digest
from toolformer.results.run import LOCK, RESULT, STATUSES, STEP, Run
from toolformer.step import Step
from toolformer.storage import acquired, lock_file

LAST_WITHOUT_DIGEST = 2
"""The version of the steps in release 0.3, whose `step.json` has no digest."""


def read_run(folder: Path) -> Run | None:
    """The run in a folder; None if there is none, or it is not as a run is written."""
    record, result = read_json(folder / STEP), read_json(folder / RESULT)
    try:
        if result and result.get("digest") != record_digest(result):  # it was changed, or is half written
            result = {}
        names, changed = names_in(folder)
        run = _run(folder, record, result, names)
        without = run.step.version <= LAST_WITHOUT_DIGEST and "digest" not in record
        is_whole = without or record.get("digest") == record_digest(record)
        is_whole &= run.step.key() == folder.name and not changed
        return run if is_whole else replace(run, status="DAMAGED")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _run(folder: Path, record: Mapping[str, Any], result: Mapping[str, Any], names: Iterable[str]) -> Run:
    ended = result.get("ended") or record.get("ended")
    status = str(record.get("status"))
    if status != "RUNNING" or not _is_locked(folder):
        # Without its result a run is not finished, whatever it says.
        unfinished = {"RUNNING": "KILLED", "FINISHED": "DAMAGED"}.get(status, status)
        status = str(result.get("status") or unfinished)
    return Run(
        step=Step.of_json(record),
        folder=folder,
        name=str(record.get("title", "")),
        status=status if status in STATUSES else "FAILED",
        started=_moment(record["started"]),
        ended=_moment(ended) if ended else None,
        config=mapping(record.get("config")),
        metrics=_metrics(result.get("metrics")),
        tasks={str(task): _metrics(values) for task, values in mapping(result.get("tasks")).items()},
        facts={**mapping(record.get("facts")), **mapping(result.get("facts"))},
        command=str(record.get("command", "")),
        experiments=frozenset(names),
        digests={str(name): str(digest) for name, digest in mapping(result.get("digests")).items()},
        questions={
            str(data["name"]): str(data["digest"])
            for data in result.get("datasets", ())
            if data["context"] == "evaluation"
        },
        parent=str(record.get("parent", "")),
        read={str(run_id): str(state) for run_id, state in mapping(result.get("read")).items()},
        reduced={str(name): str(digest) for name, digest in mapping(result.get("reduced")).items()},
    )


def _metrics(values: Any) -> dict[str, float]:
    metrics = {str(name): float(value) for name, value in mapping(values).items()}
    return {name: value for name, value in metrics.items() if not math.isnan(value)}


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def _is_locked(folder: Path) -> bool:
    lock = lock_file(folder / LOCK)
    try:
        if not acquired(lock):
            return True
    except UserError:  # a folder that we may only read
        return False
    lock.release()
    return False
