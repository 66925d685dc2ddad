"""The run of a stage at work: what it logs is masked and written to the local store at once."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from toolformer.credentials import without_credentials
from toolformer.errors import UserError
from toolformer.results.provenance import TAG_LIMIT, clean_key, masked, masked_flat
from toolformer.storage import below, sha256, whole_file, write_whole, writing
from toolformer.tracking.entities import DIGEST, Dataset
from toolformer.tracking.run import LOGGED_MODEL, SHA256, now
from toolformer.tracking.store import Store


class ActiveRun:
    """The run of a stage at work; `Tracker.run` makes it."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.store, self.run_id = store, run_id
        self.outcome = "FINISHED"
        """How a run of `Tracker.parent_run` ends."""

    def metrics(
        self,
        values: Mapping[str, float | int | None],
        step: int = 0,
        model: str = "",
        of: Dataset | None = None,
    ) -> None:
        """Logs metrics at a step in one request; `None` is left out.

        With the id of a logged model, they are also this model's figures, on the data set `of`.
        """
        further = (model, of.name, of.digest[:DIGEST]) if model and of else ()
        known = {clean_key(key): float(value) for key, value in values.items() if value is not None}
        rows = [(key, value, now(), step, *further) for key, value in known.items()]
        self.store.log(self.run_id, metrics=rows)

    def tags(self, values: Mapping[str, object]) -> None:
        """Sets tags in one request."""
        if values:
            self.store.log(self.run_id, tags=masked_flat(values, TAG_LIMIT))

    def params(self, config: Mapping[str, Any], logged: Mapping[str, str]) -> None:
        """Logs a configuration, flattened and whole; `logged` are the parameters that the run has."""
        flat = masked_flat(config)
        self.store.log(self.run_id, params={key: flat[key] for key in flat if key not in logged})
        self.text("config.yaml", yaml.safe_dump(masked(config), sort_keys=False, allow_unicode=True))
        # MLflow refuses to change a parameter; what may change without changing the work goes into tags.
        self.tags({f"changed.{key}": value for key, value in flat.items() if logged.get(key, value) != value})

    def artifact(self, path: Path | str, folder: str = "") -> None:
        """Copies a file into the run's artifacts, under its own name, below `folder` if given, and notes its SHA-256."""
        path = Path(path)
        if not path.is_file():
            raise UserError(f"{path}: there is no such file to log as an artifact")
        names = [*filter(None, folder.split("/")), path.name]
        with whole_file(self._target(*names)) as temporary:
            shutil.copyfile(path, temporary)
            digest = sha256(temporary)
        name = "/".join(names)
        self.tags({f"{SHA256}{name}": f"{digest} {name}"})

    def table(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Writes rows with equal keys as a table that MLflow's pages show, `NAME.json`."""
        columns = list(rows[0]) if rows else []
        content = {"columns": columns, "data": [[row[key] for key in columns] for row in rows]}
        self.text(f"{name}.json", json.dumps(content, ensure_ascii=False, default=str))
        self.tags({"mlflow.loggedArtifacts": json.dumps([{"path": f"{name}.json", "type": "table"}])})

    def text(self, name: str, text: str) -> None:
        """Writes an artifact."""
        write_whole(self._target(name), text.encode("utf-8"))

    def _target(self, *names: str) -> Path:
        """Where an artifact goes."""
        target = below(self.store.root / "artifacts", self.run_id, "artifacts", *names)
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def datasets(self, *datasets: Dataset) -> None:
        """Makes data sets inputs of the run."""
        from mlflow.entities import Dataset as Entity
        from mlflow.entities import DatasetInput, InputTag

        inputs = [
            DatasetInput(
                Entity(
                    data.name[:500], data.digest[:DIGEST], "local",
                    json.dumps({"uri": without_credentials(data.source)}),
                    profile=json.dumps({"num_rows": data.rows}),
                ),
                [InputTag("mlflow.data.context", data.context)],
            )
            for data in datasets
        ]  # fmt: skip
        self.store.inputs(self.run_id, inputs)

    def model(self, name: str, folder: Path, tags: Mapping[str, str]) -> None:
        """Makes the run's model, which stays in its folder, a logged model and a version of a registered one."""
        from mlflow.entities import LoggedModelOutput

        tags = {**tags, "model_path": str(folder.resolve())}
        version = self.store.register(self.run_id, name, tags)
        tags["mlflow.modelVersions"] = json.dumps([{"name": name, "version": int(version)}])
        experiment_id = self.store.prepare()
        with self.store.faults() as client:
            model = client.create_logged_model(
                experiment_id, name, self.run_id, tags, model_type="toolformer"
            )
            client.finalize_logged_model(model.model_id, "READY")
            client.log_outputs(self.run_id, [LoggedModelOutput(model.model_id, step=0)])
        self.tags({LOGGED_MODEL: model.model_id})

    def uses_model(self, model_id: str) -> None:
        """Makes a logged model an input of the run."""
        from mlflow.entities import LoggedModelInput

        self.store.inputs(self.run_id, models=[LoggedModelInput(model_id)])

    def end(self, status: str, seconds: float) -> None:
        """Sets how the run ended, and the seconds that it took in all."""
        self.metrics({"duration_seconds": seconds})
        self.store.status(self.run_id, status, now())
