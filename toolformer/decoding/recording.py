"""Answers of our lm-eval models: the file that keeps them, and what is recorded of each."""

from __future__ import annotations

import glob
import itertools
import json
import logging
import os
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock

from toolformer.decoding.completion import Completion
from toolformer.storage import acquired, lock_file, writing

log = logging.getLogger(__name__)

SYNC_SECONDS = 1.0
"""Time between two syncs of the file."""


class AnswerFile:
    """Answers by key in a JSON Lines file that only grows: an interrupted run resumes from it.

    lm-eval's own `CachingLM` keys an answer by its prompt and settings alone, keeps the scored text alone, and writes only
    when all requests are answered. Here a key covers the model, tools and day, an answer has its calls and seconds, it is
    on disk batch by batch, and one that met a fault is asked again by the next run.

    Every line has a checksum; damaged lines are asked again, and a half-written last line is cut off. Several processes may
    have it open: each writes to a file of its own, the first of NAME.jsonl, NAME-1.jsonl, ... that no other has open, and
    reads all of them. Without a path, answers are kept in memory.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = Path(path).expanduser() if path else None
        """The file that this process writes to."""
        self._rows: dict[str, dict[str, Any]] = {}
        """By key: `key`, `answer`, and `seconds` where they were measured."""
        self._read_to: dict[Path, int] = {}
        """How much of each file was read."""
        self._lock: FileLock | None = None
        self._file: BinaryIO | None = None
        self._synced = 0.0
        if self.path is None:
            return
        self._first = self.path
        for number in itertools.count(1):
            self._lock = lock_file(self.path.with_name(f"{self.path.name}.lock"))
            if acquired(self._lock):
                break
            self.path = self._first.with_stem(f"{self._first.stem}-{number}")
        self.refresh()
        complete = self._read_to.get(self.path, 0)
        with writing(self.path):
            if self.path.exists() and self.path.stat().st_size > complete:
                os.truncate(self.path, complete)

    def __enter__(self) -> AnswerFile:
        return self

    def __exit__(self, *_: object) -> None:
        """Lets other processes write; answers can still be read, but no longer added."""
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None
        if self._lock is not None:
            self._lock.release()

    def refresh(self) -> None:
        """Reads what processes have written since."""
        if self.path is None:
            return
        others = self._first.parent.glob(f"{glob.escape(self._first.stem)}-*{self._first.suffix}")
        for file in [self._first, *sorted(others)]:
            if file.is_file():
                self._read(file)

    def _read(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._read_to.get(path, 0))
            content = file.read()
        complete = content[: content.rfind(b"\n") + 1]
        self._read_to[path] = self._read_to.get(path, 0) + len(complete)
        damaged = 0
        for line in complete.splitlines():
            try:
                row = json.loads(line)
                if row.pop("crc") != _checksum(row):
                    raise ValueError("checksum")
                self._rows[row["key"]] = row
            except (ValueError, KeyError, TypeError, AttributeError):
                damaged += 1
        if damaged:
            log.warning("%s: %d damaged lines; their questions are asked again", path, damaged)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Any:
        return self._rows[key]["answer"]

    def seconds(self, key: str) -> float | None:
        """The seconds that an answer took, in whichever process gave it; None if they were not measured."""
        return self._rows.get(key, {}).get("seconds")

    def add(self, answers: Mapping[str, Any], seconds: float | None = None, final: bool = True) -> None:
        """Keeps answers; `seconds` is what all of them took together.

        They outlive this process when this returns, and a power cut once SYNC_SECONDS have passed or the file is closed.

        Those that are not `final` are kept in memory only: the next run asks for them again. UserError if the file cannot
        be written.
        """
        rows: list[dict[str, Any]] = [{"key": key, "answer": answer} for key, answer in answers.items()]
        if seconds is not None:
            for row in rows:
                row["seconds"] = round(seconds / len(rows), 6)
        self._keep(rows, final)

    def _keep(self, rows: Iterable[dict[str, Any]], final: bool) -> None:
        new = {row["key"]: row for row in rows}
        self._rows |= new
        if self.path is None or not final or not new:
            return
        if self._lock is None or not self._lock.is_locked:
            raise ValueError(f"{self.path} has been closed")
        lines = "".join(json.dumps({**row, "crc": _checksum(row)}) + "\n" for row in new.values())
        with writing(self.path):
            self._file = self._file or self.path.open("ab")
            self._file.write(lines.encode())
            self._file.flush()
        if time.monotonic() - self._synced >= SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Waits until all is on the disk, which takes as long as a step of a small model."""
        if self.path is None or self._file is None:
            return
        with writing(self.path):
            os.fsync(self._file.fileno())
        self._synced = time.monotonic()


def _checksum(row: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(row).encode())


@dataclass(frozen=True)
class Record:
    """The answer to one document of a task."""

    task: str
    doc_id: int
    completion: Completion | None = None
    """Set for generation."""
    log_likelihood: float | None = None
    """Sum in nats, set for scoring."""
    tokens: int | None = 0
    """Tokens written, or tokens scored (whole texts only); None where they were not counted."""
    seconds: float | None = None
    """Its even share of the seconds of its batch; None where they were not measured."""
    gold_nats: float | None = None
    """−log p of the gold answer, where that was requested."""
