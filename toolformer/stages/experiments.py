"""Experiments that span stages: what is done, what is to do, and the doing (`toolformer run experiment=NAME`).

An experiment lists its stages, each with the keys that it is swept over (`run.stages`); the values are those of
hydra.sweeper.params. A job's data and model are those that the same configuration makes in the stages before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toolformer.decoding.settings import PAPER_SYSTEMS, SYSTEMS
from toolformer.errors import UserError
from toolformer.results import Run
from toolformer.results.folder import add_name
from toolformer.results.provenance import command_of, masked_words
from toolformer.stages import evaluate, explain, generate, instantiate, train
from toolformer.stages.config import STAGES, Config, compose, validate
from toolformer.stages.config.multirun import parse
from toolformer.stages.identity import deciding
from toolformer.stages.launch import Jobs, apart, label, launch, run_stage
from toolformer.stages.sweep import Sweep, swept_keys
from toolformer.stages.system import LATEST, System
from toolformer.step import Step

log = logging.getLogger(__name__)

_FINISHED: Mapping[str, Callable[[Config], Run | None]] = {
    "generate": generate.finished,
    "train": train.finished,
    "evaluate": evaluate.finished,
    "explain": explain.finished,
}


@dataclass(frozen=True)
class Job:
    """A stage with one configuration."""

    stage: str
    key: str
    """Jobs with the same key are the same work."""
    shown: str
    """What distinguishes it from the other jobs of its stage."""
    overrides: Sequence[str]
    config: Config = field(repr=False, compare=False)
    """The configuration of these overrides."""
    needs: Job | None
    """The job whose result it reads, unless that is named on the command line."""

    def reads(self, run_ids: Mapping[str, str]) -> dict[str, Any]:
        """The key that names the run it reads."""
        if self.needs is None:
            return {}
        if self.stage == "explain":  # an evaluation with the same keys
            return self.needs.reads(run_ids)
        return {"dataset" if self.stage == "train" else "checkpoint": run_ids[self.needs.key]}


@dataclass(frozen=True)
class Plan:
    """All jobs of an experiment, in the order of the stages."""

    name: str
    overrides: Sequence[str]
    jobs: Sequence[Job]
    of_hydra: Sequence[str]
    """Overrides of Hydra itself: the launcher and its settings."""
    done: Mapping[str, Run]
    """The runs of jobs that are done, by the job's key."""


def plan(overrides: Sequence[str]) -> Plan:
    """What `toolformer run` with these overrides has to do. Reads corpora and the store, loads no model.

    UserError for bad input in any job.
    """
    overrides = [word.lstrip("+") if "+experiment=" in word else word for word in overrides]
    names = [word.partition("=")[2] for word in overrides if word.startswith("experiment=")]
    if len(names) != 1 or not names[0] or "," in names[0]:
        raise UserError("run: name one experiment, for example toolformer run experiment=smoke")
    (name,) = names
    jobs: dict[str, Job] = {}
    sweep = parse("report", overrides)
    for member in validate(compose("report", sweep.fixed)).run.experiments or [name]:
        own = [f"experiment={member}" if word.startswith("experiment=") else word for word in overrides]
        _collect(own, member, jobs)
    ordered = sorted(jobs.values(), key=lambda job: STAGES.index(job.stage))
    return Plan(name, overrides, ordered, sweep.of_hydra, _done(ordered))


def _done(jobs: Sequence[Job]) -> dict[str, Run]:
    """The runs of the jobs that are done, without those whose files are gone while a job that is to be done reads them."""
    done: dict[str, Run] = {}
    for job in jobs:
        if job.stage in _FINISHED and (job.needs is None or job.needs.key in done):
            ids = {key: run.id for key, run in done.items()}
            if run := _FINISHED[job.stage](replace(job.config, **job.reads(ids))):
                done[job.key] = run
    for job in reversed(jobs):
        is_read = any(reader.needs is job and reader.key not in done for reader in jobs)
        if is_read and job.key in done and not _can_be_read(job, done[job.key]):
            log.info("run: the files of %s run %s are gone; they are made again", job.stage, done[job.key].id)
            del done[job.key]
    return done


def _can_be_read(job: Job, run: Run) -> bool:
    """Whether what a finished job left can still be read."""
    if job.stage == "generate":
        return generate.has_dataset(instantiate.results(job.config), run)
    if job.stage == "evaluate":
        return True
    try:
        return train.model_folder(run).is_dir()
    except UserError:
        return False


def _collect(overrides: Sequence[str], name: str, jobs: dict[str, Job]) -> None:
    """Adds an experiment's jobs."""
    sweep = parse("report", overrides)
    stages = validate(compose("report", sweep.fixed)).run.stages
    if not stages:
        raise UserError(
            f"run: the experiment {name} has no run.stages; docs/experiments.md shows how to write one"
        )
    found: dict[str, Job] = {}
    for stage in sorted(stages, key=STAGES.index):
        for words in sweep.jobs(stage, stages):
            config = validate(compose(stage, words))
            key = _key(stage, config)
            swept = [word for word in words if word not in sweep.fixed]
            if stage in ("evaluate", "explain", "report"):
                swept += [f"name={config.name}" if stage == "report" else ",".join(config.benchmarks)]
            upstream = _upstream(stage, config)
            needs = (jobs | found).get(_key(*upstream)) if upstream else None
            trained = {job.config.data for job in found.values() if job.stage == "train"}
            if stage == "evaluate" and upstream and not needs and trained and upstream[1].data not in trained:
                data = upstream[1].data  # an older training may be of other texts
                others = ",".join(name for name in PAPER_SYSTEMS if SYSTEMS[name].trained_on != data)
                raise UserError(
                    f"run: system={config.system} reads a training with data={data}, which this sweep leaves out; "
                    f"add system={others}, or add {data} to data="
                )
            job = Job(stage, key, " ".join(masked_words(swept)), words, config, needs)
            found.setdefault(key, jobs.get(key) or job)
    shown = ("explain", "report")
    last = max((stage for stage in stages if stage not in shown), key=STAGES.index, default="report")
    wanted = [job for job in found.values() if job.stage in (last, *shown)]
    for job in wanted:  # and what they read: nothing is annotated or trained that nobody reads
        wanted += [job.needs] if job.needs else []
    jobs |= {key: job for key, job in found.items() if job in wanted and key not in jobs}


_STEPS = {
    "generate": ("documents", "generate"),
    "train": ("train", "heldout"),
    "evaluate": ("answer", "evaluate", "heldout"),
    "explain": ("answer", "evaluate", "heldout"),
}
"""The steps whose settings decide a stage's result, for stages whose inputs are not known yet."""


def _key(stage: str, config: Config) -> str:
    """Jobs with the same key are the same work."""
    if stage == "report":
        return Step("report", 1, {"name": config.name, "root": config.paths.root}).key()
    settings: dict[str, Any] = {step: deciding(config, step) for step in _STEPS[stage]}
    settings |= {"name": config.name, "data_dir": config.paths.data_dir, "tasks_dir": config.paths.tasks_dir}
    inputs: dict[str, Any] = {"model": config.model, "samples": config.evaluation.samples}
    if stage == "generate":
        inputs["annotation"] = generate.annotation(config)
    elif stage == "train":
        inputs["dataset"] = config.dataset
    else:
        system = System(config)
        settings["answer"]["decoding"] = system.decoding
        if not system.calls:
            del settings["answer"]["tool"]
        inputs["checkpoint"] = config.checkpoint
    if upstream := _upstream(stage, config):
        inputs["upstream"] = _key(*upstream)
    return Step(stage, 1, settings, inputs).key()


def _upstream(stage: str, config: Config) -> tuple[str, Config] | None:
    """The stage and the configuration whose result a job reads, where no run is named."""
    if stage == "train" and config.dataset == LATEST:
        return "generate", config
    if stage == "evaluate" and config.checkpoint == LATEST and SYSTEMS[config.system].trained_on:
        return "train", replace(config, data=SYSTEMS[config.system].trained_on)
    if stage == "explain":
        return "evaluate", config
    return None


def check_data(plan: Plan) -> None:
    """Refuses a `paths.data_dir` without a benchmark's file before hours are spent on what the evaluation reads."""
    from toolformer.evaluation import suite

    for job in plan.jobs:
        if job.stage == "evaluate" and job.key not in plan.done and job.config.paths.data_dir:
            paths = job.config.paths
            suite.check_data(job.config.benchmarks, paths.data_dir, paths.tasks_dir)


def execute(todo: Plan) -> None:
    """Does what is missing, stage by stage.

    Raises:
        UserError: bad input; what is finished is kept, and the same command resumes.
        Exception: what the first job that failed had raised, after the others of its stage, what does not read its
            result, and the report.
    """
    started = time.monotonic()
    ids = {key: run.id for key, run in todo.done.items()}
    for job in todo.jobs:  # done under another name, it belongs to this experiment too
        if job.key in todo.done:
            add_name(todo.done[job.key].folder, job.config.name)
    failed: list[Exception] = []
    for stage in STAGES:
        jobs = [job for job in todo.jobs if job.stage == stage and job.key not in ids]
        if stage == "report":  # tables of what is there, also where something failed
            for job in jobs if ids or not failed else ():
                try:
                    run_stage("report", job.config)
                except UserError as error:
                    failed.append(error)
            continue
        ready = [job for job in jobs if job.needs is None or job.needs.key in ids]
        for job in jobs:
            if job not in ready:
                log.warning("%s: %s %s left out: what it reads has failed", todo.name, stage, job.shown)
        for job, outcome in zip(ready, _side_by_side(todo, stage, ready, ids), strict=True):
            if isinstance(outcome, Exception):
                failed.append(outcome)
            elif outcome:
                ids[job.key] = outcome
    if failed:
        raise failed[0]
    log.info("%s: done in %.1f minutes", todo.name, (time.monotonic() - started) / 60)


def _side_by_side(
    todo: Plan, stage: str, jobs: Sequence[Job], ids: Mapping[str, str]
) -> list[str | Exception | None]:
    """The jobs of a stage as a sweep; of each the run's id, or what it raised."""
    if not jobs:
        return []
    every = [job for job in todo.jobs if job.stage == stage]
    log.info("%s: %s, %d of %d to do", todo.name, stage, len(jobs), len(every))
    # Of all its jobs, done or not: what distinguishes a run does not depend on when it is made.
    differing = dict(zip([job.key for job in every], apart([job.overrides for job in every]), strict=True))
    sweep = None
    if len(every) > 1:
        overrides = sorted(set(todo.overrides) - set(todo.of_hydra))  # whichever launcher resumes
        sweep = Sweep(
            jobs[0].config,
            stage,
            todo.name,
            [todo.name, stage, *overrides],
            swept_keys(differing.values()),
            command_of("run", todo.overrides),
        )
    overrides_of = [
        [*job.overrides, *(f"{key}={run}" for key, run in job.reads(ids).items())] for job in jobs
    ]
    done = [ids[job.key] for job in every if job.key in ids]
    return launch(
        Jobs(stage, overrides_of, [label(differing[job.key]) for job in jobs], todo.of_hydra, sweep, done)
    )
