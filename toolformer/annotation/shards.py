"""Shards on disk: the annotations of a few documents each, with calls of one tool.

A finished shard is a Parquet file with a SHA-256 file. Both are written atomically (temporary file, sync, rename), the
checksum last. A claim on a shard is a lock of the operating system, which is released when its process ends in any way.
Independent of models and configuration.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from toolformer.data.parquet import read_table
from toolformer.errors import UserError, one_line
from toolformer.storage import (
    acquired,
    atomic_file,
    atomic_write,
    lock_file,
    locked,
    read_line,
    sha256,
    write_line,
    writing,
)
from toolformer.tools.runtime import Usage

CALL = {"name": pa.string(), "input": pa.string(), "quoted": pa.bool_(), "result": pa.string()}
"""The fields of a call (`ApiCall.as_row`)."""
_LOSSES = ("loss_result", "loss_no_result", "loss_none")
CANDIDATES = pa.schema(
    {
        **dict.fromkeys(("doc_id", "tool"), pa.string()),
        **dict.fromkeys(("position", "token_position"), pa.int64()),
        "start_probability": pa.float64(),
        "sample": pa.int64(),
        "written": pa.string(),
        "call": pa.struct(CALL),
        "status": pa.string(),
        **dict.fromkeys(_LOSSES, pa.float64()),
    }
)
"""A sampled call: `written` is the model's text after the start token, `call` what it was read as, null if that is not a call."""
_RECORD = "record"


class BrokenShard(Exception):
    """A shard that is missing, damaged, or of another version."""


@dataclass(frozen=True)
class Record:
    """How a shard was made."""

    funnel: Mapping[str, Any]
    """Its counts after each step (`Annotation.funnel`)."""
    seconds: float = 0.0
    tokens: int = 0
    """Tokens of its documents' texts."""
    used: Usage = field(default_factory=Usage)
    """Counts of the calls that it made."""
    commit: str = ""
    """Commit of the code that made it."""
    dtype: str = ""
    """In which the model computed it; workers on other machines may have chosen another one."""


class ShardStore:
    """The shards in a folder, shared by all processes that annotate them."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    @property
    def floor(self) -> float | None:
        """The lowest τ_f in nats that the shards' losses serve; None before there are shards.

        UserError if the record is damaged or gone: of shards that are there, nothing else tells.
        """
        path = self.folder / "floor"
        with suppress(ValueError):
            if recorded := read_line(path):
                return float(recorded)
        if not any(self.folder.glob("*.sha256")):
            return None
        raise UserError(
            f"{path} is damaged or missing; restore it, or remove {self.folder} and run the same command to annotate again"
        )

    def require_floor(self, floor: float) -> None:
        """Records the floor of new shards. UserError if that of the present ones is higher."""
        with locked(self._claim_path("floor")):
            if self.floor is None:
                write_line(self.folder / "floor", repr(floor))
        recorded = self.floor
        if recorded is not None and recorded > floor:
            raise UserError(
                f"filter_threshold: {floor:g} is below score.floor={recorded:g} of {self.folder}; set score.floor={floor:g}, "
                "which scores the texts again"
            )

    def path(self, name: str) -> Path:
        """The shard's Parquet file."""
        return self.folder / f"{name}.parquet"

    def has(self, name: str) -> bool:
        """Whether the shard is finished; does not read it."""
        return self._checksum_path(name).is_file() and self.path(name).is_file()

    def names(self) -> set[str]:
        """The names of the finished shards."""
        try:
            files = {entry.name for entry in os.scandir(self.folder)}
        except (FileNotFoundError, NotADirectoryError):
            return set()
        return {
            name
            for file in files
            if (name := file.removesuffix(".sha256")) != file and f"{name}.parquet" in files
        }

    def record(self, name: str) -> Record:
        """How a finished shard was made; does not read its rows."""
        return _record(pq.read_metadata(self.path(name)).metadata)

    def read(self, name: str) -> tuple[pa.Table, Record]:
        """The shard's rows (`CANDIDATES`), and how it was made.

        BrokenShard if it is missing, truncated or altered, or from another version.
        """
        try:
            data = self.path(name).read_bytes()
            checksum = self._checksum_path(name).read_bytes()
        except OSError as error:
            raise BrokenShard(f"shard {name} cannot be read ({error})") from error
        if not checksum.startswith(hashlib.sha256(data).hexdigest().encode()):
            raise BrokenShard(f"shard {name} does not have its checksum")
        try:
            table = read_table(pa.BufferReader(data))
        except (pa.ArrowException, OSError) as error:
            raise BrokenShard(f"shard {name} cannot be read ({one_line(error)})") from error
        if table.schema != CANDIDATES:
            raise BrokenShard(f"shard {name} was written by another version")
        return table.replace_schema_metadata(None), _record(table.schema.metadata or {})

    def write(self, name: str, rows: Sequence[Mapping[str, object]], record: Record) -> None:
        """Writes a shard; the caller holds its claim.

        Args:
            rows: rows of `CANDIDATES`, grouped by document.
        """
        schema = CANDIDATES.with_metadata({_RECORD: json.dumps(asdict(record), sort_keys=True)})
        self.discard(name)  # a half-replaced shard must not count as finished
        with atomic_file(self.path(name)) as temporary:
            pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), temporary)
            digest = sha256(temporary)
        # In the format of sha256sum, so that `sha256sum -c *.sha256` checks a folder.
        checksum = f"{digest}  {self.path(name).name}\n"
        atomic_write(self._checksum_path(name), checksum.encode())

    def discard(self, name: str) -> None:
        """Marks a shard as not done."""
        with writing(self._checksum_path(name)):
            self._checksum_path(name).unlink(missing_ok=True)

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        """Yields whether this process has the shard to itself until the end of the block."""
        lock = self.lock(name)
        if not acquired(lock):
            yield False
            return
        try:
            yield True
            if self.has(name):
                self._claim_path(name).unlink(missing_ok=True)
        finally:
            lock.release()

    def lock(self, name: str) -> FileLock:
        """A lock between processes, not yet acquired."""
        return lock_file(self._claim_path(name))

    def _checksum_path(self, name: str) -> Path:
        return self.folder / f"{name}.sha256"

    def _claim_path(self, name: str) -> Path:
        return self.folder / "claims" / f"{name}.lock"


def _record(metadata: Mapping[bytes, bytes]) -> Record:
    values = json.loads(metadata[_RECORD.encode()])
    return Record(**{**values, "used": Usage(**values["used"])})
