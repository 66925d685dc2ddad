"""Answers of a model kept on disk while an evaluation runs. Knows neither models nor tasks."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


class AnswerFile:
    """Answers by key in a JSON Lines file that only grows: an interrupted run goes on where it was.

    A line that an interruption left half written is cut off when the file is opened. Only one process may
    write to a file.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = Path(path).expanduser() if path else None
        self._answers: dict[str, Any] = {}
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            self._read(self.path)

    def _read(self, path: Path) -> None:
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        unreadable = 0
        for line in whole.splitlines():
            try:
                row = json.loads(line)
                self._answers[row["key"]] = row["answer"]
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

    def add(self, answers: Mapping[str, Any]) -> None:
        """Keeps answers, on the disk when this returns."""
        self._answers.update(answers)
        if self.path is None or not answers:
            return
        lines = "".join(json.dumps({"key": key, "answer": answer}) + "\n" for key, answer in answers.items())
        with self.path.open("ab") as file:
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())
