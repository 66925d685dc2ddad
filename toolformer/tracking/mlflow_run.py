"""The MLflow run of a folder, brought up to date with the folder's content; repeating it changes nothing.

It is found by its tag `key`, the run's id. MLflow's flat names of metrics are made here alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from toolformer.errors import UserError, one_line
from toolformer.evaluation.in_words import summary
from toolformer.results.folder import read_json
from toolformer.results.provenance import PROJECT, TAG_LIMIT, clean_key, masked_flat, plain, run_name
from toolformer.results.reading import read_run
from toolformer.results.run import CONFIG, MAIN, METRICS, RESULT, STEP, Run, rows_of
from toolformer.storage import locked, safe_join
from toolformer.tracking.store import NOTE, ORDER, Store
from toolformer.tracking.traces import log_traces

log = logging.getLogger(__name__)

FILES = (STEP, CONFIG, METRICS, RESULT)
"""Files of a run that are artifacts, besides those that its result names."""
_TABLES = ("samples.json",)
"""Files of columns and rows, which MLflow's pages show as a table."""
_TRACES = "traces"
"""The tag of a run whose samples are traces, with the fingerprint of its result."""
_DIGEST = 36
"""Characters that MLflow takes of a data set's digest."""


def log_run(store: Store, folder: Path, traces: bool = True) -> None:
    """Logs a run that ended, or what a store lacks of it. UserError if the store does not take it."""
    with store.errors():
        MlflowRun(store, folder, traces).end()


class MlflowRun:
    """The MLflow run of a folder; it is created or continued with its parameters and tags, as RUNNING."""

    def __init__(self, store: Store, folder: Path, traces: bool = True) -> None:
        self.store, self.folder, self.traces = store, folder, traces
        self._logged_bytes = 0
        """Logged bytes of the file of curves."""
        run = self._read()
        self._row = store.find(run.id) or self._create(run)
        self.run_id = str(self._row.info.run_id)
        logged, config = self._row.data.params, masked_flat(run.config)
        # MLflow refuses to change a parameter; what may change without changing the result becomes a tag.
        changed = {
            f"changed.{key}": config[key] for key in config if logged.get(key, config[key]) != config[key]
        }
        self._log(
            params={key: config[key] for key in config if key not in logged}, tags=changed | self._tags(run)
        )
        store.client.update_run(self.run_id, status="RUNNING")

    def curves(self) -> None:
        """Logs the points of curves that were written since the last call."""
        rows, end = rows_of(self.folder / METRICS, self._logged_bytes)
        self._log(
            metrics=[
                (clean_key(key), value, int(1000 * row["time"]), row["step"])
                for row in rows
                for key, value in row.items()
                if key not in ("step", "time")
            ]
        )
        self._logged_bytes = end

    def end(self) -> None:
        """Logs the rest of a run that ended, its status last."""
        run = self._read()
        self.curves()
        self._log(metrics=self._metrics(run), tags=self._tags(run))
        self._inputs()
        weights = f"{run.facts.get('model')}/"
        for name in dict.fromkeys([*FILES, *run.digests]):
            path = safe_join(self.folder, *name.split("/"))
            if path.is_file() and not name.startswith(weights):
                self.store.put(self._row, path, name.rpartition("/")[0])
        status = "FAILED" if run.status == "DAMAGED" else run.status  # MLflow has no such status
        self.store.client.set_terminated(self.run_id, status, _milliseconds(run))
        if self.traces and run.status == "FINISHED" and run.stage == "evaluate":
            self._traces(run)

    def _traces(self, run: Run) -> None:
        """Logs samples as traces, unless they are there. They are an extra: a store that takes none keeps the run."""
        if self._row.data.tags.get(_TRACES) == run.fingerprint:
            return
        try:
            if log_traces(self.store, run, self.run_id):
                self._log(tags={_TRACES: run.fingerprint})
        except (
            Exception
        ) as error:  # of MLflow, a database or a server, which may be of a release without traces
            log.warning("tracking: no traces of run %s (%s); the run is logged", run.id[:8], one_line(error))

    def _read(self) -> Run:
        if run := read_run(self.folder):
            return run
        raise UserError(f"{self.folder}: there is no run")

    def _create(self, run: Run) -> Any:
        name, started = f"{run_name(run.name)[:200]} {run.id[:8]}", int(1000 * run.started.timestamp())
        return self.store.client.create_run(self.store.experiment, started, self._tags(run), run_name=name)

    def _log(
        self,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        metrics: Iterable[tuple[str, float, int, int]] = (),
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        self.store.client.log_batch(
            self.run_id,
            metrics=[Metric(*row) for row in metrics],
            params=[Param(*item) for item in (params or {}).items()],
            tags=[RunTag(*item) for item in (tags or {}).items()],
        )

    def _tags(self, run: Run) -> dict[str, str]:
        record = read_json(self.folder / STEP)
        parent = _parent(self.store, run.parent) if run.parent else None
        tags = {
            **{key: value for key, value in run.facts.items() if value is not None},
            "stage": run.stage,
            "project": PROJECT,
            "experiment": ", ".join(sorted(run.experiments)),
            "made_from": " ".join(run.made_from),
            "sweep": run.parent,
            ORDER: _in_order(run_name(run.name)),
            "error": record.get("error"),
            "mlflow.source.name": f"toolformer {run.stage}",
            "mlflow.parentRunId": parent,
            NOTE: "\n\n".join(filter(None, (plain(summary(run)), str(record.get("description", ""))))),
        }
        if tables := [{"path": name, "type": "table"} for name in _TABLES if name in run.digests]:
            tags["mlflow.loggedArtifacts"] = json.dumps(tables)
        present = {key: value for key, value in tags.items() if value not in (None, "")}
        return masked_flat(present, TAG_LIMIT) | {"key": run.id}  # no secret, whatever its name

    def _metrics(self, run: Run) -> Iterator[tuple[str, float, int, int]]:
        """The metrics of the result that are not curves; `Score/TASK` and `Perplexity/TASK` repeat the main ones.

        These come first where MLflow compares runs.
        """
        curves = {key for row in rows_of(self.folder / METRICS)[0] for key in row}
        ended = _milliseconds(run) or 0
        for key, value in run.metrics.items():
            if key not in curves:
                yield clean_key(key), value, ended, 0
        for task, metrics in run.tasks.items():
            for name, value in metrics.items():
                yield clean_key(f"{task}/{name}"), value, ended, 0
                if name in MAIN:
                    yield clean_key(f"{name.title()}/{task}"), value, ended, 0

    def _inputs(self) -> None:
        """Makes the data sets of the result inputs of the run."""
        from mlflow.entities import Dataset, DatasetInput, InputTag
        from mlflow.exceptions import MlflowException

        datasets = read_json(self.folder / RESULT).get("datasets", ())
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
        if not inputs:
            return
        try:
            self.store.client.log_inputs(self.run_id, inputs)
        except MlflowException:  # another process logged one of the data sets at the same time
            self.store.client.log_inputs(self.run_id, inputs)


def log_report(store: Store, folder: Path, name: str, headline: str, parent: str = "") -> None:
    """Makes a report a run, with its files as artifacts; one of the same name is replaced. UserError if the store refuses it."""
    with store.errors():
        key = _key(f"report {name}")
        tags = {"stage": "report", "project": PROJECT, "experiment": name, NOTE: plain(headline)}
        if parent:
            tags |= {"sweep": parent, "mlflow.parentRunId": _parent(store, parent)}
        if earlier := store.find(key):
            store.client.delete_run(earlier.info.run_id)
        tags = masked_flat(tags, TAG_LIMIT) | {"key": key}  # no secret, whatever its name
        row = store.client.create_run(store.experiment, tags=tags, run_name=run_name(f"report {name}"))
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                store.put(row, path, path.parent.relative_to(folder).as_posix().removeprefix("."))
        store.client.set_terminated(row.info.run_id)


def _in_order(name: str) -> str:
    """A name that sorts by its numbers: `k=3` before `k=10`. Only what is before a decimal point is filled with zeros."""
    return re.sub(r"(?<![\d.])\d+", lambda number: number[0].zfill(6), name)


def _key(title: str) -> str:
    """A tag by which a run is found that no folder has."""
    title = re.sub(r"['\"\\]", "_", title)
    return title if len(title) <= 200 else f"{title[:180]} {hashlib.sha256(title.encode()).hexdigest()[:16]}"


def _parent(store: Store, sweep: str) -> str:
    """The id of the run that groups the runs of a sweep on MLflow's pages; it is made if there is none."""
    key = _key(sweep)
    with locked(
        store.root / ".mlflow.lock"
    ):  # of several jobs of a sweep that begin at once the first makes it
        row = store.find(key)
        if row is None:
            tags = {"key": key, "stage": "sweep", "project": PROJECT}
            row = store.client.create_run(store.experiment, tags=tags, run_name=run_name(sweep))
            store.client.set_terminated(row.info.run_id)
    return str(row.info.run_id)


def _milliseconds(run: Run) -> int | None:
    """When a run ended, in MLflow's unit."""
    return int(1000 * run.ended.timestamp()) if run.ended else None
