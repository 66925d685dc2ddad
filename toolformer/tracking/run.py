"""A run as it is read: plain data. Knows no store."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

log = logging.getLogger(__name__)

LOCAL_ID = "local_id"
"""The tag of a server's run that holds its id here, chosen before the server heard of it, and the one that lineage names."""
NOTE = "mlflow.note.content"
"""The tag that MLflow's pages show as a description, in Markdown."""
STATUSES = ("FINISHED", "RUNNING", "FAILED", "KILLED")
_NEVER = datetime.datetime.fromtimestamp(0, datetime.UTC)


@dataclass(frozen=True)
class Run:
    """A run as the store knows it."""

    run_id: str
    name: str
    status: str
    """One of `STATUSES`."""
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


_TOLD: set[str] = set()
"""Runs whose clock was named; every job of a sweep looks them up again."""


def tell_of_clocks(runs: Sequence[Run]) -> None:
    """`latest` is the last to end by the clocks of those who ran: a wrong one is named."""
    for run in runs:
        if run.ended and run.run_id not in _TOLD and (run.ended < run.started or run.ended > _soon()):
            _TOLD.add(run.run_id)
            what = "before it began" if run.ended < run.started else "in the future"
            log.warning(
                "%s run %s ended %s: a clock was wrong, and `latest` (now run %s) goes by clocks; name a run's id to be sure",
                run.stage, run.run_id, what, runs[0].run_id,
            )  # fmt: skip


def _soon() -> datetime.datetime:
    """A minute from now: clocks of machines that agree no better are common."""
    return moment(now()) + datetime.timedelta(minutes=1)
