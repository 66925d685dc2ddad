"""An MLflow store, the local one or a server: made ready once, written to and read; every fault is a one-line error.

The local store is `<root>/mlflow.db`, with artifacts in `<root>/artifacts/<run id>/artifacts`. Its database holds no
absolute path, so that a root can be moved or copied.
"""

import functools
import logging
import math
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

from toolformer.credentials import without_credentials
from toolformer.errors import UserError, one_line
from toolformer.storage import below, build_once, locked, whole_file, writing
from toolformer.tracking import database
from toolformer.tracking.run import EXPERIMENT, NOTE, Run, moment

log = logging.getLogger(__name__)

ARTIFACTS = "mlflow-artifacts:/"
"""Where a database of ours says that artifacts are: MLflow's server resolves it to the folder it is started with."""
LOCAL_ID = "local_id"
"""The tag of a server's run that holds its id in the local store it was copied from."""
_ACTIVE, _ANY = 1, 3  # MLflow's ViewType
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
- To compare systems choose their `evaluate` runs, then *Compare*: `Score/<benchmark>` comes first; `<benchmark>/score` has `ci_low`, `ci_high` and `n` beside it.
- A run's description says its command and what it was made from; `toolformer runs` shows the same in a terminal.
"""
_KIND = {"mlflow.experimentKind": "custom_model_development"}
"""With this tag the pages of MLflow show an experiment as model training, where no view of all experiments is chosen."""
_CLOUDS = ("s3", "gs", "wasbs", "abfss")
"""Schemes of the stores to which a server may send artifacts."""
_NO_ENTRY = (401, 403, 407)
"""HTTP statuses that are about who asks."""
_ASK_AGAIN = (408, 429)
"""Those about how often it is asked."""
_SERVED = ("http://", "https://", "databricks")
_SILENT: set[str] = set()
"""Servers that did not answer, until they do; every stage of a process has a tracker of its own."""


class StoreFault(UserError):
    """The store does not answer, or fails."""


class Refused(UserError):
    """The store answers, and does not take what it is given: asking again would change nothing."""


class Store:
    """A store of runs.

    Args:
        root: a folder of the user's; made when needed.
        uri: any MLflow tracking URI; `None` is the local store.
    """

    def __init__(self, root: Path, uri: str | None = None) -> None:
        self.root = root
        self.is_local = uri is None
        self.uri = uri or f"sqlite:///{(root / 'mlflow.db').as_posix()}"
        self.shown_uri = without_credentials(self.uri)
        path = self.uri.removeprefix("sqlite:///")
        self._database = Path(path) if path != self.uri else None

    @property
    def is_served(self) -> bool:
        """Whether a server stands before the store, which then knows no folder of this machine."""
        return self.uri.startswith(_SERVED)

    def is_absent(self) -> bool:
        """Whether it is a database that is not there yet; reading makes none."""
        return self._database is not None and not self._database.exists()

    @functools.cached_property
    def _client(self) -> Any:
        for key, value in _ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        from mlflow.tracking import MlflowClient

        if self._database and self.is_absent():
            _make_database(self._database)
        return MlflowClient(tracking_uri=self.uri)

    @contextmanager
    def faults(self) -> Iterator[Any]:
        """Yields the MLflow client; whatever goes wrong with it becomes a `StoreFault` or `Refused` of one line."""
        try:
            yield self._client
            _SILENT.discard(self.uri)
        except Exception as error:
            if fault := _as_fault(error, self.shown_uri):
                raise fault from error
            raise

    @property
    def is_silent(self) -> bool:
        """Whether it did not answer when it was last asked."""
        return self.uri in _SILENT

    def silence(self, fault: object) -> None:
        """Notes that the server did not answer; warns once, until it has answered again."""
        if not self.is_silent:
            reason = "%s; runs are kept in %s, toolformer runs push copies them"
            log.warning(reason, without_credentials(str(fault)), self.root)
        _SILENT.add(self.uri)

    def prepare(self) -> str:
        """Makes the database and the experiment if they are not there; returns the experiment's id."""
        location = ARTIFACTS if self.is_local else None if self.is_served else self._copies.as_uri()
        with self.faults() as client:
            if client.get_experiment_by_name(EXPERIMENT) is None:
                with _perhaps_there():
                    client.create_experiment(EXPERIMENT, location, tags={NOTE: _DESCRIPTION, **_KIND})
            return str(client.get_experiment_by_name(EXPERIMENT).experiment_id)

    def create(self, name: str, tags: Mapping[str, str], started: int | None = None) -> str:
        """Begins a run (at `started`, in milliseconds) and returns its id."""
        experiment_id = self.prepare()
        with self.faults() as client:
            row = client.create_run(experiment_id, start_time=started, run_name=name, tags=dict(tags))
            return str(row.info.run_id)

    def log(
        self,
        run_id: str,
        *,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        metrics: Sequence[tuple[Any, ...]] = (),
    ) -> None:
        """Writes to a run; writing twice changes nothing.

        Metrics are (key, value, milliseconds, step), of a logged model also its id and a data set's name and digest.
        """
        from mlflow.entities import Metric, Param, RunTag

        with self.faults() as client:
            client.log_batch(
                run_id,
                metrics=[Metric(*row) for row in metrics],
                params=[Param(*item) for item in (params or {}).items()],
                tags=[RunTag(*item) for item in (tags or {}).items()],
            )

    def inputs(
        self, run_id: str, datasets: Sequence[Any] | None = None, models: Sequence[Any] | None = None
    ) -> None:
        """Makes MLflow's data sets and logged models inputs of a run; again is the same as once."""
        from mlflow.exceptions import MlflowException

        with self.faults() as client:
            try:
                client.log_inputs(run_id, datasets, models)
            except MlflowException as error:
                # Another process logged the same new data set at the same time; now it is there.
                if "unique" not in str(error).lower():
                    raise
                client.log_inputs(run_id, datasets, models)

    def status(self, run_id: str, status: str, ended: int | None = None) -> None:
        """Sets how a run ended (at `ended`, in milliseconds), or that it is RUNNING again."""
        with self.faults() as client:
            if status == "RUNNING":
                client.update_run(run_id, status=status)
            else:
                client.set_terminated(run_id, status, ended)

    def register(self, run_id: str, name: str, tags: Mapping[str, str]) -> str:
        """Makes a run's model a version of a registered model, once; returns the version."""
        with self.faults() as client:
            with _perhaps_there():
                client.create_registered_model(name)
            versions = client.search_model_versions(f"name = '{name}'")
            version = next((version for version in versions if version.run_id == run_id), None)
            version = version or client.create_model_version(
                name, f"runs:/{run_id}/model", run_id, dict(tags), await_creation_for=0
            )
            client.set_tag(run_id, "registered_model", f"models:/{name}/{version.version}")
            return str(version.version)

    def rows(self, condition: str = "", with_deleted: bool = False) -> Iterator[Any]:
        """MLflow's runs of every experiment, the last to finish first."""
        if self.is_absent():
            return
        order = ["attributes.end_time DESC", "attributes.start_time DESC"]
        view, page = _ANY if with_deleted else _ACTIVE, None
        with self.faults() as client:
            experiments = [experiment.experiment_id for experiment in client.search_experiments()]
            while page != "":
                rows = client.search_runs(experiments, condition, view, order_by=order, page_token=page)
                yield from rows
                page = rows.token or ""

    def search(self, tags: Mapping[str, str], run_id: str = "") -> list[Run]:
        """The runs with these tags, and with this id if one is given, that are not deleted; the last to finish first."""
        if self.is_local and self._database:
            try:
                return [] if self.is_absent() else database.read(self._database, tags, run_id)
            except sqlite3.Error as error:
                raise StoreFault(
                    f"the tracking store {self.shown_uri} fails ({error}): name another paths.root"
                ) from error
        conditions = [f"tags.`{key}` = {_quoted(value)}" for key, value in tags.items()]
        conditions += [f"attributes.run_id = {_quoted(run_id)}"] if run_id else []
        return [self._to_run(row) for row in self.rows(" and ".join(conditions))]

    def get(self, run_id: str) -> Run | None:
        """A run by its id here, or by the local id that it was copied from; None also for one deleted in MLflow."""
        runs = self.search({}, run_id) or ([] if self.is_local else self.search({LOCAL_ID: run_id}))
        return runs[0] if runs else None

    def history(self, run_id: str, key: str) -> list[tuple[int, float]]:
        """A metric's (step, value) in order of step; of a step that was logged twice the last value."""
        with self.faults() as client:
            rows = client.get_metric_history(run_id, key)
        return sorted({row.step: row.value for row in sorted(rows, key=lambda row: row.timestamp)}.items())

    def artifact(self, run: Run, name: str) -> Path:
        """An artifact (file or folder): of the local store where it lies, of a server a copy; UserError if none."""
        parts = name.split("/")
        if self.is_local:
            path = below(self.root / "artifacts", run.run_id, "artifacts", *parts)
            return path if path.exists() else _no_artifact(run, name)
        scratch = below(self.root / "fetched", run.run_id)
        folder = below(scratch, "+".join(parts))
        with writing(folder):
            build_once(folder, functools.partial(self._fetch, run, name), scratch)
        return below(folder, *parts)

    def _fetch(self, run: Run, name: str, folder: Path) -> None:
        """Downloads an artifact under its own name, file by file: no name of the store's leads out of the folder."""
        with self.faults():
            there = self.artifacts(run.artifact_uri)
            listed = there.list_artifacts(name.rpartition("/")[0] or None)
            items = [item for item in listed if item.path == name] or _no_artifact(run, name)
            while items:
                item = items.pop()
                path = below(folder, *item.path.split("/"))
                (path if item.is_dir else path.parent).mkdir(parents=True, exist_ok=True)
                if item.is_dir:
                    items += there.list_artifacts(item.path)
                else:  # as a file, whatever the store says when it is asked again
                    there._download_file(item.path, str(path))

    @property
    def _copies(self) -> Path:
        """Where artifacts go of a database that `tracking.uri` names and no server stands before."""
        return self._database.parent / "artifacts" if self._database else self.root / "copies"

    def artifacts(self, uri: str) -> Any:
        """MLflow's access to artifacts at an address that the store gave, which is not asked for another one again.

        Refused if it is a folder of this machine that is not the store's, a server that is another one, or resolved anew
        at each use, as `runs:/` is.
        """
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
        from mlflow.utils.uri import add_databricks_profile_info_to_artifact_uri

        if not (address := self._checked(uri)):
            raise Refused(
                f"{self.shown_uri} keeps artifacts at {without_credentials(uri)[:200]}, which is neither behind its address "
                f"nor one of {', '.join(_CLOUDS)}; nothing is read or written there"
            )
        address = add_databricks_profile_info_to_artifact_uri(address, self.uri)
        return get_artifact_repository(address, tracking_uri=self.uri)

    def _checked(self, uri: str) -> str:
        """The address of artifacts to use; empty for a place that the store has nothing to do with."""
        try:
            parts = urlsplit(uri)
            own = urlsplit(self.uri).netloc.rpartition("@")[2]
        except ValueError:
            return ""
        if parts.scheme in ("", "file"):
            path = Path(unquote(parts.path)).resolve()
            is_ours = not self.is_served and path.is_relative_to(self._copies.resolve())
            return path.as_uri() if is_ours else ""
        if parts.scheme == "mlflow-artifacts":
            return uri if self.is_served and parts.netloc in ("", own) else ""
        clouds = (*_CLOUDS, *(["dbfs"] if self.uri.startswith("databricks") else []))
        return uri if parts.scheme in clouds else ""

    def _to_run(self, row: Any) -> Run:
        """A server's run, under its local id if it is a copy."""
        tags = dict(row.data.tags)
        is_copy = re.fullmatch(r"[0-9a-f]{32}", tags.get(LOCAL_ID, ""))
        return Run(
            run_id=tags[LOCAL_ID] if is_copy else row.info.run_id,
            name=row.info.run_name or "",
            status=row.info.status,
            started=moment(row.info.start_time),
            tags=tags,
            params=dict(row.data.params),
            metrics={key: value for key, value in row.data.metrics.items() if not math.isnan(value)},
            artifact_uri=row.info.artifact_uri or "",
            ended=moment(row.info.end_time) if row.info.end_time else None,
            stored_as=row.info.run_id,
        )


def _no_artifact(run: Run, name: str) -> NoReturn:
    raise UserError(f"{run.stage} run {run.run_id[:8]} has no {name}: run `toolformer {run.stage}` again")


def _make_database(path: Path) -> None:
    """Makes MLflow's database beside its place and renames it there whole: its migrations are not one transaction."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    with locked(path.with_name(".mlflow.lock"), f"{path}: another process makes it; waiting"):
        if path.exists():
            return
        for leftover in path.parent.glob(f".{path.name}.*.part*"):  # of a killed process
            leftover.unlink()
        with whole_file(path) as temporary:
            SqlAlchemyStore(f"sqlite:///{temporary.as_posix()}", ARTIFACTS)._dispose_engine()


@contextmanager
def _perhaps_there() -> Iterator[None]:
    """Passes over that something is there already, say since another process was first."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _quoted(value: str) -> str:
    return f'"{value}"' if "'" in value else f"'{value}'"


def _as_fault(error: Exception, uri: str) -> UserError | None:
    """What an exception of MLflow, of a database or of the network says, in one line; None for any other."""
    if isinstance(error, ImportError):
        return UserError(f"tracking.uri: {uri} needs what is not installed ({error})")
    from mlflow.exceptions import MlflowException
    from requests import HTTPError, RequestException
    from sqlalchemy.exc import SQLAlchemyError

    is_odd = type(error).__module__.startswith("google.protobuf")  # JSON, and not MLflow's
    if not is_odd and not isinstance(error, MlflowException | RequestException | SQLAlchemyError | OSError):
        return None
    reason = re.split(r" \[SQL|\. Response body", one_line(error))[0]
    status = error.get_http_status_code() if isinstance(error, MlflowException) else 500
    if isinstance(error, HTTPError) and error.response is not None:
        status = error.response.status_code
    # An answer that is not MLflow's, say of a proxy, of which only one is about what was asked: its size.
    foreign = re.search(r"failed with error code (\d+)", str(error))
    if foreign:
        status, reason = int(foreign[1]), f"HTTP {foreign[1]}"
    if status in _NO_ENTRY:
        login = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        return StoreFault(f"the tracking server {uri} refuses access ({reason}): set {login}")
    if 400 <= status < 500 and status not in _ASK_AGAIN and (not foreign or status == 413):
        return Refused(f"the tracking store {uri} refuses it ({reason})")
    if re.search(r"[Cc]onnect|timed out|Max retries|NameResolution", str(error)):
        return StoreFault(f"the tracking server {uri} does not answer: start it or change tracking.uri")
    if foreign or is_odd or "not in a valid JSON format" in str(error):
        return StoreFault(
            f"{uri} answers, and not as an MLflow server does ({reason}): give its address in tracking.uri"
        )
    if uri.startswith(_SERVED) and isinstance(error, MlflowException | RequestException):
        return StoreFault(f"the tracking server {uri} fails ({reason}): see its log, or change tracking.uri")
    advice = "fix it (is the disk full?) or name another paths.root or tracking.uri; what is on disk is kept"
    return StoreFault(f"the tracking store {uri} fails ({reason}): {advice}")
