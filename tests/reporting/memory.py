"""Finished runs in memory, as plain data: what a report reads, without a store."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolformer.errors import UserError
from toolformer.tracking import Run
from toolformer.tracking.provenance import masked_flat

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

NOTE = Run("r" * 32, "a run", "FINISHED", START, {"stage": "evaluate"}, {}, {}, "")


@dataclass
class Open:
    """A run that is being written."""

    run_id: str
    values: dict[str, float] = field(default_factory=dict)
    points: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        self.values.update(values)
        for key, value in values.items():
            self.points.setdefault(key, []).append((step, value))

    def artifact(self, path: Path, folder: str = "") -> None:
        self.files[f"{folder}/{path.name}".lstrip("/")] = path


class Memory:
    """Runs that finished one after another, a minute each."""

    def __init__(self) -> None:
        self.finished: list[Run] = []
        self.written: dict[str, Open] = {}

    @contextmanager
    def run(
        self, *, stage: str, config: Mapping[str, Any] | None = None, tags: Mapping[str, object] | None = None
    ) -> Iterator[Open]:
        """A run, whose parameters are the flat configuration."""
        number = len(self.finished) + 1
        run = Open(f"{number:08x}{'0' * 24}")
        yield run
        own = {"stage": stage, "git_commit": "c0ffee", "experiment": "default"}
        own |= {key: str(value) for key, value in (tags or {}).items()}
        ended = START + datetime.timedelta(minutes=number)
        params = masked_flat(config or {})
        self.written[run.run_id] = run
        self.finished.insert(0, Run(run.run_id, "run", "FINISHED", START, own, params, run.values, "", ended))

    def runs(self, stage: str, **tags: str) -> list[Run]:
        wanted = {"stage": stage, **tags}
        return [run for run in self.finished if wanted.items() <= dict(run.tags).items()]

    def artifact_path(self, run: Run, name: str) -> Path:
        path = self.written[run.run_id].files.get(name)
        if path is None or not path.exists():
            raise UserError(f"run {run.run_id} has no {name}")
        return path

    def history(self, run: Run, key: str) -> list[tuple[int, float]]:
        return self.written[run.run_id].points.get(key, [])
