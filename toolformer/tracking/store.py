"""An MLflow store, the local database or a server: made ready once and written to; every error is one line.

The local store is `<root>/mlflow.db`, with artifacts in `<root>/artifacts/<run id>/artifacts`. Its database holds no
absolute path, so a root can be moved or copied.
"""

import functools
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from toolformer.credentials import without_credentials
from toolformer.errors import UserError, one_line
from toolformer.storage import atomic_file, locked, safe_join, writing

EXPERIMENT = "toolformer"
"""MLflow's experiment."""
NOTE = "mlflow.note.content"
"""The tag that MLflow's pages show as a description, in Markdown."""
ARTIFACTS = "mlflow-artifacts:/"
"""Where our database says that artifacts are: MLflow's server resolves it to the folder it is started with."""
LOCAL = "local"
"""The address of the local store, which holds wherever its root is moved."""
# A user's value of any of these wins.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # also alembic's; we report errors, in one line
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # seconds
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}
_DESCRIPTION = """\
Runs of Toolformer's stages: `generate` annotates a corpus, `train` finetunes on it, `evaluate` runs benchmarks.

- Filter by `tags.stage = "evaluate"`, `tags.system = "toolformer"` or `tags.experiment LIKE "%table4%"`.
- To compare systems choose their `evaluate` runs, then *Compare*: `Score/<benchmark>` comes first; `<benchmark>/score` has `ci_low`, `ci_high` and `n` beside it.
- A run's description has its result, its command and the runs it was made from; `toolformer runs` shows the same in a terminal.
"""
_KIND = {"mlflow.experimentKind": "custom_model_development"}
"""With this tag the pages of MLflow show an experiment as model training, where no view of all experiments is chosen."""
_CLOUDS = ("s3", "gs", "wasbs", "abfss")
"""Schemes of the stores to which a server may send artifacts."""
_NO_ENTRY = (401, 403, 407)
"""HTTP statuses that are about who asks."""
_ASK_AGAIN = (408, 429)
"""Those about how often it is asked."""
_NO_MLFLOW = (
    "{uri} answers, and not as an MLflow server does ({reason}): give the server's address in tracking.uri"
)
_SERVED = ("http://", "https://", "databricks")


class StoreFault(UserError):
    """The store does not answer, or fails."""


class Refused(UserError):
    """The store answers, and does not take what it is given: asking again would change nothing."""


class Store:
    """A store of MLflow runs.

    Args:
        root: a folder of the user's; made when needed.
        uri: any MLflow tracking URI; `None` is the local store.
    """

    def __init__(self, root: Path, uri: str | None = None) -> None:
        self.root = Path(root).expanduser().absolute()
        local = f"sqlite:///{(self.root / 'mlflow.db').as_posix()}"
        self.uri = uri or local
        self.is_local = self.uri == local
        self.shown_uri = without_credentials(self.uri)
        self.address = LOCAL if self.is_local else self.shown_uri
        """Names the store in a run's `mlflow.json`; no credentials."""
        path = self.uri.removeprefix("sqlite:///")
        self._database = Path(path) if path != self.uri else None

    @property
    def is_served(self) -> bool:
        """Whether it is a server's, which knows no folder of this machine."""
        return self.uri.startswith(_SERVED)

    @functools.cached_property
    def _client(self) -> Any:
        for key, value in _ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        from mlflow.tracking import MlflowClient

        if self._database and not self._database.exists():
            _make_database(self._database)
        return MlflowClient(tracking_uri=self.uri)

    @contextmanager
    def faults(self) -> Iterator[Any]:
        """Yields the MLflow client; whatever goes wrong with it becomes a `StoreFault` or `Refused` of one line."""
        try:
            yield self._client
        except Exception as error:
            if fault := _as_fault(error, self.shown_uri):
                raise fault from error
            raise

    def prepare(self) -> str:
        """Makes the database and the experiment if they do not exist; returns the experiment's id."""
        location = ARTIFACTS if self.is_local else None if self.is_served else self._copies.as_uri()
        with self.faults() as client:
            if client.get_experiment_by_name(EXPERIMENT) is None:
                with existing():
                    client.create_experiment(EXPERIMENT, location, tags={NOTE: _DESCRIPTION, **_KIND})
            experiment = str(client.get_experiment_by_name(EXPERIMENT).experiment_id)
        if not experiment:
            raise StoreFault(_NO_MLFLOW.format(uri=self.shown_uri, reason="its experiment has no id"))
        return experiment

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

    def search(self, **tags: str) -> Iterator[Any]:
        """MLflow's runs of every experiment with these tags that are not deleted, the last to finish first."""
        condition = " and ".join(f"tags.`{key}` = {_quoted(value)}" for key, value in tags.items())
        order, page = ["attributes.end_time DESC", "attributes.start_time DESC"], None
        with self.faults() as client:
            experiments = [experiment.experiment_id for experiment in client.search_experiments()]
            while page != "":
                rows = client.search_runs(experiments, condition, order_by=order, page_token=page)
                yield from rows
                page = rows.token or ""

    def put(self, run_id: str, path: Path, folder: str = "") -> None:
        """Makes a file an artifact of a run, below `folder`; the local store shares it with the run's folder."""
        if not self.is_local:
            with self.faults() as client:
                self.artifacts(client.get_run(run_id).info.artifact_uri).log_artifact(
                    str(path), folder or None
                )
            return
        names = [*filter(None, folder.split("/")), path.name]
        target = safe_join(self.root / "artifacts", run_id, "artifacts", *names)
        if target.exists() and target.samefile(path):
            return
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(target) as temporary:
            temporary.unlink()
            try:
                temporary.hardlink_to(path)
            except OSError:  # another file system
                shutil.copyfile(path, temporary)

    @property
    def _copies(self) -> Path:
        """Where artifacts go of a database that `tracking.uri` names without a server."""
        return self._database.parent / "artifacts" if self._database else self.root / "copies"

    def artifacts(self, uri: str) -> Any:
        """MLflow's access to artifacts at an address that the store gave, which is not asked for another one again.

        Refused if it is a folder of this machine that is not the store's, a server that is another one, or resolved again
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


def _make_database(path: Path) -> None:
    """Makes MLflow's database under another name and renames it whole: its migrations are not one transaction."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    with locked(path.with_name(".mlflow.lock"), f"{path}: another process makes it; waiting"):
        if path.exists():
            return
        for leftover in path.parent.glob(f".{path.name}.*.part*"):  # of a killed process
            leftover.unlink()
        with atomic_file(path) as temporary:
            SqlAlchemyStore(f"sqlite:///{temporary.as_posix()}", ARTIFACTS)._dispose_engine()


@contextmanager
def existing() -> Iterator[None]:
    """Ignores that something exists already, for example because another process was first."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS" and "unique" not in str(error).lower():
            raise


def _quoted(value: str) -> str:
    return f'"{value}"' if "'" in value else f"'{value}'"


def _as_fault(error: Exception, uri: str) -> UserError | None:
    """What an exception of MLflow, of a database or of the network says, in one line; None for any other."""
    if isinstance(error, ImportError):
        return UserError(f"tracking.uri: {uri} needs a package that is not installed ({error})")
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
        return StoreFault(_NO_MLFLOW.format(uri=uri, reason=reason))
    if uri.startswith(_SERVED) and isinstance(error, MlflowException | RequestException):
        return StoreFault(f"the tracking server {uri} fails ({reason}): see its log, or change tracking.uri")
    advice = "fix it (is the disk full?) or name another paths.root or tracking.uri; what is on disk is kept"
    return StoreFault(f"the tracking store {uri} fails ({reason}): {advice}")
