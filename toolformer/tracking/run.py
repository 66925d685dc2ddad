"""A run as it is read: plain data."""

import datetime
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NOTE = "mlflow.note.content"
"""The tag that MLflow's pages show as a description, in Markdown."""
PARENT = "mlflow.parentRunId"
LOGGED_MODEL = "logged_model"
"""The tag of a training that names its logged model in the local store."""
EXPERIMENT = "toolformer"
"""MLflow's experiment."""
REPLICATE = "replicate"
"""The tag of a run that holds a hash of all that decides its result but the seed."""
SWEPT = "swept"
"""The tag of a sweep's parent run that holds the keys it is swept over."""
HELD = "held"
"""The tag of a sweep's parent run that names the runs of it that were done before and stand below another one."""
SHA256 = "sha256."
"""The beginning of the tags that hold an artifact's SHA-256 and, after a blank, its name."""
STATUSES = ("FINISHED", "RUNNING", "FAILED", "KILLED")
FIGURES = {
    "generate": ("documents", "texts_kept", "calls_kept"),
    "train": ("best_heldout_perplexity", "heldout_perplexity"),
}
"""Metrics that say what a run of each stage came to; of an evaluation, each benchmark's score or perplexity."""
_MEASURED = re.compile(r"[^/]+/(score|perplexity)")
_NEVER = datetime.datetime.fromtimestamp(0, datetime.UTC)


@dataclass(frozen=True)
class Run:
    """A run as a store has it."""

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
    """Of a run read from a server, its id there; empty for a run of the local store."""

    def is_named(self, beginning: str) -> bool:
        """Whether its id, here or on the server, begins like this."""
        return self.run_id.startswith(beginning) or self.stored_as.startswith(beginning)

    @property
    def stage(self) -> str:
        return self.tags.get("stage", "")

    @property
    def commit(self) -> str:
        return self.tags.get("git_commit", "unknown")

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of its artifacts by name; configurations and tables have none."""
        parts = (value.partition(" ") for key, value in self.tags.items() if key.startswith(SHA256))
        return {name: digest for digest, _, name in parts}

    @property
    def command(self) -> str:
        """What was typed, if its description has it, else the stage alone."""
        typed = re.search(r"^(`{3,})\n(.+)\n\1\Z", self.tags.get(NOTE, ""), re.MULTILINE)
        return typed[2] if typed else f"toolformer {self.stage}"


def figures(run: Run) -> dict[str, float]:
    """The few metrics that say what a run came to."""
    known = FIGURES.get(run.stage) or sorted(key for key in run.metrics if _MEASURED.fullmatch(key))
    return {key: run.metrics[key] for key in known if key in run.metrics}


def moment(milliseconds: int | None) -> datetime.datetime:
    """MLflow's time as a date."""
    return datetime.datetime.fromtimestamp((milliseconds or 0) / 1000, datetime.UTC)


def now() -> int:
    """The time in MLflow's milliseconds."""
    return int(time.time() * 1000)


def newest_first(runs: Iterable[Run]) -> list[Run]:
    """The last to end first; those that have not ended come last, the last to start first."""
    return sorted(runs, key=lambda run: (run.ended or _NEVER, run.started), reverse=True)
