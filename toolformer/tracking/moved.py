"""A root of runs that was moved or copied: its database is told where the artifacts of this project's runs are now.

Artifacts are written and looked for below the root, so that this is for MLflow's own pages: MLflow writes down the whole
path of every run's artifacts, and has no call that changes it. Experiments and runs of others are left alone.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from toolformer.provenance import PROJECT
from toolformer.tracking.run import NOTE

log = logging.getLogger(__name__)

DATABASE = "mlflow.db"
_EXPERIMENTS = f"""
    SELECT experiment_id FROM experiment_tags WHERE key = '{NOTE}' AND value LIKE 'Runs of Toolformer%'
"""
"""Those that `Store` made, by the note that they have from that moment; their artifacts were below a root."""
_RUNS = f"""
    SELECT run_uuid FROM runs WHERE experiment_id IN ({_EXPERIMENTS})
    UNION SELECT run_uuid FROM tags WHERE key = 'project' AND value = '{PROJECT}'
"""


def settle(root: Path) -> None:
    """Changes the paths in a root's own database to those of the root, for whatever of ours is there.

    What is not below the root keeps its path. A database that cannot be changed, or is none, is left as it is.
    """
    try:
        with closing(sqlite3.connect(root / DATABASE, timeout=30.0)) as connection:
            with connection:  # all of it or nothing
                _rename(connection, _Roots(root))
            if connection.total_changes:
                log.info("%s: the database named its artifacts elsewhere, and names them here now", root)
    except sqlite3.Error as error:
        log.debug("%s cannot be told where its artifacts are: %s", root, error)


class _Roots:
    """The root where it is, and the `file:` addresses that it had elsewhere."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.earlier: set[str] = set()
        self._here = {root.as_uri()}

    def had(self, place: str, end: str) -> bool:
        """Whether a place that ends so is below another root than this one, which may have several names."""
        old = place.removesuffix(end)
        if old == place or not old.startswith("file:"):
            return False
        if old not in self.earlier | self._here:
            (self._here if _is_same(_path(old), self.root) else self.earlier).add(old)
        return old in self.earlier


def _rename(connection: sqlite3.Connection, roots: _Roots) -> None:
    here = roots.root.as_uri()
    runs = connection.execute(f"SELECT run_uuid, artifact_uri FROM runs WHERE run_uuid IN ({_RUNS})")
    for run_id, place in runs.fetchall():
        below = f"/artifacts/{run_id}/artifacts"
        if roots.had(place, below) and (roots.root / "artifacts" / run_id).is_dir():
            connection.execute("UPDATE runs SET artifact_uri = ? WHERE run_uuid = ?", (here + below, run_id))
    experiments = connection.execute(
        f"SELECT experiment_id, artifact_location FROM experiments WHERE experiment_id IN ({_EXPERIMENTS})"
    )
    for experiment, place in experiments.fetchall():
        if roots.had(place, "/artifacts") and _was_root(_path(place).parent):
            moved = f"{here}/artifacts"
            connection.execute(
                "UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?", (moved, experiment)
            )
    models = connection.execute(f"SELECT name, version, source FROM model_versions WHERE run_id IN ({_RUNS})")
    for name, version, source in models.fetchall():
        old = next((one for one in roots.earlier if source.startswith(f"{one}/")), None)
        if old is not None and _path(moved := here + source[len(old) :]).is_dir():
            connection.execute(
                "UPDATE model_versions SET source = ?, storage_location = ? WHERE name = ? AND version = ?",
                (moved, moved, name, version),
            )


def _was_root(place: Path) -> bool:
    """Whether a place that experiments name can have been a root: it is gone, or still holds runs."""
    return not place.exists() or (place / DATABASE).is_file()


def _path(address: str) -> Path:
    return Path(unquote(urlsplit(address).path))


def _is_same(place: Path, root: Path) -> bool:
    """Whether the old place is this one by another name (a link, a mount)."""
    try:
        return place.exists() and os.path.samefile(place, root)
    except OSError:
        return False
