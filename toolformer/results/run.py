"""The result of a step, as its folder holds it."""

from __future__ import annotations

import datetime
import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolformer.step import STAGES, Step

STEP, RESULT, CONFIG, METRICS = "step.json", "result.json", "config.yaml", "metrics.jsonl"
"""The files of a run's folder: what it is and how it began; what came of it, once it is done; its configuration; its curves."""
LOCK, NAMES = "lock", "names"
"""The lock of the process that works on it; a folder with a file per experiment, which holds its name."""
RUN_STEPS = tuple(stage for stage in STAGES if stage != "report")
"""The steps whose results are runs, each in a folder of that name."""
STATUSES = ("FINISHED", "RUNNING", "FAILED", "KILLED", "DAMAGED")
"""DAMAGED: it finished, and its result was changed, is half written, or is of an earlier release."""
FIGURES = {
    "generate": ("documents", "texts_kept", "calls_kept"),
    "train": ("best_heldout_perplexity", "heldout_perplexity"),
}
"""The metrics that summarise a run of a stage."""
MAIN = ("score", "perplexity")
"""The main metric of a benchmark: percent correct, or perplexity."""
_NEVER = datetime.datetime.fromtimestamp(0, datetime.UTC)


@dataclass(frozen=True)
class Run:
    """A step's result, or what there is of it."""

    step: Step
    folder: Path
    name: str
    status: str
    """One of `STATUSES`."""
    started: datetime.datetime
    """In UTC."""
    ended: datetime.datetime | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    """The whole configuration, nested, with secrets masked."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    tasks: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Metrics of each benchmark, of an evaluation or an explanation."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further facts: `system`, `k`, `dtype`, `day`, `git_commit`, versions, the device."""
    command: str = ""
    """The command line, without secrets."""
    experiments: frozenset[str] = frozenset()
    """The values of `name` under which it was asked for."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each of its files, by name relative to the folder."""
    questions: Mapping[str, str] = field(default_factory=dict)
    """Digest of each benchmark's questions, for an evaluation."""
    parent: str = ""
    """The sweep or the experiment that it belongs to, as a title."""
    read: Mapping[str, str] = field(default_factory=dict)
    """The fingerprints of the runs that it was made from, by id, as they were then."""
    reduced: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 that each logged file had before it was published without its texts, or left out; for a published run."""

    def __hash__(self) -> int:
        return hash(self.folder)

    @property
    def id(self) -> str:
        """The key of its step, which names its folder."""
        return self.folder.name

    @property
    def stage(self) -> str:
        return self.step.name

    @property
    def seed(self) -> int:
        """The seed of its result; of an annotation that of its sampling, but where chance keeps calls by `seed`."""
        seed: int = self.setting("seed", 0)
        if self.stage != "generate" or "seed" in self.step.inputs:
            return seed
        sampling: int | None = self.setting("generate.seed")
        return seed if sampling is None else sampling

    @property
    def overrides(self) -> list[str]:
        """The overrides of its command."""
        return shlex.split(self.command)[2:]

    @property
    def made_from(self) -> list[str]:
        """The ids of the runs that it was made from."""
        return [step.key() for step in _results(self.step)]

    @property
    def fingerprint(self) -> str:
        """Fingerprint that distinguishes this result from others of the same step; empty where two are always equal.

        Two trainings with the same settings may come to different weights, and two evaluations to different answers.
        """
        if self.stage == "train":
            return str(self.facts.get("weights", ""))
        if self.stage == "evaluate":
            return hashlib.sha256(json.dumps(sorted(self.digests.items())).encode()).hexdigest()[:16]
        return ""

    @property
    def annotations(self) -> list[Step]:
        """The steps of the annotations that it was made from, in the order in which they were named; its own of an annotation."""
        return [self.step] if self.stage == "generate" else [*self.step.find_all("generate")]

    @property
    def thresholds(self) -> dict[str, float]:
        """τ_f of each tool of an annotation."""
        tools = self.step.settings.get("tool", {})
        return {
            key: settings["filter_threshold"]
            for key, settings in tools.items()
            if "filter_threshold" in settings
        }

    @property
    def commit(self) -> str:
        return str(self.facts.get("git_commit", "unknown"))

    def setting(self, path: str, default: Any = None) -> Any:
        """A value of the configuration by its dotted key."""
        value: Any = self.config
        for part in path.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return default
            value = value[part]
        return value

    def curve(self, metric: str) -> list[tuple[int, float]]:
        """A metric's (step, value), in order of step; of a step that was logged twice, the last value."""
        rows, _ = rows_of(self.folder / METRICS)
        return sorted({row["step"]: row[metric] for row in rows if metric in row}.items())


def _results(step: Step) -> Iterable[Step]:
    """The nearest steps below one whose results are runs."""
    for part in step.steps():
        yield from [part] if part.name in RUN_STEPS else _results(part)


def rows_of(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The rows of a file of curves from a byte on (`step`, `time` in seconds, metrics), and the byte after them.

    A line that a killed process left incomplete is skipped.
    """
    rows: list[dict[str, Any]] = []
    try:
        with path.open("rb") as file:
            file.seek(offset)
            written = file.read()
    except OSError:
        return rows, offset
    written = written[: written.rfind(b"\n") + 1]
    for line in written.splitlines():
        with suppress(ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
            row: dict[str, Any] = {str(key): float(value) for key, value in json.loads(line).items()}
            rows.append({**row, "step": int(row["step"]), "time": row["time"]})
    return rows, offset + len(written)


def questions_digest(questions: Iterable[tuple[str, Any]]) -> str:
    """What identifies the questions of a benchmark: each with its id and its prompt, or the SHA-256 of its text."""
    return hashlib.sha256(json.dumps([[*question] for question in questions]).encode()).hexdigest()


def headline_metrics(run: Run) -> dict[str, float]:
    """The few metrics that summarise a run; of an evaluation, each benchmark's score or perplexity by its name."""
    scores = {
        task: values[name] for task, values in sorted(run.tasks.items()) for name in MAIN if name in values
    }
    return scores or {key: run.metrics[key] for key in FIGURES.get(run.stage, ()) if key in run.metrics}


def newest_first(runs: Iterable[Run]) -> list[Run]:
    """The last to end first; those that have not ended come last, the last to start first."""
    return sorted(runs, key=lambda run: (run.ended or _NEVER, run.started), reverse=True)
