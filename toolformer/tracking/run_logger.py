"""The run of a stage at work: what it logs is masked and written to the local store at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from toolformer.errors import UserError
from toolformer.storage import below, whole_file, writing
from toolformer.tracking.entities import DIGEST, Dataset, Span, log_datasets, log_model, log_trace, use_model
from toolformer.tracking.provenance import TAG_LIMIT, clean_key, masked, masked_flat
from toolformer.tracking.run import EXPERIMENT, LOGGED_MODEL, now
from toolformer.tracking.store import Store


class ActiveRun:
    """The run of a stage at work; `Tracker.run` makes it."""

    def __init__(self, store: Store, run_id: str, resumed: bool) -> None:
        self.run_id = run_id
        self.resumed = resumed
        """Whether it continues an interrupted run."""
        self._store = store
        self._logged: dict[str, dict[int, float]] = {}
        """By metric, the values that an interrupted run has, by step."""
        self._folder = below(store.root / "artifacts", run_id, "artifacts")

    def metrics(
        self,
        values: Mapping[str, float | int | None],
        step: int = 0,
        model: str = "",
        of: Dataset | None = None,
    ) -> None:
        """Logs metrics at a step in one request; `None` is left out, and what an interrupted run has at this step.

        With the id of a logged model, they are also this model's figures, on the data set `of`.
        """
        keys = {clean_key(key): float(value) for key, value in values.items() if value is not None}
        further = (model, of.name, of.digest[:DIGEST]) if model and of else ()
        rows = [
            (key, value, now(), step, *further)
            for key, value in keys.items()
            if not self._has(key, value, step)
        ]
        self._store.log(self.run_id, metrics=rows)

    def datasets(self, *datasets: Dataset) -> None:
        """Makes data sets inputs of the run."""
        log_datasets(self._store, self.run_id, datasets)

    def uses_model(self, model_id: str) -> None:
        """Makes a logged model an input of the run."""
        use_model(self._store, self.run_id, model_id)

    def trace(self, *spans: Span) -> None:
        """Logs a trace of a completion and its calls."""
        log_trace(self._store, EXPERIMENT, spans, self.run_id)

    def table(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Writes rows with equal keys as a table that MLflow's pages show, `NAME.json`."""
        columns = list(rows[0]) if rows else []
        content = {"columns": columns, "data": [[row[key] for key in columns] for row in rows]}
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.json"
            path.write_text(json.dumps(content, ensure_ascii=False, default=str), encoding="utf-8")
            self.artifact(path)
        self.tag("mlflow.loggedArtifacts", json.dumps([{"path": path.name, "type": "table"}]))

    def _has(self, key: str, value: float, step: int) -> bool:
        """Whether a curve has this step; a figure without steps is replaced by a new value."""
        if not self.resumed:
            return False
        if key not in self._logged:
            self._logged[key] = dict(self._store.history(self.run_id, key))
        return step in self._logged[key] and (step > 0 or self._logged[key][step] == value)

    def tag(self, key: str, value: object) -> None:
        """Sets a tag."""
        self.tags({key: value})

    def tags(self, values: Mapping[str, object]) -> None:
        """Sets tags in one request."""
        if values:
            self._store.log(self.run_id, tags=masked_flat(values, TAG_LIMIT))

    def artifact(self, path: Path | str, folder: str = "") -> None:
        """Copies a file into the run's artifacts, under its own name, below `folder` if given."""
        path = Path(path)
        if not path.is_file():
            raise UserError(f"{path}: there is no such file to log as an artifact")
        target = below(self._folder, *filter(None, folder.split("/")), path.name)
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as temporary:
            shutil.copyfile(path, temporary)

    def model(self, name: str, folder: Path, tags: Mapping[str, str]) -> None:
        """Makes the run's model, which stays in its folder, a logged model and a version of a registered one."""
        tags = {**tags, "model_path": str(folder.resolve())}
        version = self._store.register(self.run_id, name, tags)
        versions = {"mlflow.modelVersions": json.dumps([{"name": name, "version": int(version)}])}
        self.tag(LOGGED_MODEL, log_model(self._store, self.run_id, name, {**tags, **versions}))

    def params(self, config: Mapping[str, Any], logged: Mapping[str, str]) -> None:
        """Logs a configuration, flattened and whole; `logged` are the parameters that the run has."""
        flat = masked_flat(config)
        self._store.log(self.run_id, params={key: flat[key] for key in flat if key not in logged})
        with TemporaryDirectory() as folder:
            path = Path(folder) / "config.yaml"
            text = yaml.safe_dump(masked(config), sort_keys=False, allow_unicode=True)
            path.write_text(text, encoding="utf-8")
            self.artifact(path)
        # MLflow refuses to change a parameter; what may change without changing the work goes into tags.
        self.tags({f"changed.{key}": value for key, value in flat.items() if logged.get(key, value) != value})

    def end(self, status: str, seconds: float) -> None:
        """Sets how the run ended, and the seconds that it took in all."""
        self.metrics({"duration_seconds": seconds})
        self._store.status(self.run_id, status, now())
