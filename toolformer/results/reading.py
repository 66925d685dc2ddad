"""A run read from its folder, which may be another machine's, half written or damaged."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolformer.errors import UserError
from toolformer.results.folder import read_json, record_digest
from toolformer.results.run import LOCK, NAMES, RESULT, STATUSES, STEP, Run
from toolformer.step import Step
from toolformer.storage import acquired, lock_file


def read_run(folder: Path) -> Run | None:
    """The run in a folder; None if there is none, or it is not as a run is written."""
    record, result = read_json(folder / STEP), read_json(folder / RESULT)
    try:
        if result and result.get("digest") != record_digest(result):  # it was changed, or is half written
            result = {}
        run = _run(folder, record, result)
        # Before 0.4 `step.json` had no digest.
        is_whole = record.get("digest", digest := record_digest(record)) == digest
        return run if is_whole and run.step.key() == folder.name else replace(run, status="DAMAGED")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _run(folder: Path, record: Mapping[str, Any], result: Mapping[str, Any]) -> Run:
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
        experiments=frozenset(names_of(folder)),
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


def names_of(folder: Path) -> Iterable[str]:
    """The experiments that asked for the run in a folder."""
    try:
        return [entry.read_text(encoding="utf-8") for entry in (folder / NAMES).glob("[0-9a-f]*")]
    except (OSError, ValueError):
        return ()


def _is_locked(folder: Path) -> bool:
    lock = lock_file(folder / LOCK)
    try:
        if not acquired(lock):
            return True
    except UserError:  # a folder that we may only read
        return False
    lock.release()
    return False
