"""The run of a stage at work: what it logs becomes events, masked, for a store or a journal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from toolformer.errors import UserError
from toolformer.provenance import TAG_LIMIT, clean_key, masked, masked_flat
from toolformer.tracking.journal import ARTIFACT, METRICS, MODEL, PARAMS, STATUS, TAGS
from toolformer.tracking.run import now
from toolformer.tracking.sending import Direct, Sender


class ActiveRun:
    """The run of a stage at work; `Tracker.run` makes it."""

    def __init__(self, run_id: str, resumed: bool, recorder: Direct | Sender) -> None:
        self.run_id = run_id
        self.resumed = resumed
        """Whether it goes on with an interrupted run."""
        self._recorder = recorder

    def metrics(self, values: Mapping[str, float | int | None], step: int = 0) -> None:
        """Log figures at a step in one request; `None` is left out."""
        moment = now()
        rows = [[clean_key(k), float(v), moment, step] for k, v in values.items() if v is not None]
        self._recorder.record(METRICS, rows)

    def tag(self, key: str, value: object) -> None:
        """Set a tag."""
        self.tags({key: value})

    def tags(self, values: Mapping[str, object]) -> None:
        """Set tags in one request."""
        flat = masked_flat(values, TAG_LIMIT)
        self._recorder.record(TAGS, {clean_key(key): value for key, value in flat.items()})

    def artifact(self, path: Path | str, folder: str | None = None) -> None:
        """Copy a file into the run's artifacts, under its own name, below `folder` if given."""
        if not Path(path).is_file():
            raise UserError(f"{path}: there is no such file to log as an artifact")
        self._recorder.record(ARTIFACT, {"path": str(Path(path).absolute()), "folder": folder})

    def artifact_dir(self, path: Path | str, folder: str | None = None) -> None:
        """Copy a folder's files into the run's artifacts, below `folder` (default: the folder's own name)."""
        path = Path(path)
        if not path.is_dir():
            raise UserError(f"{path}: there is no such folder to log as an artifact")
        top = Path(path.name if folder is None else folder)
        for file in sorted(one for one in path.rglob("*") if one.is_file()):
            self.artifact(file, (top / file.relative_to(path).parent).as_posix())

    def model(self, name: str, folder: Path, tags: Mapping[str, str]) -> None:
        """Make a model folder a version of a registered model."""
        self._recorder.record(MODEL, {"name": name, "source": folder.resolve().as_uri(), "tags": dict(tags)})

    def params(self, config: Mapping[str, Any], logged: Mapping[str, str]) -> None:
        """Log a configuration, flattened and whole; `logged` are the parameters that the run has."""
        flat = masked_flat(config)
        new = {key: value for key, value in flat.items() if key not in logged}
        if new:
            self._recorder.record(PARAMS, new)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "config.yaml"
            path.write_text(
                yaml.safe_dump(masked(config), sort_keys=False, allow_unicode=True), encoding="utf-8"
            )
            self.artifact(path)
        # MLflow refuses to change a parameter; what may change without changing the work goes into tags.
        changed = {f"changed.{key}": value for key, value in flat.items() if logged.get(key, value) != value}
        if changed:
            self.tags(changed)

    def status(self, status: str) -> None:
        """Say that it works again (`RUNNING`) or how it ended."""
        self._recorder.record(STATUS, {"status": status, "time": now() if status != "RUNNING" else None})

    def close(self) -> None:
        """Wait until what can be sent is sent."""
        self._recorder.close()
