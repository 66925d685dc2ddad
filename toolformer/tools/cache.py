"""Results of tools kept on disk: an SQLite file that processes share, and claims so that one of them executes a call.

A file holds the results of one version of one tool, by the hash of a call. A result that is damaged on disk, or a file
that cannot be used, counts as absent: a cache costs time at worst. Knows nothing of tools, inputs or documents.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from toolformer.tools.base import Result

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 20
"""A result longer than this is not kept."""
BUSY_SECONDS = 30.0
"""How long to wait for others that write before a result is not kept."""
POLL_SECONDS = 0.02

_Answer = TypeVar("_Answer")


def call_key(text: str, context: str) -> bytes:
    """A name for a call by its input and what of its document the answer depends on; any texts, of any length."""
    digest = hashlib.sha256()
    for part in (text, context):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.digest()


class ResultCache:
    """The results in a file, made when the first one is looked for.

    The journal is SQLite's rollback journal, not WAL: WAL wants all processes on one machine, and a folder of runs may
    be shared by several. A process that is killed while it writes leaves what was there before.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._mutex = threading.Lock()
        self._connection: tuple[int, sqlite3.Connection] | None = None
        self._unusable = False
        self._warned = False

    def read(self, keys: Sequence[bytes]) -> dict[bytes, Result]:
        """The results that are there."""

        def look(connection: sqlite3.Connection) -> dict[bytes, Result]:
            found: dict[bytes, Result] = {}
            connection.execute("BEGIN")
            try:
                for key in keys:
                    row = connection.execute(
                        "SELECT text, reason, digest FROM results WHERE key = ?", (key,)
                    ).fetchone()
                    if row is not None and (result := _result(key, *row)) is not None:
                        found[key] = result
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")
            return found

        return self._with_connection(look, {})

    def write(self, results: Mapping[bytes, Result]) -> None:
        """Keeps results, all or none of them; a fault is never kept."""
        rows = []
        for key, result in results.items():
            text, reason = _bytes(result.text), _bytes(result.reason)
            if not result.fault and len(text or reason or b"") <= MOST_BYTES:
                rows.append((key, text, reason, _digest(key, text, reason)))

        def keep(connection: sqlite3.Connection) -> None:
            with connection:  # commits, or rolls back
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", rows)

        if rows:
            self._with_connection(keep, None)

    @contextmanager
    def claimed(self, keys: Sequence[bytes]) -> Iterator[list[bytes]]:
        """Those of the calls that nobody else is executing, ours alone until the end of the block.

        Waits until there is at least one. A claim is a lock of the kernel: it ends with its holder, however that ends.
        """
        try:
            claims = _claims(self.path.with_suffix(".claims"))
            while not (taken := claims.take(keys)):
                time.sleep(POLL_SECONDS)
        except OSError as error:
            # Without locks a call may be executed twice, which costs time.
            self._warn(error)
            yield list(keys)
            return
        try:
            yield taken
        finally:
            claims.release(taken)

    def _with_connection(self, act: Callable[[sqlite3.Connection], _Answer], otherwise: _Answer) -> _Answer:
        with self._mutex:
            if self._unusable:
                return otherwise
            try:
                return act(self._open())
            except (sqlite3.Error, OSError) as error:
                # Busy or full may pass; a file that is no database stays what it is.
                self._unusable = not isinstance(error, sqlite3.OperationalError)
                self._warn(error)
                return otherwise

    def _open(self) -> sqlite3.Connection:
        process = os.getpid()
        if self._connection is None or self._connection[0] != process:  # a connection must not cross a fork
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode = TRUNCATE")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS results (key BLOB PRIMARY KEY, text BLOB, reason BLOB, digest BLOB)"
                " WITHOUT ROWID"
            )
            self._connection = process, connection
        return self._connection[1]

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            log.warning(
                "%s: results of tools are not kept (%s); delete it if it is damaged", self.path, error
            )
            self._warned = True


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogatepass")


def _digest(key: bytes, text: bytes | None, reason: bytes | None) -> bytes:
    digest = hashlib.blake2b(key, digest_size=8)
    for part in (text, reason):
        digest.update(b"-" if part is None else b"+" + len(part).to_bytes(8, "big") + part)
    return digest.digest()


def _result(key: bytes, text: object, reason: object, digest: object) -> Result | None:
    """The result of a row; None if the row is not what was written."""
    if not isinstance(text, bytes | None) or not isinstance(reason, bytes | None):
        return None
    if digest != _digest(key, text, reason) or (text is None) == (reason is None):
        return None
    if reason is not None:
        return Result(reason=reason.decode("utf-8", "surrogatepass"))
    assert text is not None
    return Result(text.decode("utf-8", "surrogatepass"))


class _Claims:
    """Locks on single bytes of a file, one byte a call: nothing is written, and no file is left for each call."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._held: set[int] = set()
        """By any thread of this process: to the kernel its locks are all one holder's."""
        self._mutex = threading.Lock()

    def take(self, keys: Sequence[bytes]) -> list[bytes]:
        """Locks those that are free."""
        taken: list[bytes] = []
        with self._mutex:
            for key in keys:
                place = _place(key)
                if place in self._held:
                    continue
                try:
                    fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                except OSError as error:
                    if error.errno in (errno.EACCES, errno.EAGAIN):
                        continue
                    for other in taken:
                        self._free(_place(other))
                    raise
                self._held.add(place)
                taken.append(key)
        return taken

    def release(self, keys: Sequence[bytes]) -> None:
        with self._mutex:
            for key in keys:
                self._free(_place(key))

    def _free(self, place: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place)
        self._held.discard(place)


def _place(key: bytes) -> int:
    return int.from_bytes(key[:8], "big") >> 2  # the largest offset of a file is 2**63 - 1


_every: dict[tuple[int, Path], _Claims] = {}
_every_mutex = threading.Lock()


def _claims(path: Path) -> _Claims:
    """The claims of a file, opened once a process: closing any opened file of it would end all its locks."""
    with _every_mutex:
        name = os.getpid(), path.absolute()
        if name not in _every:
            _every[name] = _Claims(path)
        return _every[name]
