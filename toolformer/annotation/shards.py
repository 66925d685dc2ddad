"""Finished shards on disk: a Parquet file with a SHA-256 beside it, and a claim on a shard for as long as it is done.

A shard is whole or does not count: both files are written aside, synced and renamed, the checksum last. A claim is a
lock of the kernel, which ends with its holder however that one ends. Knows nothing of models or configuration.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from toolformer.errors import UserError

CANDIDATES = pa.schema(
    [
        ("doc_id", pa.string()),
        ("tool", pa.string()),
        ("position", pa.int64()),
        ("token_position", pa.int64()),
        ("start_probability", pa.float64()),
        ("sample", pa.int64()),
        ("call", pa.string()),
        ("call_input", pa.string()),
        ("result", pa.string()),
        ("status", pa.string()),
        ("loss_result", pa.float64()),
        ("loss_no_result", pa.float64()),
        ("loss_none", pa.float64()),
        ("gain", pa.float64()),
    ]
)


class BrokenShard(Exception):
    """A shard that is not what was written: named, with what is wrong with it."""


class ShardStore:
    """The shards in a folder, shared by every process that works at them."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def path(self, name: str) -> Path:
        """The shard's Parquet file."""
        return self.folder / f"{name}.parquet"

    def is_there(self, name: str) -> bool:
        """Whether the shard was finished; does not read it."""
        return self._checksum_path(name).is_file() and self.path(name).is_file()

    def read(self, name: str) -> pa.Table:
        """The shard's rows (`CANDIDATES`), with its counts as JSON under the metadata key `funnel`.

        Raises:
            BrokenShard: it is absent, cut short or altered.
        """
        return pq.read_table(pa.BufferReader(self._verified(name)))

    def fault(self, name: str) -> str | None:
        """What is wrong with a shard that was once finished; None if nothing is."""
        try:
            self._verified(name)
        except BrokenShard as error:
            return str(error)
        return None

    def _verified(self, name: str) -> bytes:
        try:
            data = self.path(name).read_bytes()
            wanted = self._checksum_path(name).read_text(encoding="ascii").split(maxsplit=1)[:1]
        except FileNotFoundError as error:
            raise BrokenShard(f"shard {name} is incomplete") from error
        except (OSError, ValueError) as error:
            raise BrokenShard(f"shard {name} cannot be read ({error})") from error
        if [hashlib.sha256(data).hexdigest()] != wanted:
            raise BrokenShard(f"shard {name} does not have its checksum")
        return data

    def write(self, name: str, rows: Sequence[Mapping[str, object]], funnel: Mapping[str, Any]) -> None:
        """Writes a shard; the caller holds its claim.

        Raises:
            UserError: the folder cannot be written.
        """
        metadata = {b"funnel": json.dumps(funnel, sort_keys=True).encode()}
        table = pa.Table.from_pylist(list(rows), schema=CANDIDATES.with_metadata(metadata))
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer)
        data = buffer.getvalue().to_pybytes()
        # Of an earlier, broken shard: without its checksum that one is not taken for whole in between.
        with _writing(self._checksum_path(name)):
            self._checksum_path(name).unlink(missing_ok=True)
        write_whole(self.path(name), data)
        # As sha256sum writes it, so that `sha256sum -c *.sha256` checks a folder by hand.
        checksum = f"{hashlib.sha256(data).hexdigest()}  {self.path(name).name}\n"
        write_whole(self._checksum_path(name), checksum.encode())

    def took(self, name: str, seconds: float) -> None:
        """Notes what a shard took; the caller holds its claim. A file of its own: the shard's bytes do not tell."""
        write_whole(self._seconds_path(name), f"{seconds:.3f}\n".encode())

    def seconds(self, names: Collection[str]) -> float | None:
        """What these shards took together, whoever did them; None if that of one is not known."""
        try:
            return sum(float(self._seconds_path(name).read_text(encoding="ascii")) for name in names)
        except (OSError, ValueError):
            return None

    def begun_with(self, setting: str, proposed: str | None) -> str | None:
        """A setting that whoever works on these shards has alike: `proposed` by the first to ask, its word for all others.

        `None` proposes nothing: what the first had, if there was one.
        """
        path, lock = self.folder / setting, self.lock(setting)
        while not acquired(lock, wait=True):
            pass
        try:
            kept = path.read_text(encoding="ascii").strip() if path.exists() else ""
            if not kept and proposed is not None:
                write_whole(path, f"{proposed}\n".encode())
            return kept or proposed
        finally:
            lock.release()

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        """Yields whether the shard is ours alone until the end of the block.

        Raises:
            UserError: the folder cannot be written, or its file system has no locks.
        """
        lock = self.lock(name)
        if not acquired(lock):
            yield False
            return
        try:
            yield True
            if self.is_there(name):
                self._claim_path(name).unlink(missing_ok=True)
        finally:
            lock.release()

    def is_claimed(self, name: str) -> bool:
        """Whether a living process is at work on the shard."""
        if not self._claim_path(name).exists():
            return False
        lock = self.lock(name)
        if not acquired(lock):
            return True
        lock.release()
        return False

    def lock(self, name: str) -> FileLock:
        """A lock between processes, not yet taken. It never falls back to files that outlive a killed holder."""
        with _writing(self._claim_path(name)):
            self._claim_path(name).parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self._claim_path(name), fallback_to_soft=False, thread_local=False, poll_interval=0.2)

    def _seconds_path(self, name: str) -> Path:
        return self.folder / f"{name}.seconds"

    def _checksum_path(self, name: str) -> Path:
        return self.folder / f"{name}.sha256"

    def _claim_path(self, name: str) -> Path:
        return self.folder / "claims" / f"{name}.lock"


def acquired(lock: FileLock, wait: bool = False) -> bool:
    """Takes a lock, waiting for it or not; returns whether it is taken.

    Raises:
        UserError: the file system refuses.
    """
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        return False
    except OSError as error:
        # Another machine removed the file between our opening and locking it: its shard is done.
        if error.errno in (errno.ESTALE, errno.ENOENT):
            return False
        if error.errno in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            raise UserError(
                f"{lock.lock_file}: this file system has no locks (flock); mount it with them or name another paths.root"
            ) from error
        raise UserError(_cannot_write(Path(lock.lock_file), error)) from error
    return True


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file aside and renames it: even after a power cut it is whole or absent.

    Raises:
        UserError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.part")
    with _writing(path):
        try:
            temporary.write_bytes(data)
            into_place(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def into_place(temporary: Path, path: Path) -> None:
    """Renames a finished file; its bytes are on disk before its name is, and the name before we go on."""
    _sync(temporary)
    temporary.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(_cannot_write(path, error)) from error


def _cannot_write(path: Path, error: OSError) -> str:
    return (
        f"{path.parent}: cannot write {path.name} ({error.strerror or error}); finished shards are kept: make room "
        "or name another paths.root, and give the same command again"
    )
