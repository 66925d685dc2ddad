"""The folder of a step at work: what it logs is written at once and passed to a listener."""

from __future__ import annotations

import datetime
import gzip
import hashlib
import json
import math
import os
import shutil
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from toolformer.credentials import masked, without_credentials
from toolformer.results.provenance import provenance, run_name
from toolformer.results.run import CONFIG, METRICS, NAMES, RESULT, STEP
from toolformer.step import Step
from toolformer.storage import atomic_file, atomic_write, safe_join, sha256, writing

LARGEST = 2**26
"""Bytes of an unpacked record, at most: a small file may hold gigabytes."""


@dataclass(frozen=True)
class Dataset:
    """Data that a run reads."""

    name: str
    digest: str
    """The same for the same content."""
    context: str
    """Use of the data: annotation, training, heldout or evaluation."""
    source: str
    """The file, folder or data set, as the configuration names it."""
    rows: int


class Listener:
    """Is called with what a run logs. This one ignores it; the one of `tracking` logs it to MLflow."""

    def begin(self, folder: Folder) -> None:
        """The run began, or began again."""

    def metrics(self, folder: Folder, values: Mapping[str, float], step: int) -> None:
        """Metrics at a step."""

    def end(self, folder: Folder, status: str) -> None:
        """The run ended; what it logged is in its folder."""

    def killed(self, path: Path) -> None:
        """The run in this folder was killed by the system, or with its machine, some time ago."""


@dataclass(frozen=True)
class RunInfo:
    """Facts about a run at its beginning, besides its step."""

    name: str
    """A title; one line."""
    config: Mapping[str, Any]
    """The whole configuration."""
    command: str = ""
    experiment: str = ""
    parent: str = ""
    """The sweep or the experiment that it belongs to, as a title."""
    description: str = ""
    """Markdown that MLflow's pages show."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts known from the start: `system`, `data`, ..."""


class Folder:
    """The folder of a step at work; `Results.open` makes it."""

    def __init__(self, path: Path, step: Step, info: RunInfo, listener: Listener) -> None:
        self.path, self.step, self.info, self.listener = path, step, info, listener
        self.facts: dict[str, Any] = {}
        self.tasks: dict[str, dict[str, float]] = {}
        self.latest: dict[str, float] = {}
        """The metrics that the result will hold."""
        self.digests: dict[str, str] = {}
        self.data: list[Dataset] = []
        self.read: Mapping[str, str] = {}
        """The fingerprints of the runs that it reads, by id."""
        self._record: dict[str, Any] = {}
        self._began = time.monotonic()
        self._spent = 0.0
        self._curves = False
        """Whether a point of a curve was written."""

    @property
    def id(self) -> str:
        return self.path.name

    def begin(self) -> None:
        """Writes what the run is and how it began; goes on where an earlier process was."""
        before = read_json(self.path / STEP)
        self._spent = _number(before.get("seconds"))
        self._record = {
            **self.step.as_json(),
            "title": run_name(self.info.name),
            "command": self.info.command,
            "description": self.info.description,
            "parent": self.info.parent,
            "started": before.get("started") or _now(),
            "status": "RUNNING",
            "facts": _plain({**provenance(), **self.info.facts}),
            "config": (config := _plain(self.info.config)),
        }
        self._write(STEP, self._record)
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        atomic_write(self.path / CONFIG, text.encode("utf-8", "replace"))
        for changed in names_in(self.path)[1]:
            changed.unlink(missing_ok=True)
        if self.info.experiment:
            add_name(self.path, self.info.experiment)
        self.listener.begin(self)

    def metrics(self, values: Mapping[str, float | int | None], step: int | None = None) -> None:
        """Logs metrics, with a step as points of a curve; `None` is left out."""
        known = {key: float(value) for key, value in values.items() if value is not None}
        self.latest |= known
        if step is not None:
            row = {"step": step, "time": time.time(), **known}
            with writing(self.path / METRICS), (self.path / METRICS).open("a", encoding="utf-8") as file:
                # The line before may be half of one that a killed process wrote.
                file.write(("" if self._curves else "\n") + json.dumps(row) + "\n")
            self._curves = True
        self.listener.metrics(self, known, step or 0)

    def task(self, task: str, values: Mapping[str, float]) -> None:
        """Metrics of a benchmark."""
        self.tasks[task] = {name: float(value) for name, value in values.items()}

    def add_facts(self, **facts: Any) -> None:
        """Facts of the run: texts and numbers that are not measurements."""
        self.facts |= facts

    def datasets(self, *datasets: Dataset) -> None:
        """Logs the data sets that the run reads, for MLflow's pages."""
        self.data += datasets

    def artifact(self, path: Path, folder: str = "") -> None:
        """Makes a file part of the result, with its SHA-256; one from elsewhere is copied into the run's folder.

        Args:
            folder: below the run's own.
        """
        names = [*filter(None, folder.split("/")), path.name]
        target = safe_join(self.path, *names)
        if path.resolve() != target.resolve():
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(target) as temporary:
                shutil.copyfile(path, temporary)
        self.digests["/".join(names)] = sha256(target)

    def text(self, name: str, text: str) -> None:
        """Writes a file of the result."""
        atomic_write(safe_join(self.path, name), text.encode("utf-8"))
        self.digests[name] = sha256(self.path / name)

    def finish(self) -> None:
        """Writes the result, which makes the run done."""
        result: dict[str, Any] = {
            "ended": _now(),
            "status": "FINISHED",
            "metrics": {**self.latest, "duration_seconds": self._seconds()},
            "tasks": self.tasks,
            "facts": _plain(self.facts),
            "digests": self.digests,
            "read": dict(self.read),
            "datasets": [{**vars(data), "source": masked(data.source)} for data in self.data],
        }
        self._write(RESULT, result)
        self._write(STEP, {**self._record, "status": "FINISHED"})
        self.listener.end(self, "FINISHED")

    def fail(self, status: str, error: BaseException) -> None:
        """Writes how the run ended without a result."""
        reason = without_credentials(f"{type(error).__name__}: {error}")[:5000]
        ended = {"status": status, "error": reason, "ended": _now(), "seconds": self._seconds()}
        self._write(STEP, {**self._record, **ended})
        self.listener.end(self, status)

    def _seconds(self) -> float:
        return self._spent + time.monotonic() - self._began

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        write_record(self.path / name, record)


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Writes `step.json` or `result.json`, with its digest."""
    record = json.loads(json.dumps(record, default=str))
    atomic_write(path, json.dumps({**record, "digest": record_digest(record)}, indent=1).encode())


def record_digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of what a record holds besides this digest: one byte that was changed in it would move or change a result."""
    content = {name: value for name, value in record.items() if name != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def add_name(folder: Path, experiment: str) -> None:
    """Notes that an experiment of this name asked for a run; not in a folder that may only be read."""
    path = folder / NAMES / _name_file(experiment)
    if not path.exists() and os.access(folder, os.W_OK):
        with writing(path):
            path.parent.mkdir(exist_ok=True)
        atomic_write(path, experiment.encode())


def names_in(folder: Path) -> tuple[list[str], list[Path]]:
    """The experiments that asked for a run, and the files of such names that were changed since."""
    try:
        files = {
            path: path.read_bytes().decode(errors="replace") for path in (folder / NAMES).glob("[0-9a-f]*")
        }
    except OSError:
        return [], []
    changed = [path for path, name in files.items() if path.name != _name_file(name)]
    return [name for path, name in files.items() if path not in changed], changed


def _name_file(experiment: str) -> str:
    """By a hash, since a name may hold what a file's must not; it also says whether the text was changed."""
    return hashlib.sha256(experiment.encode()).hexdigest()[:16]


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file, or in NAME.gz if that alone is there, as in published runs; empty if it cannot be read."""
    packed = path.with_name(f"{path.name}.gz")
    try:
        if path.exists() or not packed.exists():
            value = json.loads(path.read_bytes())
        else:
            with gzip.open(packed) as file:
                value = json.loads(file.read(LARGEST))
    except (OSError, ValueError, EOFError, zlib.error, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = masked(values)
    return kept


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
