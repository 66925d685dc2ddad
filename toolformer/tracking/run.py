"""A run as it is read: plain data. Knows no store."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LOCAL_ID = "local_id"
"""The tag of a server's run that holds its id here, chosen before the server heard of it, and the one that lineage names."""
NOTE = "mlflow.note.content"
"""The tag that MLflow's pages show as a description, in Markdown."""
_NEVER = datetime.datetime.fromtimestamp(0, datetime.UTC)


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
    ended: datetime.datetime | None = None
    stored_as: str = ""
    """The store's own id, where it is another one; empty where it is not, or the store does not know the run."""

    @property
    def stage(self) -> str:
        return self.tags.get("stage", "")

    @property
    def commit(self) -> str:
        return self.tags.get("git_commit", "unknown")


def moment(milliseconds: int | None) -> datetime.datetime:
    """A time as MLflow has it."""
    return datetime.datetime.fromtimestamp((milliseconds or 0) / 1000, datetime.UTC)


def now() -> int:
    """This moment, in milliseconds, as MLflow has it."""
    return int(time.time() * 1000)


def newest_first(runs: Iterable[Run]) -> list[Run]:
    """The last to end first; those that have not ended come last, the last to start first."""
    return sorted(runs, key=lambda run: (run.ended or _NEVER, run.started), reverse=True)
