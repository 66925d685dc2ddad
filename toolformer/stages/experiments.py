"""Experiments that span stages: what is done, what is to do, and the doing (`toolformer run experiment=NAME`).

An experiment lists its stages, each with the keys that it is swept over (`run.stages`); the values are those of
hydra.sweeper.params. A job's data and model are those that the same configuration makes in the stages before.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from toolformer.decoding.settings import PAPER_SYSTEMS, SYSTEMS
from toolformer.errors import UserError
from toolformer.results import Run
from toolformer.results.provenance import command_of, masked_words
from toolformer.stages import instantiate, steps
from toolformer.stages.config import STAGES, Config, compose, validate
from toolformer.stages.config.multirun import Sweep as Choices
from toolformer.stages.config.multirun import parse
from toolformer.stages.launch import Jobs, apart, label, launch, run_stage
from toolformer.stages.sweep import Sweep, swept_keys
from toolformer.step import Step

log = logging.getLogger(__name__)

SHOWN = ("explain", "report")
"""Stages that show what others made."""


@dataclass(frozen=True)
class Job:
    """A stage with one configuration."""

    stage: str
    step: Step
    label: str
    """What distinguishes it from the other jobs of its stage."""
    overrides: Sequence[str]
    config: Config = field(repr=False, compare=False)
    """The configuration of these overrides."""
    source: Job | None
    """The job whose result it reads, unless that is named on the command line."""

    @property
    def key(self) -> str:
        """Jobs with the same key are the same work of the same experiment."""
        return f"{self.step.key()} {self.config.name}"

    @property
    def reads(self) -> dict[str, str]:
        """The key of the configuration that names the run it reads."""
        if self.source is None:
            return {}
        if self.stage == "explain":  # an evaluation with the same keys
            return self.source.reads
        return {"dataset" if self.source.stage == "generate" else "checkpoint": self.source.step.key()}


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
    """What `toolformer run` with these overrides has to do. Reads corpora and runs, loads no model, writes nothing.

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
    done, needless = _done(ordered)
    return Plan(name, overrides, [job for job in ordered if job not in needless], sweep.of_hydra, done)


def _done(jobs: Sequence[Job]) -> tuple[dict[str, Run], list[Job]]:
    """The runs of the jobs that are done, and the jobs that are not but whose readers all are.

    The files of a run may be gone, not damaged, if no job that is to be done reads it.
    """
    done: dict[str, Run] = {}
    needless = []
    for job in reversed(jobs):
        readers = [reader for reader in jobs if reader.source is job]
        results = instantiate.finished_results(job.config)
        if readers and all(reader.key in done or reader in needless for reader in readers):
            run = results.find(job.step)
            needless += [] if run else [job]
            if run and not results.is_intact(run, or_gone=True):  # a report may read it
                run = None
        else:
            run = steps.done(results, job.step, job.config)
            if run is None and readers and results.find(job.step):
                log.info("run: the files of %s run %s are gone; they are made again", job.stage, job.key[:8])
        if run:
            done[job.key] = run
    return done, needless


def _collect(overrides: Sequence[str], name: str, jobs: dict[str, Job]) -> None:
    """Adds an experiment's jobs."""
    sweep = parse("report", overrides)
    stages = validate(compose("report", sweep.fixed)).run.stages
    if not stages:
        raise UserError(
            f"run: the experiment {name} has no run.stages; docs/experiments.md shows how to write one"
        )
    planned: dict[str, Job] = {}
    steps_of: dict[tuple[str, ...], str] = {}
    for stage in sorted(stages, key=STAGES.index):
        for words in sweep.jobs(stage, stages):
            config = validate(compose(stage, words))
            swept = [word for word in words if word not in sweep.fixed]
            if stage in ("evaluate", "explain", "report"):
                swept += [f"name={config.name}" if stage == "report" else ",".join(config.benchmarks)]
            step, source = _step(stage, config, jobs | planned)
            job = Job(stage, step, " ".join(masked_words(swept)), words, config, source)
            planned.setdefault(job.key, jobs.get(job.key) or job)
            steps_of[stage, *words] = step.key()
    _check_choices(sweep, steps_of)
    last = max((stage for stage in stages if stage not in SHOWN), key=STAGES.index, default="report")
    wanted = [job for job in planned.values() if job.stage in (last, *SHOWN)]
    for job in wanted:  # and what they read: nothing is annotated or trained that nobody reads
        wanted += [job.source] if job.source else []
    jobs |= {key: job for key, job in planned.items() if job in wanted and key not in jobs}


def _step(stage: str, config: Config, jobs: Mapping[str, Job]) -> tuple[Step, Job | None]:
    """The step of a stage, and the job among these whose result it reads."""
    if stage == "generate":
        return steps.generate(config), None
    if stage == "train":
        source = _source("generate", config, jobs) if config.dataset == steps.LATEST else None
        return steps.train(config, [source.step] if source else None), source
    if stage == "evaluate":
        source = None
        if config.checkpoint == steps.LATEST and (data := SYSTEMS[config.system].trained_on):
            source = _source("train", replace(config, data=data), jobs)
            trained = {job.config.data for job in jobs.values() if job.stage == "train"}
            if source is None and trained and data not in trained:  # an older training may be of other texts
                others = ",".join(name for name in PAPER_SYSTEMS if SYSTEMS[name].trained_on != data)
                raise UserError(
                    f"run: system={config.system} reads a training with data={data}, which this sweep leaves out; "
                    f"add system={others}, or add {data} to data="
                )
        if source is None and config.heldout.source is None and config.dataset == steps.LATEST:
            annotation = _source("generate", config, jobs)  # whose held-out texts an untrained system reads
            step = steps.evaluate(config, None, annotation.step if annotation else None)
            return step, annotation if "heldout" in step.inputs else None
        return steps.evaluate(config, source.step if source else None), source
    if stage == "explain":
        step, _ = _step("evaluate", config, jobs)
        return steps.explain(config, step), _job(step, config, jobs)
    return steps.report(config), None


def _source(stage: str, config: Config, jobs: Mapping[str, Job]) -> Job | None:
    """The job of an earlier stage with this configuration, if it is planned."""
    if not any(job.stage == stage for job in jobs.values()):
        return None
    return _job(_step(stage, config, jobs)[0], config, jobs)


def _job(step: Step, config: Config, jobs: Mapping[str, Job]) -> Job | None:
    """The job of a step; of several experiments that share it that of this one."""
    alike = [job for job in jobs.values() if job.step == step]
    return next((job for job in alike if job.config.name == config.name), alike[0] if alike else None)


def _check_choices(sweep: Choices, steps_of: Mapping[tuple[str, ...], str]) -> None:
    """UserError for a swept key by which no work differs, since a run that is named has decided it already.

    Args:
        steps_of: the key of the step by the overrides of a job.
    """
    named = [word for word in sweep.fixed if re.match(r"(dataset|checkpoint)=(?!latest$)", word)]
    for key, values in sweep.choices.items() if named else ():
        others: dict[tuple[str, ...], set[str]] = {}
        for words, step in steps_of.items():
            if swept := {*values} & {*words}:
                others.setdefault(tuple(word for word in words if word not in swept), set()).add(step)
        if len(values) > 1 and others and all(len(distinct) == 1 for distinct in others.values()):
            listed = ",".join(value.partition("=")[2] for value in values)
            raise UserError(
                f"run: {key}={listed} makes no difference beside {named[0]}; leave one of the two out"
            )


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
    done = {*todo.done}
    for job in todo.jobs:  # done under another name, it belongs to this experiment too
        if run := todo.done.get(job.key):
            instantiate.finished_results(job.config).add_name(run, job.config.name)
    failed: list[Exception] = []
    for stage in STAGES:
        jobs = [job for job in todo.jobs if job.stage == stage and job.key not in done]
        if stage == "report":  # tables of what is there, also where something failed
            for job in jobs if done or not failed else ():
                try:
                    run_stage("report", job.config)
                except UserError as error:
                    failed.append(error)
            continue
        ready = [job for job in jobs if job.source is None or job.source.key in done]
        for job in jobs:
            if job not in ready:
                log.warning("%s: %s %s left out: what it reads has failed", todo.name, stage, job.label)
        for job, outcome in zip(ready, _side_by_side(todo, stage, ready), strict=True):
            if isinstance(outcome, Exception):
                failed.append(outcome)
            elif outcome:
                done.add(job.key)
    if failed:
        raise failed[0]
    log.info("%s: done in %.1f minutes", todo.name, (time.monotonic() - started) / 60)


def _side_by_side(todo: Plan, stage: str, jobs: Sequence[Job]) -> list[str | Exception | None]:
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
    overrides_of = [[*job.overrides, *(f"{key}={run}" for key, run in job.reads.items())] for job in jobs]
    done = [todo.done[job.key].id for job in every if job.key in todo.done]
    return launch(
        Jobs(stage, overrides_of, [label(differing[job.key]) for job in jobs], todo.of_hydra, sweep, done)
    )
