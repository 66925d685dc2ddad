"""Cached results of tools: an SQLite file per tool and version, shared by several processes.

A cache costs time at worst: an unusable file or a damaged result is reported once, and counts as absent.
"""

import hashlib
import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from toolformer.tools.base import Result

log = logging.getLogger(__name__)

BUSY_SECONDS = 30.0
"""How long to wait for other writers before giving up on storing results."""

T = TypeVar("T")


def call_key(text: str, context: str) -> bytes:
    """The key of a call: a hash of its input and of the `Tool.depends_on` of its document."""
    return hashlib.sha256(
        json.dumps([text, context], ensure_ascii=False).encode("utf-8", "surrogatepass")
    ).digest()


class ResultCache:
    """The results in a file, which is created at the first look-up. Thread-safe.

    It uses SQLite's rollback journal, not WAL: WAL requires all processes to run on one machine, and machines may share a
    folder of runs.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._mutex = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._warned = False

    def read(self, keys: Iterable[bytes]) -> dict[bytes, Result]:
        """The cached results of these calls."""

        def select(connection: sqlite3.Connection) -> dict[bytes, Result]:
            query = "SELECT text, reason, digest FROM results WHERE key = ?"
            rows = {key: row for key in keys if (row := connection.execute(query, (key,)).fetchone())}
            whole = {key: row[:2] for key, row in rows.items() if row[2] == _digest(key, *row[:2])}
            if len(whole) < len(rows):
                self._warn("%d damaged results are ignored", len(rows) - len(whole))
            return {key: Result(*row) for key, row in whole.items()}

        return self._with_connection(select) or {}

    def write(self, results: Mapping[bytes, Result]) -> None:
        """Stores results of valid Unicode, all or none of them; never faults."""
        rows = [
            (key, result.text, result.reason, _digest(key, result.text, result.reason))
            for key, result in results.items()
            if not result.fault
        ]

        def insert(connection: sqlite3.Connection) -> None:
            with connection:  # commits, or rolls back
                connection.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", rows)

        if rows:
            self._with_connection(insert)

    def _with_connection(self, act: Callable[[sqlite3.Connection], T]) -> T | None:
        with self._mutex:
            try:
                if self._connection is None:
                    self._connection = self._open()
                return act(self._connection)
            except (sqlite3.Error, OSError, ValueError) as error:
                self._warn("results of tools are not cached (%s); delete it if it is damaged", error)
                return None

    def _warn(self, reason: str, *values: object) -> None:
        """Logs one line, once."""
        if not self._warned:
            log.warning(f"%s: {reason}", self.path, *values)
            self._warned = True

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = TRUNCATE")
        table = "results (key BLOB PRIMARY KEY, text TEXT, reason TEXT, digest BLOB NOT NULL) WITHOUT ROWID"
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        return connection


def _digest(key: bytes, text: str | None, reason: str | None) -> bytes:
    """Digest of a stored result, to detect damage: a changed digit would become an answer."""
    return hashlib.sha256(json.dumps([key.hex(), text, reason], default=repr).encode()).digest()[:16]
