"""Runs read from the local store's SQLite database by plain SQL: importing MLflow takes seconds, a look-up should not."""

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from toolformer.tracking.run import Run, moment, newest_first

_CHOSEN = """
    FROM runs JOIN experiments USING (experiment_id)
    WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'
"""
_WITH_ID = "AND run_uuid = ? "
_WITH_TAG = "AND run_uuid IN (SELECT run_uuid FROM tags WHERE key = ? AND value = ?) "


def read(path: Path, tags: Mapping[str, str], run_id: str = "") -> list[Run]:
    """The runs with these tags, and this id if given, that are not deleted; the last to finish first.

    sqlite3.Error if it is no database of MLflow's.
    """
    chosen = _CHOSEN + (_WITH_ID if run_id else "") + _WITH_TAG * len(tags)
    values = [*([run_id] if run_id else []), *(text for tag in tags.items() for text in tag)]

    def pairs(table: str, condition: str = "") -> dict[str, dict[str, Any]]:
        """Keys with values, by run."""
        found: dict[str, dict[str, Any]] = {}
        query = f"SELECT run_uuid, key, value FROM {table} WHERE run_uuid IN (SELECT run_uuid {chosen}) {condition}"
        for run_id, key, value in connection.execute(query, values):
            found.setdefault(run_id, {})[key] = value
        return found

    # A writer's connection rolls back what a killed process left half written; a reader's could not.
    mode = "rw" if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK) else "ro"
    address = f"{path.absolute().as_uri()}?mode={mode}"
    with closing(sqlite3.connect(address, uri=True, timeout=60)) as connection:
        connection.execute("BEGIN")  # all is read as it is at one moment
        rows = connection.execute(
            f"SELECT run_uuid, runs.name, status, start_time, end_time, artifact_uri {chosen}", values
        ).fetchall()
        tags_of, params, metrics = pairs("tags"), pairs("params"), pairs("latest_metrics", "AND NOT is_nan")
    return newest_first(
        Run(
            run_id=run_id,
            name=name or "",
            status=status,
            started=moment(started),
            tags=tags_of.get(run_id, {}),
            params=params.get(run_id, {}),
            metrics=metrics.get(run_id, {}),
            artifact_uri=artifacts or "",
            ended=moment(ended) if ended else None,
        )
        for run_id, name, status, started, ended, artifacts in rows
    )
