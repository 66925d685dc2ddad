"""The MLflow run of a folder, brought up to date with what the folder holds; again is the same as once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from toolformer.errors import UserError, one_line
from toolformer.evaluation.in_words import summary
from toolformer.results.folder import read_json
from toolformer.results.provenance import PROJECT, TAG_LIMIT, clean_key, masked_flat, plain, run_name
from toolformer.results.reading import read
from toolformer.results.run import CONFIG, METRICS, MLFLOW, RESULT, STEP, Run, mlflow_entries, rows_of
from toolformer.storage import atomic_write, safe_join
from toolformer.tracking.store import NOTE, Refused, Store, StoreFault, existing

FILES = (STEP, CONFIG, METRICS, RESULT)
"""Files of a run that are artifacts, besides those that its result names."""
MODELS = {"augmented": "toolformer", "plain": "toolformer-cc"}
"""The registered model of each kind of training data: Toolformer, and the baseline M + CC."""
_TABLES = ("samples.json", "sweep.json")
"""Files of columns and rows, which MLflow's pages show as a table."""
_DIGEST = 36
"""Characters that MLflow takes of a data set's digest."""
_LINK = re.compile(r"(?<=\(#/runs/)[0-9a-f]{16}(?=\))")
_MEASURED = re.compile(r"([^/]+)/(score|perplexity)")


class MlflowRun:
    """The MLflow run of a folder.

    Each method raises `Refused` if the store does not take something, and `StoreFault` if it does not answer.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.run_id = ""
        self._logged_bytes = 0
        """Of the file of curves."""

    def begin(self, replace_deleted: bool = True) -> bool:
        """Creates the run, or continues the one that the folder names; False if that was deleted in MLflow.

        Args:
            replace_deleted: create another one instead.
        """
        run, row = self._read(), self._known()
        self.run_id = str(row.info.run_id) if row else ""
        if row and row.info.lifecycle_stage == "deleted" and not replace_deleted:
            self._note(sent=run.ending)
            return False
        if row is None or row.info.lifecycle_stage == "deleted":
            row = self._create(run)
        self.run_id = str(row.info.run_id)
        self._note()
        logged, flat = row.data.params, masked_flat(run.config)
        # MLflow refuses to change a parameter; what may change without changing the result becomes a tag.
        changed = {f"changed.{key}": flat[key] for key in flat if logged.get(key, flat[key]) != flat[key]}
        self.store.log(self.run_id, params={key: flat[key] for key in flat if key not in logged})
        self.store.log(self.run_id, tags=changed | self._tags(run))
        with self.store.faults() as client:
            client.update_run(self.run_id, status="RUNNING")
        with suppress(Refused):  # `end` reports it
            self.store.put(self.run_id, self.folder / CONFIG)
        return True

    def curves(self) -> None:
        """Logs the points of curves that were written since the last call."""
        rows, end = rows_of(self.folder / METRICS, self._logged_bytes)
        points = [
            (clean_key(key), value, int(1000 * row["time"]), row["step"])
            for row in rows
            for key, value in row.items()
            if key not in ("step", "time")
        ]
        self.store.log(self.run_id, metrics=points)
        self._logged_bytes = end

    def end(self) -> None:
        """Logs the rest, the status last; what the store does not take holds nothing else back."""
        run = self._read()
        refused: list[UserError] = []
        for write in self._writes(run):
            try:
                write()
            except StoreFault:
                raise
            except Exception as error:  # of any library that keeps artifacts
                shown = f"{self.store.shown_uri} does not take it ({one_line(error)})"
                refused.append(error if isinstance(error, UserError) else Refused(shown))
        with self.store.faults() as client:
            client.set_terminated(self.run_id, run.status, _milliseconds(run))
        if refused:
            raise Refused(str(refused[0]))
        self._note(sent=run.ending)

    def _read(self) -> Run:
        if run := read(self.folder):
            return run
        raise Refused(f"{self.folder}: there is no run")

    def _known(self) -> Any:
        """The run in MLflow that the folder names; None if there is none."""
        entry = mlflow_entries(self.folder).get(self.store.address)
        with suppress(Refused), self.store.faults() as client:
            return client.get_run(entry["run_id"]) if entry else None

    def _create(self, run: Run) -> Any:
        name, started = f"{run_name(run.name)[:200]} {run.id[:8]}", int(1000 * run.started.timestamp())
        experiment = self.store.prepare()
        with self.store.faults() as client:
            return client.create_run(experiment, started, self._tags(run), run_name=name)

    def _note(self, **more: str) -> None:
        note_entry(self.folder, self.store, self.run_id, **more)

    def _id_of(self, key: str) -> str:
        """The id in MLflow of another folder of this root; empty if the store has none."""
        if not re.fullmatch(r"[0-9a-f]{16}", key):
            return ""
        folders = (path.parent for path in self.folder.parents[1].glob(f"*/{key}/{MLFLOW}"))
        ids = (mlflow_entries(folder).get(self.store.address) for folder in folders)
        return next((entry["run_id"] for entry in ids if entry), "")

    def _tags(self, run: Run) -> dict[str, str]:
        record = read_json(self.folder / STEP)
        tags = {
            **{key: value for key, value in run.facts.items() if value is not None},
            "stage": run.stage,
            "key": run.id,
            "project": PROJECT,
            "experiment": ", ".join(sorted(run.experiments)),
            "made_from": " ".join(run.made_from),
            "error": record.get("error"),
            "mlflow.source.name": f"toolformer {run.stage}",
            "mlflow.parentRunId": self._id_of(run.parent),
            NOTE: "\n\n".join(
                filter(None, (plain(summary(run)), self._linked(str(record.get("description", "")))))
            ),
        }
        tables = [{"path": name, "type": "table"} for name in _TABLES if name in run.digests]
        if tables:
            tags["mlflow.loggedArtifacts"] = json.dumps(tables)
        return masked_flat({key: value for key, value in tags.items() if value not in (None, "")}, TAG_LIMIT)

    def _linked(self, description: str) -> str:
        """A description whose links lead to MLflow's runs: its pages follow its ids."""
        return _LINK.sub(lambda link: self._id_of(link[0]) or link[0], description)

    def _writes(self, run: Run) -> Iterator[Callable[[], object]]:
        """All that is to be logged at the end of a run but its status."""
        result = read_json(self.folder / RESULT)
        datasets = [data for data in result.get("datasets", ()) if isinstance(data, dict)]
        yield self.curves
        yield partial(self.store.log, self.run_id, tags=self._tags(run))
        yield partial(self._inputs, datasets, model := self._model_of(run))
        yield partial(self.store.log, self.run_id, metrics=self._metrics(run, datasets, model))
        weights = f"{run.facts.get('model')}/"
        for name in dict.fromkeys([*FILES, *run.digests]):
            path = safe_join(self.folder, *name.split("/"))
            if path.is_file() and not name.startswith(weights):
                yield partial(self.store.put, self.run_id, path, name.rpartition("/")[0])
        if run.stage == "train" and run.status == "FINISHED" and run.facts.get("model"):
            yield partial(self._register, run)

    def _metrics(self, run: Run, datasets: Iterable[Mapping[str, Any]], model: str) -> list[tuple[Any, ...]]:
        """The metrics of the result that are no curves; `Score/TASK` and `Perplexity/TASK` repeat the main ones.

        These come first where MLflow compares runs, and belong to the model that was evaluated.
        """
        curves = {key for row in rows_of(self.folder / METRICS)[0] for key in row}
        ended, digests = _milliseconds(run), {str(data.get("name")): data.get("digest") for data in datasets}
        rows: list[tuple[Any, ...]] = []
        for key, value in run.metrics.items():
            if key not in curves:
                rows.append((clean_key(key), value, ended, 0))
            if match := _MEASURED.fullmatch(key):
                name = clean_key(f"{match[2].title()}/{match[1]}")
                digest = str(digests.get(match[1], ""))[:_DIGEST]
                rows.append((name, value, ended, 0, *((model, match[1], digest) if model and digest else ())))
        return rows

    def _inputs(self, datasets: Iterable[Mapping[str, Any]], model: str) -> None:
        """Makes data sets and the evaluated model inputs of the run."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelInput

        inputs = [
            DatasetInput(
                Dataset(
                    str(data["name"])[:500],
                    str(data["digest"])[:_DIGEST],
                    "local",
                    json.dumps({"uri": data["source"]}),
                    profile=json.dumps({"num_rows": data["rows"]}),
                ),
                [InputTag("mlflow.data.context", str(data["context"]))],
            )
            for data in datasets
        ]
        models = [LoggedModelInput(model)] if model else None
        if not inputs and not models:
            return
        with self.store.faults() as client:
            with existing():  # another process may log the same new data set at the same time
                client.log_inputs(self.run_id, inputs, models)
            client.log_inputs(self.run_id, inputs, models)

    def _model_of(self, run: Run) -> str:
        """The id of the logged model that an evaluation used; empty if the store has none."""
        keys: Sequence[str] = run.made_from if run.stage == "evaluate" else ()
        for run_id in filter(None, map(self._id_of, keys)):
            with suppress(Refused), self.store.faults() as client:
                return _logged_model(client.get_run(run_id))
        return ""

    def _register(self, run: Run) -> None:
        """Makes a training's model, which stays in its folder, a logged model and a version of a registered one."""
        from mlflow.entities import LoggedModelOutput

        name = MODELS.get(str(run.facts.get("data")), PROJECT)
        path = safe_join(self.folder, str(run.facts["model"]))
        tags = {"key": run.id, "data": str(run.facts.get("data")), "model_path": str(path.resolve())}
        with self.store.faults() as client:
            row = client.get_run(self.run_id)
            if _logged_model(row):
                return
            experiment = row.info.experiment_id
            model = client.create_logged_model(experiment, name, self.run_id, tags, model_type="toolformer")
            client.finalize_logged_model(model.model_id, "READY")
            with existing():
                client.create_registered_model(name)
            version = client.create_model_version(
                name, f"runs:/{self.run_id}/model", self.run_id, tags,
                await_creation_for=0, model_id=model.model_id,
            )  # fmt: skip
            versions = json.dumps([{"name": name, "version": int(version.version)}])
            client.set_logged_model_tags(model.model_id, {"mlflow.modelVersions": versions})
            client.log_outputs(self.run_id, [LoggedModelOutput(model.model_id, step=0)])


def note_entry(folder: Path, store: Store, run_id: str, **more: str) -> None:
    """Notes a folder's run in a store; with `sent`, the ending until which that holds it."""
    entries = mlflow_entries(folder) | {store.address: {"run_id": run_id, **more}}
    atomic_write(folder / MLFLOW, json.dumps(entries, indent=1).encode())


def _logged_model(row: Any) -> str:
    """The id of a run's logged model."""
    outputs = row.outputs.model_outputs if row.outputs else ()
    return next((str(output.model_id) for output in outputs), "")


def _milliseconds(run: Run) -> int | None:
    """When a run ended, in MLflow's unit."""
    return int(1000 * run.ended.timestamp()) if run.ended else None
