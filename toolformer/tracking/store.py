"""An MLflow tracking store: made ready once, written to and read, every fault of it a `StoreFault` of one line."""

from __future__ import annotations

import functools
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from filelock import FileLock, Timeout

from toolformer.credentials import without_credentials
from toolformer.errors import UserError
from toolformer.tracking import journal
from toolformer.tracking.moved import DATABASE, settle
from toolformer.tracking.run import LOCAL_ID, NOTE, Run, moment

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
_DESCRIPTION = """\
Runs of Toolformer's stages: `generate` annotates a corpus, `train` finetunes on it, `evaluate` runs benchmarks.

- Filter by `tags.stage = "evaluate"`, `tags.system = "toolformer"` or `tags.experiment = "table4"`.
- To compare systems choose their `evaluate` runs, then *Compare*: `<benchmark>/score` has `ci_low`, `ci_high` and `n` beside it.
- A run's description says its command and what it was made from; `toolformer runs` shows the same in a terminal.
"""
_NO_SUCH_RUN = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


class StoreFault(UserError):
    """The store does not answer, or fails."""


class NotFound(UserError):
    """The store answers, and has no such run."""


class Refused(UserError):
    """The store answers, and does not take what it is given: asking again would change nothing."""


class Store:
    """A tracking store, and the folder for what belongs to it (locks, local artifacts, downloads)."""

    def __init__(self, uri: str | None, root: Path) -> None:
        self.root = Path(root).expanduser().absolute()
        self.uri = uri or f"sqlite:///{(self.root / DATABASE).as_posix()}"
        self._experiments: dict[str, str] = {}

    @property
    def shown_uri(self) -> str:
        """The URI without user name and password."""
        return without_credentials(self.uri)

    @property
    def is_local(self) -> bool:
        """Whether it is a file on this machine, and no server."""
        return not self.is_served and (self.uri.startswith(("sqlite:", "file:")) or "://" not in self.uri)

    @property
    def is_served(self) -> bool:
        """Whether a server stands before the store, which then knows no folder of this machine."""
        return self.uri.startswith(("http://", "https://", "databricks"))

    @property
    def is_own(self) -> bool:
        """Whether it is the database that lies in the root."""
        return self.uri == f"sqlite:///{(self.root / DATABASE).as_posix()}"

    def is_absent(self) -> bool:
        """Whether asking would make an empty database (seconds of migrations) only to find nothing."""
        return self.uri.startswith("sqlite:///") and not Path(self.uri.removeprefix("sqlite:///")).exists()

    @functools.cached_property
    def _client(self) -> Any:
        for key, value in _ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        from mlflow.tracking import MlflowClient

        with self._making():
            if self.is_own and not self.is_absent():
                settle(self.root)
            return MlflowClient(tracking_uri=self.uri)

    @contextmanager
    def faults(self) -> Iterator[Any]:
        """The MLflow client; whatever goes wrong with it becomes a `StoreFault`, or `Refused`, of one line."""
        try:
            yield self._client
        except Exception as error:
            if not _is_store_fault(error):
                raise
            if _is_refusal(error):
                raise Refused(
                    f"the tracking store {self.shown_uri} refuses it ({_one_line(error)})"
                ) from error
            raise StoreFault(f"{self._blame(error)}; what is on disk is kept") from error

    def _blame(self, error: Exception) -> str:
        if re.search(r"[Cc]onnect|timed out|Max retries|NameResolution", str(error)):
            return f"the tracking server {self.shown_uri} does not answer: start it or change tracking.uri"
        return (
            f"the tracking store {self.shown_uri} fails ({_one_line(error)}): mend it or change tracking.uri"
        )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Between the processes that share the root; re-entered freely within one `Store`."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with self._file_lock.acquire(timeout=_LOCK_SECONDS):
                yield
        except Timeout as error:
            held = self._file_lock.lock_file
            raise UserError(f"{held} is held by another process: end it and try again") from error
        except OSError as error:
            raise UserError(f"{self.root} cannot be written ({error.strerror}): change paths.root") from error

    @contextmanager
    def _making(self) -> Iterator[None]:
        """Held where a database may be made, which two processes must not do at once. A server makes its own, and may
        hang: nobody waits for those who wait for it."""
        with nullcontext() if self.is_served else self.lock():
            yield

    @functools.cached_property
    def _file_lock(self) -> FileLock:
        return FileLock(self.root / ".mlflow.lock", thread_local=False)

    def prepare(self, experiment: str) -> str:
        """Makes the database and the experiment, if they are not there, and returns the experiment's id."""
        if experiment in self._experiments:
            return self._experiments[experiment]
        with self._making(), self.faults() as client:
            found = client.get_experiment_by_name(experiment)
            if found is None:
                found = self._create_experiment(client, experiment)
            if found.lifecycle_stage != "active":
                raise UserError(f"the MLflow experiment {experiment} is deleted: restore it in MLflow")
            self._experiments[experiment] = found.experiment_id
        return self._experiments[experiment]

    def _create_experiment(self, client: Any, experiment: str) -> Any:
        from mlflow.exceptions import MlflowException

        location = None if self.is_served else (self.root / "artifacts").as_uri()
        try:
            client.create_experiment(experiment, artifact_location=location, tags={NOTE: _DESCRIPTION})
        except MlflowException as error:
            # The lock does not reach other machines: one of them may have been first.
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        return client.get_experiment_by_name(experiment)

    def create(self, experiment: str, name: str, tags: Mapping[str, str], started: int | None = None) -> str:
        """Begins a run (at `started`, in milliseconds) and returns its id."""
        experiment_id = self.prepare(experiment)
        with self.faults() as client:
            made = client.create_run(experiment_id, start_time=started, run_name=name, tags=dict(tags))
            return str(made.info.run_id)

    def apply(self, run_id: str, kind: str, content: Any, artifacts: Path = Path()) -> None:
        """Writes an event of a run (`toolformer.tracking.journal`); writing it twice changes nothing.

        Args:
            artifacts: the folder that files are named from.
        """
        from mlflow.entities import Metric, Param, RunTag

        with self.faults() as client:
            if kind == journal.PARAMS:
                for batch in _batches([Param(*item) for item in content.items()], _BATCH):
                    client.log_batch(run_id, params=batch)
            elif kind == journal.TAGS:
                for batch in _batches([RunTag(*item) for item in content.items()], _BATCH):
                    client.log_batch(run_id, tags=batch)
            elif kind == journal.METRICS:
                for batch in _batches([Metric(*row) for row in content], _METRIC_BATCH):
                    client.log_batch(run_id, metrics=batch)
            elif kind == journal.ARTIFACT:
                if not (artifacts / content["path"]).is_file():
                    raise Refused(f"{artifacts / content['path']} is gone")
                self._keep(client, run_id, artifacts / content["path"], content["folder"])
            elif kind == journal.MODEL:
                self._register(client, run_id, **content)
            elif content["status"] == "RUNNING":
                client.update_run(run_id, status="RUNNING")
            else:
                client.set_terminated(run_id, content["status"], content["time"])

    def _keep(self, client: Any, run_id: str, file: Path, folder: str | None) -> None:
        """A copy of a file among a run's artifacts; of a root's own database always below the root, where it is looked for,
        whatever place the database has for it (another name of the root, or one that it had before)."""
        if not self.is_own:
            client.log_artifact(run_id, str(file), folder)
            return
        place = self.root / "artifacts" / run_id / "artifacts" / (folder or "")
        place.mkdir(parents=True, exist_ok=True)
        partial = place / f".{file.name}.partial"
        shutil.copyfile(file, partial)
        partial.replace(place / file.name)

    def _register(self, client: Any, run_id: str, name: str, source: str, tags: dict[str, str]) -> None:
        """A version of a registered model for this run, once.

        A server takes no folder of ours as the place of a model, so that there the version points into its run, and its
        tag `model_path` says where the model is.
        """
        from mlflow.exceptions import MlflowException

        if self.is_served:
            tags = tags | {"model_path": str(local_path(source))}
            source = f"runs:/{run_id}/model"
        if not client.search_registered_models(filter_string=f"name = '{name}'"):
            try:
                client.create_registered_model(name)
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another process was first
                    raise
        versions = [one for one in client.search_model_versions(f"name = '{name}'") if one.run_id == run_id]
        if not versions:
            versions = [
                client.create_model_version(
                    name, source=source, run_id=run_id, tags=tags, await_creation_for=0
                )
            ]
        client.set_tag(run_id, "registered_model", f"models:/{name}/{versions[0].version}")

    def search(self, tags: Mapping[str, str], condition: str | None = None) -> list[Run]:
        """The runs of every experiment with these tags, the last to finish first."""
        if self.is_absent():
            return []
        clauses = [f"tags.`{key}` = {_quoted(value)}" for key, value in tags.items()]
        found: list[Run] = []
        page = None
        with self.faults() as client:
            experiments = [one.experiment_id for one in client.search_experiments()]
            while True:
                rows = client.search_runs(
                    experiments,
                    " and ".join([*([condition] if condition else []), *clauses]),
                    order_by=["attributes.end_time DESC", "attributes.start_time DESC"],
                    page_token=page,
                )
                found += [_to_run(row) for row in rows]
                page = rows.token
                if not page:
                    return found

    def get(self, run_id: str) -> Run | None:
        """A run by its id, the store's or the one that it began with; None also for one that was deleted in MLflow."""
        from mlflow.exceptions import MlflowException

        if self.is_absent():
            return None
        with self.faults() as client:
            try:
                row = client.get_run(run_id)
                return None if row.info.lifecycle_stage == "deleted" else _to_run(row)
            except MlflowException as error:
                if error.error_code not in _NO_SUCH_RUN:
                    raise
        return next(iter(self.search({LOCAL_ID: run_id})), None)

    def download(self, run: Run, name: str) -> Path | None:
        """A copy of an artifact (file or folder) below the root; None if the run has none of this name."""
        kept = self.root / "downloads" / run.run_id / name
        if kept.exists():
            return kept
        run_id = run.stored_as or run.run_id
        (self.root / "downloads").mkdir(parents=True, exist_ok=True)
        # However long it takes: who wants another run does not wait for it.
        with FileLock(self.root / "downloads" / f".{run.run_id}.lock"), self.faults() as client:
            if kept.exists():
                return kept
            partial = self.root / "downloads" / f".{run.run_id}"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            listed = client.list_artifacts(run_id, os.path.dirname(name) or None)
            if name not in {item.path for item in listed}:
                return None
            fetched = client.download_artifacts(run_id, name, str(partial))
            kept.parent.mkdir(parents=True, exist_ok=True)
            Path(fetched).rename(kept)
            shutil.rmtree(partial, ignore_errors=True)
        return kept


def local_path(uri: str) -> Path:
    """The path of a `file:` URI."""
    return Path(unquote(urlsplit(uri).path))


def _quoted(value: str) -> str:
    return f'"{value}"' if "'" in value else f"'{value}'"


def _batches(rows: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _to_run(row: Any) -> Run:
    tags = dict(row.data.tags)
    own = tags.get(LOCAL_ID)
    return Run(
        run_id=own or row.info.run_id,
        name=row.info.run_name or "",
        status=row.info.status,
        started=moment(row.info.start_time),
        tags=tags,
        params=dict(row.data.params),
        metrics={key: value for key, value in row.data.metrics.items() if not math.isnan(value)},
        artifact_uri=row.info.artifact_uri or "",
        ended=moment(row.info.end_time) if row.info.end_time else None,
        stored_as=row.info.run_id if own else "",
    )


def _is_store_fault(error: Exception) -> bool:
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    return isinstance(error, MlflowException | RequestException | SQLAlchemyError | OSError)


_MENDED_ELSEWHERE = (401, 403, 407, 408, 429)
"""HTTP: who asks, or how often, is not what is asked."""


def _is_refusal(error: Exception) -> bool:
    from mlflow.exceptions import MlflowException, RestException
    from requests import HTTPError

    if isinstance(error, HTTPError) and error.response is not None:
        status = error.response.status_code
    elif isinstance(error, RestException):
        status = error.get_http_status_code()
    elif isinstance(error, MlflowException):
        # Of MLflow on this machine; or an answer that is not MLflow's, say of a proxy, of which only one is about size.
        foreign = re.search(r"failed with error code (\d+)", str(error))
        status = int(foreign[1]) if foreign else error.get_http_status_code()
        if foreign and status != 413:
            return False
    else:
        return False
    return 400 <= status < 500 and status not in _MENDED_ELSEWHERE


def _one_line(error: Exception) -> str:
    return without_credentials(" ".join(str(error).split()))[:300]
