"""Journals: runs of a tracking server as files under <root>/journal/, a folder each, written before anything is sent.

`events.jsonl` has an event a line: its kind, and what it says; `artifacts/` has the run's files, and `sent.json` how far
each server has it. What losing power may leave of a file is passed over, and named in a warning. Knows no MLflow.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from filelock import FileLock

from toolformer.tracking.run import Run, moment

log = logging.getLogger(__name__)

BEGIN, PARAMS, TAGS, METRICS, ARTIFACT, MODEL, STATUS = (
    "begin", "params", "tags", "metrics", "artifact", "model", "status",
)  # fmt: skip
"""Kinds of events."""
_TOLD: set[Path] = set()
"""Broken files that were named; every look-up reads them again."""


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

    def begin(self) -> dict[str, Any] | None:
        """How the run began; None without a journal, or where that line of it is broken."""
        first = next(self.events(), None)
        if first and first[1] == BEGIN:
            return dict(first[2])
        if self._events.exists():
            _tell(self._events, "its first line is broken, so that this run is left out")
        return None

    def is_there(self) -> bool:
        return self.begin() is not None

    def append(self, kind: str, content: Any) -> None:
        """Writes an event down; the file of an artifact is copied."""
        if kind == ARTIFACT:
            content = self._copied(Path(content["path"]), content["folder"])
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._events.open("ab+") as file:
            self._mend(file)
            file.write(json.dumps([kind, content]).encode() + b"\n")
            if kind in (BEGIN, STATUS):
                _to_disk(file)

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
        with partial.open("rb+") as file:
            _to_disk(file)
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
                try:
                    kind, content = json.loads(line)
                except (ValueError, TypeError):
                    _tell(self._events, "a broken line is passed over")
                    continue
                yield after, kind, content

    def sent(self, server: str) -> Sent:
        """How far a server has it."""
        return self._all_sent().get(server, Sent())

    def places(self) -> list[str]:
        """The servers that have something of it."""
        return list(self._all_sent())

    def mark(self, server: str, run_id: str, offset: int | None = None) -> None:
        """Writes down how far a server has it; `None` is all."""
        offset = self._events.stat().st_size if offset is None else offset
        known = {key: asdict(one) for key, one in self._all_sent().items()}
        known[server] = {"run_id": run_id, "offset": offset}
        partial = self.folder / ".sent.part"
        with partial.open("w") as file:
            json.dump(known, file, indent=1)
            _to_disk(file)
        partial.replace(self.folder / "sent.json")

    def _all_sent(self) -> dict[str, Sent]:
        path = self.folder / "sent.json"
        try:
            return {server: Sent(**one) for server, one in json.loads(path.read_bytes()).items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError):
            _tell(path, "it is broken, so that all of this run is sent again")
            return {}

    @property
    def refused(self) -> Path:
        """What servers refused, a line each: the server, why, the kind of event, what it says."""
        return self.folder / "refused.jsonl"

    def set_aside(self, server: str, why: str, kind: str, content: Any) -> None:
        """Keeps what a server refuses, so that what comes after it can be sent."""
        with self.refused.open("ab") as file:
            file.write(json.dumps([server, why, kind, content]).encode() + b"\n")

    def is_sent(self, server: str) -> bool:
        """Whether a server has all of it."""
        offset = self.sent(server).offset
        size = self._events.stat().st_size if self._events.exists() else 0
        return offset >= size or next(self.events(offset), None) is None

    def lock(self) -> FileLock:
        """Held while it is being sent."""
        return FileLock(self.folder / ".sending", thread_local=False)

    def history(self, key: str) -> list[tuple[int, float]]:
        """A metric's (step, value) in order of step and time."""
        rows = [row for _, kind, content in self.events() if kind == METRICS for row in content]
        logged = sorted((step, time, value) for name, value, time, step in rows if name == key)
        return [(step, value) for step, _, value in logged]

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
    journals = [Journal(folder) for folder in (root / "journal").glob("*")]
    began = [(begin["started"], one.run_id, one) for one in journals if (begin := one.begin()) is not None]
    return [one for _, _, one in sorted(began, key=lambda row: row[:2])]


def matches(run: Run, tags: Mapping[str, str]) -> bool:
    return all(run.tags.get(key) == value for key, value in tags.items())


def _to_disk(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _tell(path: Path, what: str) -> None:
    if path not in _TOLD:
        _TOLD.add(path)
        log.warning("%s: %s", path, what)
