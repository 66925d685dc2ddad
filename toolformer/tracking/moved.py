"""A root of runs that was moved or copied: its database is told where its artifacts are now.

Artifacts are written and looked for below the root, so that this is for MLflow's own pages: MLflow writes down the whole
path of every run's artifacts, and has no call that changes it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

log = logging.getLogger(__name__)

DATABASE = "mlflow.db"


def settle(root: Path) -> None:
    """Changes the paths in a root's own database to those of the root, for whatever is there.

    What is not below the root keeps its path. A database that cannot be changed, or is none, is left as it is.
    """
    try:
        with closing(sqlite3.connect(root / DATABASE, timeout=30.0)) as connection:
            for old in _old_roots(connection, root):
                with connection:  # all of it or nothing
                    _rename(connection, old, root)
                log.info("%s: the database named its artifacts at %s, and names them here now", root, old)
    except sqlite3.Error as error:
        log.debug("%s cannot be told where its artifacts are: %s", root, error)


def _old_roots(connection: sqlite3.Connection, root: Path) -> list[str]:
    """As `file:` addresses, where experiments have their artifacts, if that is not this root by any name."""
    found = connection.execute(
        "SELECT DISTINCT artifact_location FROM experiments WHERE artifact_location LIKE 'file:%/artifacts'"
    )
    roots = [location.removesuffix("/artifacts") for (location,) in found.fetchall()]
    return [old for old in roots if old != root.as_uri() and not _is_same(_path(old), root)]


def _rename(connection: sqlite3.Connection, old: str, root: Path) -> None:
    here = root.as_uri()
    connection.execute(
        "UPDATE experiments SET artifact_location = ? WHERE artifact_location = ?",
        (f"{here}/artifacts", f"{old}/artifacts"),
    )
    runs = connection.execute(
        "SELECT run_uuid, artifact_uri FROM runs WHERE substr(artifact_uri, 1, ?) = ?",
        (len(old) + 1, f"{old}/"),
    )
    for run_id, place in runs.fetchall():
        if (root / "artifacts" / run_id).is_dir():
            moved = here + place[len(old) :]
            connection.execute("UPDATE runs SET artifact_uri = ? WHERE run_uuid = ?", (moved, run_id))
    models = connection.execute(
        "SELECT name, version, source FROM model_versions WHERE substr(source, 1, ?) = ?",
        (len(old) + 1, f"{old}/"),
    )
    for name, version, place in models.fetchall():
        moved = here + place[len(old) :]
        if _path(moved).is_dir():
            connection.execute(
                "UPDATE model_versions SET source = ?, storage_location = ? WHERE name = ? AND version = ?",
                (moved, moved, name, version),
            )


def _path(address: str) -> Path:
    return Path(unquote(urlsplit(address).path))


def _is_same(place: Path, root: Path) -> bool:
    """Whether the old place is this one by another name (a link, a mount)."""
    try:
        return place.exists() and os.path.samefile(place, root)
    except OSError:
        return False
