"""Journals: runs of a tracking server as files under <root>/journal/, a folder each, written before anything is sent.

`events.jsonl` has an event a line: its kind, and what it says; `artifacts/` has the run's files, and `sent.json` how far
each server has it. Knows no MLflow.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from toolformer.tracking.run import Run, moment

BEGIN, PARAMS, TAGS, METRICS, ARTIFACT, MODEL, STATUS = (
    "begin", "params", "tags", "metrics", "artifact", "model", "status",
)  # fmt: skip
"""Kinds of events."""


@dataclass(frozen=True)
class Sent:
    """How far a server has a run."""

    run_id: str | None = None
    """Its id there."""
    offset: int = 0
    """Bytes of the events that are sent."""


class Journal:
    """The journal of one run; one process at a time writes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_id = folder.name
        self._events = folder / "events.jsonl"

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    def is_there(self) -> bool:
        return self._events.exists()

    def append(self, kind: str, content: Any) -> None:
        """Writes an event down; the file of an artifact is copied."""
        if kind == ARTIFACT:
            content = self._copied(Path(content["path"]), content["folder"])
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._events.open("ab+") as file:
            self._mend(file)
            file.write(json.dumps([kind, content]).encode() + b"\n")

    def _mend(self, file: Any) -> None:
        """Takes away what a killed process left of a line."""
        end = file.seek(0, os.SEEK_END)
        if not end:
            return
        file.seek(end - 1)
        if file.read(1) != b"\n":
            file.truncate(self._events.read_bytes().rfind(b"\n") + 1)

    def _copied(self, path: Path, folder: str | None) -> dict[str, Any]:
        target = self.artifacts / (folder or "") / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.part")
        shutil.copyfile(path, partial)
        partial.replace(target)
        return {"path": str(target.relative_to(self.artifacts)), "folder": folder}

    def events(self, after: int = 0) -> Iterator[tuple[int, str, Any]]:
        """The events behind an offset: each with the offset of its end, its kind, and what it says."""
        if not self._events.exists():
            return
        with self._events.open("rb") as file:
            file.seek(after)
            for line in file:
                if not line.endswith(b"\n"):  # being written, or left by a killed process
                    return
                after += len(line)
                kind, content = json.loads(line)
                yield after, kind, content

    def sent(self, server: str) -> Sent:
        """How far a server has it."""
        found = self._all_sent().get(server)
        return Sent(**found) if found else Sent()

    def mark(self, server: str, run_id: str, offset: int | None = None) -> None:
        """Writes down how far a server has it; `None` is all."""
        offset = self._events.stat().st_size if offset is None else offset
        known = self._all_sent() | {server: {"run_id": run_id, "offset": offset}}
        partial = self.folder / ".sent.part"
        partial.write_text(json.dumps(known, indent=1))
        partial.replace(self.folder / "sent.json")

    def _all_sent(self) -> dict[str, Any]:
        path = self.folder / "sent.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def is_sent(self, server: str) -> bool:
        """Whether a server has all of it."""
        return next(self.events(self.sent(server).offset), None) is None

    def lock(self) -> FileLock:
        """Held while it is being sent."""
        return FileLock(self.folder / ".sending", thread_local=False)

    def run(self) -> Run:
        """The run as its events tell it."""
        name, status, started, ended = "", "RUNNING", 0, None
        tags: dict[str, str] = {}
        params: dict[str, str] = {}
        metrics: dict[str, tuple[int, int, float]] = {}
        for _, kind, content in self.events():
            if kind == BEGIN:
                name, started = content["name"], content["started"]
                tags |= content["tags"]
            elif kind == PARAMS:
                params |= content
            elif kind == TAGS:
                tags |= content
            elif kind == METRICS:
                for key, value, time, step in content:
                    metrics[key] = max(metrics.get(key, (step, time, value)), (step, time, value))
            elif kind == STATUS:
                status, ended = content["status"], content["time"]
        return Run(
            run_id=self.run_id,
            name=name,
            status=status,
            started=moment(started),
            tags=tags,
            params=params,
            metrics={key: value for key, (_, _, value) in metrics.items() if value == value},
            artifact_uri=self.artifacts.as_uri(),
            ended=moment(ended) if ended else None,
        )


def all_journals(root: Path) -> list[Journal]:
    """Every journal below a root, the first to begin first."""
    found = [Journal(folder) for folder in (root / "journal").glob("*") if (folder / "events.jsonl").exists()]
    return sorted(found, key=lambda journal: journal.run().started)


def matches(run: Run, tags: Mapping[str, str]) -> bool:
    return all(run.tags.get(key) == value for key, value in tags.items())
