"""Experiments that span stages: what is done, what is to do, and the doing (`toolformer run experiment=NAME`).

An experiment lists its stages, each with the keys that it is swept over (`run.stages`); the values are those of
hydra.sweeper.params. One configuration serves every stage, so that a job's data and model are those that the same
configuration makes in the stages before. Interrupted and started again, only what is missing is done.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from toolformer import build, evaluate, generate, train
from toolformer.config import STAGES, Config, compose, fingerprint, validate
from toolformer.config.sweeps import parse
from toolformer.descriptions import command_of
from toolformer.errors import UserError
from toolformer.launch import launch, parent_run, raise_first, run_stage
from toolformer.unread import OF_TOOLS, UNREAD, without

log = logging.getLogger(__name__)

LATEST = "latest"
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
    config: Config = field(repr=False, compare=False)
    """What the overrides say."""
    needs: Job | None
    """The job whose result it reads, unless that is named on the command line."""

    def command(self, run_ids: Mapping[str, str]) -> list[str]:
        """Its overrides, with the run that it reads."""
        return [*self.overrides, *(f"{key}={run_id}" for key, run_id in self._reads(run_ids).items())]

    def configured(self, run_ids: Mapping[str, str]) -> Config:
        """Its configuration, with the run that it reads."""
        return replace(self.config, **self._reads(run_ids))

    def _reads(self, run_ids: Mapping[str, str]) -> dict[str, Any]:
        if self.needs is None:
            return {}
        return {"dataset" if self.stage == "train" else "checkpoint": run_ids[self.needs.key]}


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
    # With a plus it says the same, and Hydra would not take it.
    overrides = [one.lstrip("+") if _names_experiment(one) else one for one in overrides]
    names = [one.partition("=")[2] for one in overrides if _names_experiment(one)]
    name = names[0] if names else ""
    if not name or "," in name or len(names) > 1:
        raise UserError("run: name one experiment, for example toolformer run experiment=smoke")
    jobs: dict[str, Job] = {}
    of_hydra: tuple[str, ...] = ()
    for member in validate(compose("report", _fixed(overrides))).run.experiments or [name]:
        own = [f"experiment={member}" if _names_experiment(one) else one for one in overrides]
        of_hydra = _collect(own, member, jobs)
    ordered = sorted(jobs.values(), key=lambda job: STAGES.index(job.stage))
    done: dict[str, str] = {}
    for job in ordered:
        if job.stage in _FINISHED and (job.needs is None or job.needs.key in done):
            if job.stage == "generate":  # a large corpus takes its time
                log.info("%s: reading the corpus (%s) to see what is done", name, job.config.corpus.source)
            run_id = _FINISHED[job.stage](job.configured(done))
            if run_id:
                done[job.key] = run_id
    return Plan(name, tuple(overrides), tuple(ordered), of_hydra, _still_of_use(ordered, done))


def _still_of_use(jobs: Sequence[Job], done: Mapping[str, str]) -> dict[str, str]:
    """What is done, without the jobs whose results are gone while a job that is to be done reads them."""
    left = dict(done)
    read = {job.needs.key for job in jobs if job.needs}
    for job in reversed(jobs):
        missing = any(one.needs is job and one.key not in left for one in jobs)
        if job.key in left and (missing or job.key not in read) and not _is_there(job, left):
            log.info("run: the results of %s run %s are gone; they are made again", job.stage, left[job.key])
            del left[job.key]
    return left


def _is_there(job: Job, done: Mapping[str, str]) -> bool:
    """Whether what a finished job left can still be read."""
    if job.stage not in ("generate", "train"):
        return True
    config = job.config
    tracker = build.tracker(config.paths.root, config.tracking)
    run = tracker.get(done[job.key])
    if job.stage == "generate":
        return generate.results(tracker, run, generate.READ_BY_TRAINING) is not None
    try:
        return evaluate.model_folder(tracker, run).is_dir()
    except UserError:
        return False


def _names_experiment(override: str) -> bool:
    return override.lstrip("+").startswith("experiment=")


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
    found: dict[str, Job] = {}
    for stage in sorted(stages, key=STAGES.index):
        for words in sweep.jobs(stage, stages):
            config = validate(compose(stage, words))
            key = _key(stage, config)
            swept = [word for word in words if word not in sweep.fixed]
            if stage in ("evaluate", "report"):
                swept += [",".join(config.benchmarks) if stage == "evaluate" else f"name={config.name}"]
            needs = _needed(stage, config, jobs | found)
            found.setdefault(
                key, jobs.get(key) or Job(stage, key, " ".join(swept), tuple(words), config, needs)
            )
    for key, job in found.items():
        if _is_read(job, found, stages):
            jobs.setdefault(key, job)
    return sweep.of_hydra


def _is_read(job: Job, jobs: Mapping[str, Job], stages: Mapping[str, Sequence[str]]) -> bool:
    """Whether an experiment wants a job: those of its last stage before the report, and what they read."""
    last = max((stage for stage in stages if stage != "report"), key=STAGES.index, default="report")
    if job.stage in (last, "report"):
        return True
    return any(one.needs is job and _is_read(one, jobs, stages) for one in jobs.values())


def _key(stage: str, config: Config) -> str:
    """Jobs with the same key are the same work."""
    if stage == "report":
        return fingerprint(stage, config.name, config.paths.root)
    left_out = UNREAD[stage]
    upstream: str | None = None
    if stage == "train" and config.dataset == LATEST:
        upstream = _key("generate", config)
    if stage == "evaluate":
        if config.system in evaluate.TRAINED_ON:
            upstream = _key("train", _trained_by(config))
        if not evaluate.calls(config):
            left_out += OF_TOOLS
            config = replace(config, decoding=replace(config.decoding, k=0))
    return fingerprint(stage, without(asdict(config), left_out), upstream)


def _trained_by(config: Config) -> Config:
    """The configuration of the training whose model an evaluation reads."""
    return replace(config, data=evaluate.TRAINED_ON[config.system])


def _needed(stage: str, config: Config, jobs: Mapping[str, Job]) -> Job | None:
    """The job that makes what this one reads, if the experiment has it and nothing else is named."""
    if stage == "train" and config.dataset == LATEST:
        return jobs.get(_key("generate", config))
    if stage == "evaluate" and config.checkpoint == LATEST and config.system in evaluate.TRAINED_ON:
        return jobs.get(_key("train", _trained_by(config)))
    return None


def execute(todo: Plan) -> None:
    """Does what is missing, stage by stage.

    Raises:
        UserError: bad input; what is finished is kept, and the same command goes on.
        Exception: what the first job that failed had raised, after the others of its stage, what does not read its
            result, and the report.
    """
    started = time.monotonic()
    ids = dict(todo.done)
    failed: list[Exception] = []
    for stage in STAGES:
        jobs = todo.missing(stage)
        if stage == "report":
            failed += _report(jobs) if ids or not failed else []
            continue
        ready = [job for job in jobs if job.needs is None or job.needs.key in ids]
        for job in jobs:
            if job not in ready:
                log.warning("%s: %s %s left out: what it reads has failed", todo.name, stage, job.shown)
        found = _side_by_side(todo, stage, ready, ids) if ready else []
        ids |= {job.key: one for job, one in zip(ready, found, strict=True) if isinstance(one, str)}
        failed += [one for one in found if isinstance(one, Exception)]
    raise_first(failed)
    log.info("%s: done in %.1f minutes", todo.name, (time.monotonic() - started) / 60)


def _side_by_side(
    todo: Plan, stage: str, jobs: Sequence[Job], ids: Mapping[str, str]
) -> list[str | Exception | None]:
    """The jobs of a stage below one parent run; of each the run's id, or what it raised."""
    log.info(
        "%s: %s, %d of %d to do", todo.name, stage, len(jobs), sum(job.stage == stage for job in todo.jobs)
    )
    parent = None
    if sum(job.stage == stage for job in todo.jobs) > 1:
        told = sorted(set(todo.overrides) - set(todo.of_hydra))  # whichever launcher goes on
        command = command_of("run", todo.overrides)
        name = f"{todo.name}: {stage}"
        parent = parent_run(jobs[0].config, name, todo.name, stage, told, command=command)
    return launch(stage, [job.command(ids) for job in jobs], todo.of_hydra, parent)


def _report(jobs: Sequence[Job]) -> list[Exception]:
    """Tables of what is there, also where something failed; returns what went wrong."""
    failed: list[Exception] = []
    for job in jobs:
        try:
            run_stage("report", job.config)
        except UserError as error:
            failed.append(error)
    return failed
