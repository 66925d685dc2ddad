"""Answers of a model kept on disk while an evaluation runs. Knows neither models nor tasks."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from toolformer.errors import UserError

log = logging.getLogger(__name__)


class AnswerFile:
    """Answers by key in a JSON Lines file that only grows: an interrupted run goes on where it was.

    A line that an interruption left half written is cut off when the file is opened. From then until `close` (or
    the end of the process, however it ends) the file is locked against other writers. Without a path, answers are
    kept in memory.

    Args:
        wait: wait until nobody else has the file open.

    Raises:
        UserError: another process has the file open, and we do not wait.
    """

    def __init__(self, path: str | Path | None, wait: bool = False) -> None:
        self.path = Path(path).expanduser() if path else None
        self._answers: dict[str, Any] = {}
        self._seconds: dict[str, float] = {}
        self._lock: FileLock | None = None
        self.waited = False
        """Whether another process had the file when we came."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.path.with_name(f"{self.path.name}.lock"), thread_local=False)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            if not wait:
                raise UserError(
                    f"{self.path}: another evaluation of the same system is writing its answers here; "
                    "wait until it ends (or end it), then give this command again"
                ) from None
            log.info("evaluate: another process evaluates this system; waiting, its answers are taken")
            self.waited = True
            self._lock.acquire()
        if self.path.exists():
            self._read(self.path)

    def close(self) -> None:
        """Lets other processes write; answers can still be read, and no longer added."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> AnswerFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, path: Path) -> None:
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        unreadable = 0
        for line in whole.splitlines():
            try:
                row = json.loads(line)
                self._answers[row["key"]] = row["answer"]
                if "seconds" in row:
                    self._seconds[row["key"]] = float(row["seconds"])
            except (ValueError, KeyError, TypeError):
                unreadable += 1
        if len(whole) < len(content):
            os.truncate(path, len(whole))
        if unreadable:
            log.warning("%s: %d lines cannot be read; what they held is computed again", path, unreadable)

    def __contains__(self, key: str) -> bool:
        return key in self._answers

    def __getitem__(self, key: str) -> Any:
        return self._answers[key]

    def seconds(self, key: str) -> float | None:
        """What an answer took, in whichever process it was given; None if nobody measured it."""
        return self._seconds.get(key)

    def add(self, answers: Mapping[str, Any], seconds: float | None = None, final: bool = True) -> None:
        """Keeps answers, on the disk when this returns; `seconds` is what all of them took together.

        Those that are not `final` are kept in memory only: whoever opens the file next asks for them again.
        """
        if not answers:
            return
        self._answers.update(answers)
        more = {} if seconds is None else {"seconds": round(seconds / len(answers), 6)}
        if more:
            self._seconds.update(dict.fromkeys(answers, more["seconds"]))
        if self.path is None or not final:
            return
        if self._lock is None or not self._lock.is_locked:
            raise ValueError(f"{self.path} has been closed")
        rows = ({"key": key, "answer": answer, **more} for key, answer in answers.items())
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        with self.path.open("ab") as file:
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())
