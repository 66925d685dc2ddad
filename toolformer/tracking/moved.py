"""A root of runs that was moved or copied: its database is told where its artifacts are now.

MLflow writes down the whole path of every artifact, and has no call that changes it; without this, new runs of a moved
root would leave their artifacts at the old place.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

log = logging.getLogger(__name__)

_NAMED = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""Columns that hold paths below the root, as `file:` addresses."""
_FEW = 50  # runs whose artifacts are looked for


def settle(database: Path, root: Path) -> None:
    """Changes the paths in a root's own database where its artifacts are here, and not where it says.

    A database that cannot be changed is left as it is, with a warning.
    """
    here = root.as_uri()
    try:
        with closing(sqlite3.connect(database, timeout=30.0)) as connection:
            found = connection.execute(
                "SELECT DISTINCT artifact_location FROM experiments WHERE artifact_location LIKE 'file:%/artifacts'"
            ).fetchall()
            for (location,) in found:
                old = location.removesuffix("/artifacts")
                if old != here and not _is_same(old, root) and _holds_its_runs(connection, location, root):
                    _rename(connection, old, here)
                    log.info("%s: the database named its artifacts at %s, and names them here now", root, old)
    except sqlite3.Error as error:
        log.warning(
            "%s cannot be told where its artifacts are (%s): they may be at its old place", database, error
        )


def _is_same(old: str, root: Path) -> bool:
    """Whether the old place is this one by another name (a link, a mount)."""
    place = Path(unquote(urlsplit(old).path))
    try:
        return place.exists() and os.path.samefile(place, root)
    except OSError:
        return False


def _holds_its_runs(connection: sqlite3.Connection, location: str, root: Path) -> bool:
    """Whether artifacts that the database has elsewhere stand below this root."""
    runs = connection.execute(
        "SELECT run_uuid FROM runs WHERE substr(artifact_uri, 1, ?) = ? ORDER BY start_time LIMIT ?",
        (len(location) + 1, f"{location}/", _FEW),
    )
    return any((root / "artifacts" / run_id).is_dir() for (run_id,) in runs.fetchall())


def _rename(connection: sqlite3.Connection, old: str, here: str) -> None:
    with connection:  # all of them or none
        for table, column in _NAMED:
            connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                (here, len(old) + 1, len(old) + 1, f"{old}/"),
            )
