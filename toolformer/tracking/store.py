"""An MLflow store, a SQLite file or a server, through MLflow's client: made ready once; every error is one line.

A SQLite store keeps artifacts in the folder `artifacts` beside its file, and no absolute path, so both can be moved or copied
together.
"""

import math
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from toolformer.credentials import without_credentials
from toolformer.errors import UserError, one_line
from toolformer.storage import atomic_file, locked, safe_join, writing

EXPERIMENT = "toolformer"
"""MLflow's experiment."""
ORDER = "order"
"""The tag by which runs are sorted: the name, with its numbers in their order."""
NOTE = "mlflow.note.content"
"""The tag that MLflow's pages show as a description, in Markdown."""
ARTIFACTS = "mlflow-artifacts:/"
"""Where a SQLite store says that artifacts are: MLflow's server resolves it to the folder it is started with."""
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
_PUBLIC = ("mlflow-artifacts", "s3", "gs", "wasbs", "abfss", "dbfs")
"""Schemes of the addresses to which a server may send artifacts: a folder of this machine is not among them."""
_SQLITE = "sqlite:///"
_SERVED = ("http://", "https://", "databricks")


class Store:
    """A store of MLflow runs.

    Args:
        root: a folder of the user's; made when needed.
        uri: any MLflow tracking URI; `None` is `mlflow.db` in the root.
    """

    def __init__(self, root: Path, uri: str | None = None) -> None:
        self.root = Path(root).expanduser().absolute()
        self.uri = uri or ""
        self.database: Path | None = None
        """The file of a SQLite store."""
        self.deadline = math.inf
        """When no further request is sent (`time.monotonic`)."""
        if not uri or uri.startswith(_SQLITE):
            file, sign, query = (uri or "").removeprefix(_SQLITE).partition("?")
            self.database = Path(file).absolute() if uri else self.root / "mlflow.db"
            self.uri = sqlite_uri(self.database) + sign + query

    @property
    def label(self) -> str:
        """The address, without credentials."""
        return str(self.database) if self.database else without_credentials(self.uri)

    @property
    def is_served(self) -> bool:
        """Whether it is a server's, which knows no folder of this machine."""
        return self.uri.startswith(_SERVED)

    @property
    def artifacts(self) -> Path:
        """The folder of the artifacts of a store that is not a server's."""
        return (self.database.parent if self.database else self.root) / "artifacts"

    @property
    def client(self) -> Any:
        """MLflow's client. UserError after the deadline."""
        if time.monotonic() > self.deadline:
            raise UserError("it is slow")
        return self._client

    @cached_property
    def _client(self) -> Any:
        for key, value in _ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        from mlflow.tracking import MlflowClient

        if self.database and not self.database.exists():
            _make_database(self.database)
        return MlflowClient(tracking_uri=self.uri)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Makes a UserError of one line of anything that goes wrong in the block."""
        try:
            yield
        except (
            Exception
        ) as error:  # of MLflow, of a database, of the network or of any library that keeps artifacts
            raise UserError(f"tracking: {self.label} does not take runs ({one_line(error)})") from error

    @cached_property
    def experiment(self) -> str:
        """The id of the experiment, which is made if it does not exist."""
        if experiment := self.client.get_experiment_by_name(EXPERIMENT):
            return str(experiment.experiment_id)
        location = ARTIFACTS if self.database else None if self.is_served else self.artifacts.as_uri()
        try:
            self.client.create_experiment(EXPERIMENT, location, tags={NOTE: _DESCRIPTION, **_KIND})
        except Exception:  # another process was first, or the next line raises it again
            pass
        return str(self.client.get_experiment_by_name(EXPERIMENT).experiment_id)

    def find(self, key: str) -> Any:
        """The newest run with this tag `key` that was not deleted; None if there is none."""
        condition = f"tags.key = '{key}'"
        runs = self.client.search_runs([self.experiment], condition, max_results=1)
        return runs[0] if runs else None

    def put(self, row: Any, path: Path, folder: str = "") -> None:
        """Makes a file an artifact of a run, below `folder`; a SQLite store shares it with the run's folder.

        UserError if a server sends it to a folder of this machine.
        """
        uri = str(row.info.artifact_uri)
        if not (self.database and uri.startswith(ARTIFACTS)):
            if self.is_served and urlsplit(uri).scheme not in _PUBLIC:
                raise UserError(f"it keeps artifacts at {without_credentials(uri)}")
            from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

            # Not client.log_artifact, which asks the server for the address again.
            get_artifact_repository(uri, tracking_uri=self.uri).log_artifact(str(path), folder or None)
            return
        names = [*filter(None, folder.split("/")), path.name]
        target = safe_join(self.artifacts, row.info.run_id, "artifacts", *names)
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


def sqlite_uri(path: Path) -> str:
    """The address of a SQLite file, whatever its path."""
    if not re.search("[?%]", str(path)):
        return f"{_SQLITE}{path.as_posix()}"
    from sqlalchemy import URL  # which knows how its version quotes

    return str(URL.create("sqlite+pysqlite", database=path.as_posix()))


def _make_database(path: Path) -> None:
    """Makes MLflow's database under another name and renames it whole: its migrations are not one transaction."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(".mlflow.lock"), f"{path}: another process makes it; waiting"):
        if path.exists():
            return
        for leftover in path.parent.glob(f".{path.name}.*.part*"):  # of a killed process
            leftover.unlink()
        with atomic_file(path) as temporary:
            SqlAlchemyStore(sqlite_uri(temporary), ARTIFACTS)._dispose_engine()
