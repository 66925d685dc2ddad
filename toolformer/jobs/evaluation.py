"""What an evaluation is: its system, its questions, and the steps that name its results.

Two steps. *Answer* is one system asked anything: its folder holds the answers, which evaluations of further benchmarks
share. *Evaluate* is these questions, put to it and scored.
"""

import datetime
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolformer.benchmarks import PAPER
from toolformer.decoding.settings import SYSTEMS
from toolformer.jobs import steps
from toolformer.jobs.config import Config
from toolformer.jobs.samples import Samples, sample_ids
from toolformer.jobs.system import System
from toolformer.jobs.versions import VERSIONS
from toolformer.step import Step, Varies
from toolformer.storage import atomic_write

log = logging.getLogger(__name__)

ANSWERS = "answers.jsonl"


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
    def description(self) -> dict[str, str]:
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
            "comparison": comparison_key(self.config),
            "wording": self.config.wording,
            **({"baseline": self.system.baseline} if self.system.baseline else {}),
        }


def prepare(config: Config) -> Evaluation:
    """An evaluation as configured. UserError if there is no such benchmark, train run or file of samples."""
    system = System.find(config)
    step = steps.evaluate(config, system.trained.step if system.trained else None)
    return Evaluation(system, step.settings["benchmarks"], step.inputs["samples"], step)


def comparison_key(config: Config) -> str:
    """A hash that evaluations share which may be in one table: they have the same tools, limits, samples and versions.

    Neither the place of the data nor the held-out texts count: copied runs, and those of further benchmarks, are compared too.
    """
    tools = steps.with_tools(config, config.tools)
    settings = {step: steps.deciding_settings(tools, step, without=Varies) for step in ("answer", "evaluate")}
    inputs = {"samples": sample_ids(config.evaluation.samples), "answer": VERSIONS["answer"]}
    return Step("evaluate", VERSIONS["evaluate"], settings, inputs).key()


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
