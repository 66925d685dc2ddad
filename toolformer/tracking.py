"""Everything that knows MLflow: a tracked run for every stage, look-ups between stages.

A store is made ready under a lock between processes before anything is logged, an interrupted stage goes on
in its own run, and every fault of the store ends in one `UserError`. Importing this imports no MLflow.
"""

from __future__ import annotations

import datetime
import functools
import math
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from filelock import FileLock, Timeout

from toolformer.credentials import without_credentials
from toolformer.errors import UserError
from toolformer.provenance import (
    PROJECT,
    TAG_LIMIT,
    clean_key,
    git_commit,
    masked,
    masked_flat,
    provenance,
)

EXPERIMENT = "toolformer"
_BATCH = 100  # parameters or tags in one request
_METRIC_BATCH = 1000
_LOCK_SECONDS = 120.0
# A user's own setting of any of these wins.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # also alembic's; a fault is ours to report, in one line
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # seconds
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}


@dataclass(frozen=True)
class Run:
    """A run as the store knows it."""

    run_id: str
    name: str
    status: str
    """`RUNNING`, `FINISHED`, `FAILED` or `KILLED`."""
    started: datetime.datetime
    """In UTC."""
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    artifact_uri: str

    @property
    def stage(self) -> str:
        return self.tags.get("stage", "")

    @property
    def commit(self) -> str:
        return self.tags.get("git_commit", "unknown")


class ActiveRun:
    """The run of a stage at work; `Tracker.run` makes it."""

    def __init__(self, tracker: Tracker, run_id: str, resumed: bool) -> None:
        self.run_id = run_id
        self.resumed = resumed
        """Whether it goes on with an interrupted run."""
        self._tracker = tracker

    def metrics(self, values: Mapping[str, float | int | None], step: int = 0) -> None:
        """Log figures at a step in one request; `None` is left out."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        rows = [Metric(clean_key(k), float(v), now, step) for k, v in values.items() if v is not None]
        with self._tracker.faults() as client:
            for batch in _batches(rows, _METRIC_BATCH):
                client.log_batch(self.run_id, metrics=batch)

    def tag(self, key: str, value: object) -> None:
        """Set a tag."""
        self.tags({key: value})

    def tags(self, values: Mapping[str, object]) -> None:
        """Set tags in one request."""
        from mlflow.entities import RunTag

        rows = [RunTag(clean_key(k), v) for k, v in masked_flat(values, TAG_LIMIT).items()]
        with self._tracker.faults() as client:
            for batch in _batches(rows, _BATCH):
                client.log_batch(self.run_id, tags=batch)

    def artifact(self, path: Path | str, folder: str | None = None) -> None:
        """Copy a file into the run's artifacts, under its own name, below `folder` if given."""
        if not Path(path).is_file():
            raise UserError(f"{path}: there is no such file to log as an artifact")
        with self._tracker.faults() as client:
            client.log_artifact(self.run_id, str(path), folder)

    def artifact_dir(self, path: Path | str, folder: str | None = None) -> None:
        """Copy a folder's files into the run's artifacts, below `folder` (default: the folder's own name)."""
        if not Path(path).is_dir():
            raise UserError(f"{path}: there is no such folder to log as an artifact")
        with self._tracker.faults() as client:
            client.log_artifacts(self.run_id, str(path), Path(path).name if folder is None else folder)


class Tracker:
    """A tracking store and a folder for what belongs to it (locks, local artifacts, downloads).

    Args:
        uri: any MLflow tracking URI; `None` is SQLite at `<root>/mlflow.db`.
        root: a folder of the user's; made when needed.
    """

    def __init__(self, uri: str | None, root: Path) -> None:
        self.root = Path(root).expanduser().absolute()
        self.uri = uri or f"sqlite:///{(self.root / 'mlflow.db').as_posix()}"
        self._experiments: dict[str, str] = {}

    @property
    def shown_uri(self) -> str:
        """The URI without user name and password."""
        return without_credentials(self.uri)

    @functools.cached_property
    def _client(self) -> Any:
        for key, value in _ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        from mlflow.tracking import MlflowClient

        # Making the client makes a fresh database, which two processes must not do at once.
        with self._lock():
            return MlflowClient(tracking_uri=self.uri)

    @contextmanager
    def faults(self) -> Iterator[Any]:
        """The MLflow client; whatever goes wrong with it becomes a `UserError` of one line."""
        try:
            yield self._client
        except Exception as error:
            if not _is_store_fault(error):
                raise
            raise UserError(f"{self._blame(error)}; what is on disk is kept") from error

    def _blame(self, error: Exception) -> str:
        text = " ".join(str(error).split())
        if re.search(r"[Cc]onnect|timed out|Max retries|NameResolution", text):
            return f"the tracking server {self.shown_uri} does not answer: start it or change tracking.uri"
        text = without_credentials(text)
        return f"the tracking store {self.shown_uri} fails ({text[:300]}): mend it or change tracking.uri"

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Between the processes that share the root; re-entered freely within one `Tracker`."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with self._file_lock.acquire(timeout=_LOCK_SECONDS):
                yield
        except Timeout as error:
            held = self._file_lock.lock_file
            raise UserError(f"{held} is held by another process: end it and try again") from error
        except OSError as error:
            raise UserError(f"{self.root} cannot be written ({error.strerror}): change paths.root") from error

    @functools.cached_property
    def _file_lock(self) -> FileLock:
        return FileLock(self.root / ".mlflow.lock", thread_local=False)

    def prepare(self, experiment: str = EXPERIMENT) -> str:
        """Make the database and the experiment, if they are not there, and return the experiment's id."""
        if experiment in self._experiments:
            return self._experiments[experiment]
        with self._lock(), self.faults() as client:
            found = client.get_experiment_by_name(experiment)
            if found is None:
                found = self._create_experiment(client, experiment)
            if found.lifecycle_stage != "active":
                raise UserError(f"the MLflow experiment {experiment} is deleted: restore it in MLflow")
            self._experiments[experiment] = found.experiment_id
        return self._experiments[experiment]

    def _create_experiment(self, client: Any, experiment: str) -> Any:
        from mlflow.exceptions import MlflowException

        served = self.uri.startswith(("http://", "https://", "databricks"))
        location = None if served else (self.root / "artifacts").as_uri()
        try:
            client.create_experiment(experiment, artifact_location=location)
        except MlflowException as error:
            # The lock does not reach other machines: one of them may have been first.
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        return client.get_experiment_by_name(experiment)

    @contextmanager
    def run(
        self,
        *,
        stage: str,
        name: str,
        fingerprint: str,
        config: Mapping[str, Any],
        tags: Mapping[str, object] | None = None,
        parent: str | None = None,
        experiment: str = EXPERIMENT,
    ) -> Iterator[ActiveRun]:
        """A stage's run: FINISHED at the end, FAILED on an exception, KILLED on Ctrl-C or `sys.exit`.

        A run of the same stage and fingerprint that was interrupted and that nobody works at is gone on with.
        `config` is logged flattened as parameters and whole as `config.yaml`, with secrets masked.

        Raises:
            UserError: the store does not work.
        """
        began = time.monotonic()
        active, claim, before = self._begin(stage, name, fingerprint, config, tags or {}, parent, experiment)
        try:
            yield active
        except BaseException as error:
            killed = isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
            with suppress(UserError):  # the first fault is the one to report
                active.tag("error", f"{type(error).__name__}: {error}")
                self._end(active, "KILLED" if killed else "FAILED", before + time.monotonic() - began)
            raise
        else:
            self._end(active, "FINISHED", before + time.monotonic() - began)
            self._claim_path(active.run_id).unlink(missing_ok=True)
        finally:
            claim.release()

    def _begin(
        self,
        stage: str,
        name: str,
        fingerprint: str,
        config: Mapping[str, Any],
        tags: Mapping[str, object],
        parent: str | None,
        experiment: str,
    ) -> tuple[ActiveRun, FileLock, float]:
        experiment_id = self.prepare(experiment)
        own: dict[str, object] = {"stage": stage, "fingerprint": fingerprint, "project": PROJECT}
        own |= {"experiment": experiment}
        own |= provenance(stage, config, tags) | dict(tags)
        own["mlflow.source.name"] = f"toolformer {stage}"
        if parent:
            own["mlflow.parentRunId"] = parent
        with self._lock(), self.faults() as client:
            old, claim = self._claim_interrupted(experiment_id, stage, fingerprint)
            if old is None:
                made = client.create_run(experiment_id, run_name=name, tags=masked_flat(own, TAG_LIMIT))
                run_id, claim = made.info.run_id, self._claim(made.info.run_id)
            else:
                run_id = old.run_id
                client.update_run(run_id, status="RUNNING")
        assert claim is not None
        active = ActiveRun(self, run_id, resumed=old is not None)
        try:
            if old is not None:
                if old.commit != own["git_commit"]:
                    own["git_commit.earlier"] = old.commit
                active.tags(own)
            self._log_config(active, config, old.params if old else {})
        except BaseException:
            with suppress(UserError), self.faults() as client:
                client.set_terminated(run_id, "FAILED")
            claim.release()
            raise
        return active, claim, old.metrics.get("duration_seconds", 0.0) if old else 0.0

    def _claim(self, run_id: str) -> FileLock:
        lock = FileLock(self._claim_path(run_id), thread_local=False)
        lock.acquire(timeout=0)
        return lock

    def _claim_path(self, run_id: str) -> Path:
        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{run_id}.lock"

    def _claim_interrupted(
        self, experiment_id: str, stage: str, fingerprint: str
    ) -> tuple[Run | None, FileLock | None]:
        """The newest unfinished run of this work that no living process holds, and the lock on it."""
        query = {"stage": stage, "fingerprint": fingerprint}
        for run in self._search([experiment_id], query, "attributes.status != 'FINISHED'"):
            # A killed process leaves its lock file; RUNNING without one is at work on another machine.
            if run.status == "RUNNING" and not self._claim_path(run.run_id).exists():
                continue
            with suppress(Timeout):
                claim = self._claim(run.run_id)
                if self.get(run.run_id).status != "FINISHED":  # it may have ended since the search
                    return run, claim
                claim.release()
        return None, None

    def _log_config(self, active: ActiveRun, config: Mapping[str, Any], logged: Mapping[str, str]) -> None:
        import yaml
        from mlflow.entities import Param

        flat = masked_flat(config)
        rows = [Param(key, value) for key, value in flat.items() if key not in logged]
        with self.faults() as client:
            for batch in _batches(rows, _BATCH):
                client.log_batch(active.run_id, params=batch)
            plain = yaml.safe_dump(masked(config), sort_keys=False, allow_unicode=True)
            client.log_text(active.run_id, plain, "config.yaml")
        # MLflow refuses to change a parameter; what may change without changing the work goes into tags.
        changed = {f"changed.{key}": value for key, value in flat.items() if logged.get(key, value) != value}
        if changed:
            active.tags(changed)

    def _end(self, active: ActiveRun, status: str, seconds: float) -> None:
        active.metrics({"duration_seconds": seconds})
        with self.faults() as client:
            client.set_terminated(active.run_id, status)

    def runs(self, stage: str, **tags: str) -> list[Run]:
        """The FINISHED runs of a stage with these tags, of every experiment, the last to finish first."""
        if self._is_absent():
            return []
        with self.faults() as client:
            experiments = [found.experiment_id for found in client.search_experiments()]
        wanted = {"stage": stage, "project": PROJECT, **tags}
        return self._search(experiments, wanted, "attributes.status = 'FINISHED'")

    def _is_absent(self) -> bool:
        """Whether asking would make an empty database (seconds of migrations) only to find nothing."""
        return self.uri.startswith("sqlite:///") and not Path(self.uri.removeprefix("sqlite:///")).exists()

    def _search(self, experiments: Sequence[str], tags: Mapping[str, str], condition: str) -> list[Run]:
        clauses = [condition, *(f"tags.`{key}` = {_quoted(value)}" for key, value in tags.items())]
        found: list[Run] = []
        page = None
        with self.faults() as client:
            while True:
                rows = client.search_runs(
                    list(experiments),
                    " and ".join(clauses),
                    order_by=["attributes.end_time DESC", "attributes.start_time DESC"],
                    page_token=page,
                )
                found += [_to_run(row) for row in rows]
                page = rows.token
                if not page:
                    return found

    def find_finished(self, stage: str, fingerprint: str) -> Run | None:
        """The FINISHED run that did exactly this work, if there is one."""
        return next(iter(self.runs(stage, fingerprint=fingerprint)), None)

    def latest(self, stage: str, **tags: str) -> Run | None:
        """The FINISHED run of a stage that ended last."""
        return next(iter(self.runs(stage, **tags)), None)

    def get(self, run_id: str) -> Run:
        """A run by its id.

        Raises:
            UserError: there is none.
        """
        from mlflow.exceptions import MlflowException

        if self._is_absent():
            raise UserError(f"there is no run {run_id}: {self.shown_uri} does not exist yet")
        with self.faults() as client:
            try:
                return _to_run(client.get_run(run_id))
            except MlflowException as error:
                if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                    raise
        raise UserError(f"there is no run {run_id} in {self.shown_uri}")

    def resolve(self, stage: str, ref: str, **tags: str) -> Run:
        """The finished run that `ref` names: `latest`, a run id, or the first characters (at least 6) of one.

        Raises:
            UserError: there is none, it is of another stage, or it did not finish.
        """
        wanted = "".join(f" with {key}={value}" for key, value in tags.items())
        if ref == "latest":
            found = self.latest(stage, **tags)
            if found is None:
                raise UserError(f"there is no finished {stage} run{wanted}: run `toolformer {stage}` first")
            return found
        if 6 <= len(ref) < 32:
            matches = [run for run in self.runs(stage, **tags) if run.run_id.startswith(ref)]
            if len(matches) == 1:
                return matches[0]
        try:
            run = self.get(ref)
        except UserError as error:
            raise UserError(f"{error}; name the id of a {stage} run, or say latest") from error
        if run.stage != stage:
            raise UserError(f"run {ref} is a {run.stage or 'parent'} run: name a {stage} run or say latest")
        if run.status != "FINISHED":
            raise UserError(f"{stage} run {ref} is {run.status}: give its `toolformer {stage}` command again")
        return run

    def artifact_path(self, run: Run, name: str) -> Path:
        """An artifact (file or folder) as a local path: the stored one if the store is local, else a copy.

        Raises:
            UserError: the run has no such artifact.
        """
        missing = UserError(f"{run.stage} run {run.run_id} has no {name}: run `toolformer {run.stage}` again")
        parts = urlsplit(run.artifact_uri)
        if parts.scheme in ("", "file"):
            # A root that was moved still holds its artifacts, though the database has the old place.
            folders = (Path(unquote(parts.path)), self.root / "artifacts" / run.run_id / "artifacts")
            for folder in folders:
                if (folder / name).exists():
                    return folder / name
            raise missing
        kept = self.root / "downloads" / run.run_id / name
        if not kept.exists():
            with self._lock(), self.faults() as client:
                partial = self.root / "downloads" / f".{run.run_id}"
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(parents=True)
                listed = client.list_artifacts(run.run_id, os.path.dirname(name) or None)
                if name not in {item.path for item in listed}:
                    raise missing
                fetched = client.download_artifacts(run.run_id, name, str(partial))
                kept.parent.mkdir(parents=True, exist_ok=True)
                if not kept.exists():
                    Path(fetched).rename(kept)
                shutil.rmtree(partial, ignore_errors=True)
        return kept

    def parent_run(self, sweep_key: str, name: str, experiment: str = EXPERIMENT) -> str:
        """The id of the run that holds a sweep's runs together, made by whoever comes first."""
        experiment_id = self.prepare(experiment)
        with self._lock(), self.faults() as client:
            found = self._search([experiment_id], {"sweep": sweep_key}, "attributes.status = 'FINISHED'")
            if found:
                return found[0].run_id
            tags = {"sweep": sweep_key, "project": PROJECT, "git_commit": git_commit()}
            made = client.create_run(experiment_id, run_name=name, tags=tags)
            # It does no work of its own, and none of its children knows which is the last.
            client.set_terminated(made.info.run_id, "FINISHED")
            return str(made.info.run_id)


def _quoted(value: str) -> str:
    return f'"{value}"' if "'" in value else f"'{value}'"


def _batches(rows: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _to_run(row: Any) -> Run:
    return Run(
        run_id=row.info.run_id,
        name=row.info.run_name or "",
        status=row.info.status,
        started=datetime.datetime.fromtimestamp((row.info.start_time or 0) / 1000, datetime.UTC),
        tags=dict(row.data.tags),
        params=dict(row.data.params),
        metrics={key: value for key, value in row.data.metrics.items() if not math.isnan(value)},
        artifact_uri=row.info.artifact_uri or "",
    )


def _is_store_fault(error: Exception) -> bool:
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    return isinstance(error, MlflowException | RequestException | SQLAlchemyError | OSError)
