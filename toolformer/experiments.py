"""Experiments that span stages: what is done, what is to do, and the doing (`toolformer run experiment=NAME`).

An experiment lists its stages, each with the keys that it is swept over (`run.stages`); the values are those of
hydra.sweeper.params. One configuration serves every stage, so that a job's data and model are those that the same
configuration makes in the stages before. Interrupted and started again, only what is missing is done.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from toolformer import evaluate, generate, train
from toolformer.config import STAGES, Config, compose, fingerprint, validate
from toolformer.config.sweeps import parse
from toolformer.descriptions import command_of
from toolformer.errors import UserError
from toolformer.launch import launch, parent_run, run_stage

log = logging.getLogger(__name__)

LATEST = "latest"
_LATER = ("run", "benchmarks", "evaluation", "decoding", "system", "endpoint", "checkpoint")
_NOT_READ: Mapping[str, tuple[str, ...]] = {
    "generate": (*_LATER, "dataset", "data", "trainer", "heldout"),
    "train": _LATER,
    "evaluate": ("run", "dataset", "data"),
}
"""Keys that a stage does not read: jobs that differ in nothing else are one job."""
_FINISHED: Mapping[str, Callable[[Config], str | None]] = {
    "generate": generate.finished,
    "train": train.finished,
    "evaluate": evaluate.finished,
}


@dataclass(frozen=True)
class Job:
    """A stage with one configuration."""

    stage: str
    key: str
    """Its name among the jobs of the experiment."""
    shown: str
    """What tells it from the other jobs of its stage."""
    overrides: tuple[str, ...]
    needs: Job | None
    """The job whose result it reads, unless that is named on the command line."""

    def command(self, run_ids: Mapping[str, str]) -> list[str]:
        """Its overrides, with the run that it reads."""
        if self.needs is None:
            return list(self.overrides)
        reads = "dataset" if self.stage == "train" else "checkpoint"
        return [*self.overrides, f"{reads}={run_ids[self.needs.key]}"]


@dataclass(frozen=True)
class Plan:
    """All jobs of an experiment, in the order of the stages."""

    name: str
    overrides: tuple[str, ...]
    jobs: tuple[Job, ...]
    of_hydra: tuple[str, ...]
    """Overrides of Hydra itself: the launcher and its settings."""
    done: Mapping[str, str]
    """Keys of jobs that are done, with the ids of their runs."""

    def missing(self, stage: str) -> list[Job]:
        """The jobs of a stage that are to be done."""
        return [job for job in self.jobs if job.stage == stage and job.key not in self.done]


def plan(overrides: Sequence[str]) -> Plan:
    """What `toolformer run` with these overrides has to do. Reads corpora and the store, loads no model.

    Raises:
        UserError: no experiment that has stages is named, or bad input anywhere in it.
    """
    name = next((one.partition("=")[2] for one in overrides if one.startswith("experiment=")), "")
    if not name or "," in name:
        raise UserError("run: name one experiment, for example toolformer run experiment=smoke")
    jobs: dict[str, Job] = {}
    of_hydra: tuple[str, ...] = ()
    for member in validate(compose("report", _fixed(overrides))).run.experiments or [name]:
        own = [f"experiment={member}" if one == f"experiment={name}" else one for one in overrides]
        of_hydra = _collect(own, member, jobs)
    ordered = sorted(jobs.values(), key=lambda job: STAGES.index(job.stage))
    done: dict[str, str] = {}
    for job in ordered:
        if job.stage in _FINISHED and (job.needs is None or job.needs.key in done):
            run_id = _FINISHED[job.stage](validate(compose(job.stage, job.command(done))))
            if run_id:
                done[job.key] = run_id
    return Plan(name, tuple(overrides), tuple(ordered), of_hydra, done)


def _fixed(overrides: Sequence[str]) -> list[str]:
    return list(parse("report", overrides).fixed)


def _collect(overrides: Sequence[str], name: str, jobs: dict[str, Job]) -> tuple[str, ...]:
    """Adds an experiment's jobs; returns the overrides of Hydra itself."""
    sweep = parse("report", overrides)
    stages = validate(compose("report", sweep.fixed)).run.stages
    if not stages:
        raise UserError(
            f"run: the experiment {name} has no run.stages; give its stages by hand, or name another"
        )
    for stage in sorted(stages, key=STAGES.index):
        for words in sweep.jobs(stage, stages):
            config = validate(compose(stage, words))
            key = _key(stage, config)
            swept = [word for word in words if word not in sweep.fixed]
            if stage in ("evaluate", "report"):
                swept += [",".join(config.benchmarks) if stage == "evaluate" else f"name={config.name}"]
            jobs.setdefault(key, Job(stage, key, " ".join(swept), tuple(words), _needed(stage, config, jobs)))
    return sweep.of_hydra


def _key(stage: str, config: Config) -> str:
    if stage == "report":
        return fingerprint(stage, config.name, config.paths.root)
    return fingerprint(stage, {k: v for k, v in asdict(config).items() if k not in _NOT_READ[stage]})


def _needed(stage: str, config: Config, jobs: Mapping[str, Job]) -> Job | None:
    """The job that makes what this one reads, if the experiment has it and nothing else is named."""
    if stage == "train" and config.dataset == LATEST:
        return jobs.get(_key("generate", config))
    if stage == "evaluate" and config.checkpoint == LATEST and config.system in evaluate.TRAINED_ON:
        return jobs.get(_key("train", replace(config, data=evaluate.TRAINED_ON[config.system])))
    return None


def execute(todo: Plan) -> None:
    """Does what is missing, stage by stage.

    Raises:
        UserError: bad input; what is finished is kept, and the same command goes on.
    """
    started = time.monotonic()
    ids = dict(todo.done)
    for stage in STAGES:
        jobs = todo.missing(stage)
        if jobs and stage != "report":
            for number, job in enumerate(jobs, 1):
                log.info("%s: %s %d of %d %s", todo.name, stage, number, len(jobs), job.shown)
            parent = None
            if sum(job.stage == stage for job in todo.jobs) > 1:
                config = validate(compose(stage, jobs[0].overrides))
                told = sorted(set(todo.overrides) - set(todo.of_hydra))  # whichever launcher goes on
                command = command_of("run", todo.overrides)
                parent = parent_run(config, f"{todo.name}: {stage}", todo.name, stage, told, command=command)
            found = launch(stage, [job.command(ids) for job in jobs], todo.of_hydra, parent)
            ids |= {job.key: run_id for job, run_id in zip(jobs, found, strict=True) if run_id}
        for job in jobs if stage == "report" else ():
            run_stage(stage, validate(compose(stage, job.overrides)))
    log.info("%s: done in %.1f minutes", todo.name, (time.monotonic() - started) / 60)
