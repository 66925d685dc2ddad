"""What an evaluation is: its system, its questions, and the steps that name its results.

Two steps. *Answer* is one system asked anything: its folder holds the answers, which evaluations of further benchmarks
share. *Evaluate* is these questions, put to it and scored.
"""

import datetime
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from toolformer.benchmarks import PAPER
from toolformer.data import content_hash
from toolformer.decoding.settings import SYSTEMS
from toolformer.errors import UserError
from toolformer.results import Results
from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.stages.identity import deciding
from toolformer.stages.system import System
from toolformer.stages.versions import VERSIONS
from toolformer.step import Step, settings_of
from toolformer.storage import atomic_write, safe_join

log = logging.getLogger(__name__)

ANSWERS = "answers.jsonl"
COMPARED = (
    *("system", "model", "training", "seed", "benchmarks", "wording", "examples"),
    *("decoding.k", "decoding.by_tool", "decoding.stand_in", "evaluation.gold_nats"),
)
"""What evaluations that share a table may differ in: they are its rows, columns and samples."""
Samples = dict[str, list[str]] | list[str] | None
"""Ids of examples, by benchmark or for all; None for all examples."""


@dataclass(frozen=True)
class Evaluation:
    """A system, and what it is asked."""

    system: System
    tasks: list[str]
    samples: Samples
    step: Step

    @property
    def config(self) -> Config:
        return self.system.config

    @property
    def title(self) -> str:
        """The system, the model, k and the wording, as far as they say something."""
        config, system = self.config, self.system
        k = f"k={system.policy}" if SYSTEMS[config.system].calls_tools else ""
        wording = "" if config.wording == PAPER else f"wording={config.wording}"
        return " ".join(filter(None, (SYSTEMS[config.system].title, system.model_name, k, wording)))

    @property
    def about(self) -> dict[str, str]:
        """Lines of the run's description."""
        names = {
            "system": SYSTEMS[self.config.system].title,
            "model": self.system.model_name,
            "k": self.system.policy,
        }
        return {**names, "benchmarks": ", ".join(self.tasks)}

    @property
    def facts(self) -> dict[str, Any]:
        """What a report has to know besides metrics."""
        policy = self.system.policy
        return {
            "system": self.config.system,
            "policy": policy,
            "k": int(policy) if policy.isdecimal() else None,
            "comparison": _comparison(self.config, self.samples),
            "wording": self.config.wording,
            **({"baseline": self.system.baseline} if self.system.baseline else {}),
        }


def prepare(config: Config, results: Results, command: str = "") -> Evaluation:
    """An evaluation as configured. UserError if there is no such benchmark, train run or file of samples."""
    from toolformer.evaluation import suite

    tasks = suite.task_names(config.benchmarks, config.paths.tasks_dir)
    for task in tasks:  # before hours are spent on what cannot be written
        safe_join(Path(config.paths.root), f"{task}.parquet")
    system, samples = System.find(config, results, command), sample_ids(config.evaluation.samples)
    settings = {**settings_of(config, "evaluate"), "benchmarks": tasks}
    inputs: dict[str, Any] = {
        "answers": system.step,
        "samples": samples,
        "data": suite.data_state(tasks, config.paths.data_dir, config.paths.root),
        "tasks": suite.user_files(tasks, config.paths.tasks_dir),
    }
    if "heldout_perplexity" in tasks:
        inputs["heldout"] = content_hash(instantiate.corpus(config.heldout, "heldout"))
    return Evaluation(system, tasks, samples, Step("evaluate", VERSIONS["evaluate"], settings, inputs))


def _comparison(config: Config, samples: Samples) -> str:
    """A hash that evaluations share which may be in one table."""
    data_dir = config.paths.data_dir
    # Tools as configured, for all systems, and data by its place: a machine without a tool's files compares its models too.
    settings = settings_of(config, "evaluate") | deciding(config, "answer")
    inputs = {
        "samples": samples,
        "data": str(Path(data_dir).expanduser().resolve()) if data_dir else None,
        "heldout": asdict(config.heldout),
        "answer": VERSIONS["answer"],
    }
    return Step("evaluate", VERSIONS["evaluate"], settings, inputs).key(without=COMPARED)


def first_day(folder: Path) -> datetime.date:
    """The day on which answers in this folder were first asked for: all of them are of one day."""
    path = folder / "day"
    if path.exists():
        try:
            return datetime.date.fromisoformat(path.read_bytes().decode().strip())
        except ValueError:
            # Each answer is stored under the date that it was given for: none of another day is used.
            log.warning("evaluate: %s holds no day; questions without a date are asked as of today", path)
    today = datetime.date.today()
    atomic_write(path, f"{today.isoformat()}\n".encode())
    return today


def sample_ids(samples: Any) -> Samples:
    """`evaluation.samples` as ids: a list, a mapping from benchmark to list, or a file that holds either.

    UserError if there are none.
    """
    if samples is None:
        return None
    content, key = samples, "evaluation.samples"
    try:
        if isinstance(samples, str):
            key = f"{key}: {samples}"
            text = Path(samples).expanduser().read_text(encoding="utf-8-sig").strip()
            content = json.loads(text) if text[:1] in ("[", "{") else [*map(str.strip, text.splitlines())]
        adapter: TypeAdapter[Any] = TypeAdapter(dict[str, list[str | int]] | list[str | int])
        ids = adapter.validate_python(content)
    except ValidationError as error:
        raise UserError(f"{key} must be a list of ids, one by benchmark, or a file of ids") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{key} cannot be read as ids ({error}); name a file, or list the ids") from error
    if not ids:
        raise UserError(f"{key} holds no ids; leave it out (null) for all examples")
    if isinstance(ids, list):
        return _sorted(ids)
    return {task: _sorted(task_ids) for task, task_ids in ids.items()}


def _sorted(ids: Sequence[str | int]) -> list[str]:
    return sorted({str(name) for name in ids} - {""})
