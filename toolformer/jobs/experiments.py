"""Experiments that span stages: what is done, what is to do, and the doing (`toolformer run experiment=NAME`).

An experiment lists its stages, each with the keys that it is swept over and their values (`run.stages`). A job's data and
model are those that the same configuration makes in the earlier stages.
"""

from __future__ import annotations

import gc
import itertools
import json
import logging
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toolformer.decoding.settings import PAPER_SYSTEMS, SYSTEMS
from toolformer.errors import UserError, one_line
from toolformer.jobs import instantiate, steps
from toolformer.jobs.config import Config, compose, validate
from toolformer.jobs.config.overrides import command_of, masked_overrides
from toolformer.jobs.invocation import Invocation, run_stage, title_label
from toolformer.results import Run
from toolformer.step import STAGES, ReadBy, Step, marks_of

log = logging.getLogger(__name__)

_ORDER = [*STAGES]
_SHOWING = ("explain", "report")
"""Stages that show what others made."""


@dataclass(frozen=True)
class Job:
    """A stage with one configuration."""

    stage: str
    step: Step
    label: str
    """What distinguishes it from the other jobs of its stage."""
    overrides: Sequence[str]
    chosen: Sequence[str]
    """Those of them that this stage is swept over."""
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
    jobs: Sequence[Job]
    done: Mapping[str, Run]
    """The runs of jobs that are done, by the job's key."""


def plan(overrides: Sequence[str]) -> Plan:
    """What `toolformer run` with these overrides has to do. Reads corpora and runs, loads no model, writes nothing.

    UserError for bad input in any job.
    """
    overrides = [override.lstrip("+") if "+experiment=" in override else override for override in overrides]
    names = [override.partition("=")[2] for override in overrides if override.startswith("experiment=")]
    if len(names) != 1 or not names[0] or "," in names[0]:
        raise UserError("run: name one experiment, for example toolformer run experiment=smoke")
    (name,) = names
    jobs: dict[str, Job] = {}
    for member in validate(compose("report", overrides)).run.experiments or [name]:
        of_member = [
            f"experiment={member}" if override.startswith("experiment=") else override
            for override in overrides
        ]
        _collect(of_member, member, jobs)
    ordered = sorted(jobs.values(), key=lambda job: _ORDER.index(job.stage))
    _warn_of_moot(overrides, {job.stage for job in ordered})
    done, needless = _done(ordered)
    return Plan(name, [job for job in ordered if job not in needless], done)


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
    stages = validate(compose("report", overrides)).run.stages
    if not stages:
        raise UserError(
            f"run: the experiment {name} has no run.stages; docs/experiments.md shows how to write one"
        )
    planned: dict[str, Job] = {}
    step_keys: dict[tuple[str, ...], str] = {}
    for stage in sorted(stages, key=_ORDER.index):
        for chosen in _choices(stages[stage], overrides):
            job_overrides = [*overrides, *chosen]
            config = validate(compose(stage, job_overrides))
            label = [*chosen]
            if stage in ("evaluate", "explain", "report"):
                label += [f"name={config.name}" if stage == "report" else ",".join(config.benchmarks)]
            step, source = _step(stage, config, jobs | planned)
            job = Job(stage, step, " ".join(masked_overrides(label)), job_overrides, chosen, config, source)
            planned.setdefault(job.key, jobs.get(job.key) or job)
            step_keys[stage, *chosen] = step.key()
    _check_choices(stages, overrides, step_keys)
    last = max((stage for stage in stages if stage not in _SHOWING), key=_ORDER.index, default="report")
    needed = [job for job in planned.values() if job.stage in (last, *_SHOWING)]
    for job in needed:  # and what they read: nothing is annotated or trained that nobody reads
        needed += [job.source] if job.source else []
    jobs |= {key: job for key, job in planned.items() if job in needed and key not in jobs}


def _choices(swept: Mapping[str, Sequence[Any]], overrides: Sequence[str]) -> Iterator[list[str]]:
    """The overrides of each job of a stage; a key that the command line sets is not swept over."""
    values = [
        [f"{key}={_written(value)}" for value in values]
        for key, values in swept.items()
        if key not in _keys(overrides)
    ]
    for chosen in itertools.product(*values):
        yield [*chosen]


def _keys(overrides: Sequence[str]) -> set[str]:
    return {override.lstrip("+~").partition("=")[0] for override in overrides}


def _written(value: Any) -> str:
    """A value as an override has it."""
    is_plain = isinstance(value, str) and re.fullmatch(r"[\w./-]+", value, re.ASCII)
    return str(value) if is_plain else json.dumps(value)


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


def _check_choices(
    stages: Mapping[str, Mapping[str, Sequence[Any]]],
    overrides: Sequence[str],
    step_keys: Mapping[tuple[str, ...], str],
) -> None:
    """UserError for a key of `run.stages` by which no work differs, since a run that is named has decided it already.

    Args:
        step_keys: the key of the step by the stage and what was chosen for it.
    """
    swept = {key: values for keys in stages.values() for key, values in keys.items()}
    named = _named_runs(overrides)
    for key, values in swept.items() if named else ():
        options = {f"{key}={_written(value)}" for value in values}
        others: dict[tuple[str, ...], set[str]] = {}
        for chosen, step in step_keys.items():
            if options & {*chosen}:
                others.setdefault(
                    tuple(override for override in chosen if override not in options), set()
                ).add(step)
        if len(values) > 1 and others and all(len(distinct) == 1 for distinct in others.values()):
            raise UserError(
                f"run: {key}={','.join(map(_written, values))} makes no difference beside {named[0]}; leave one of the two out"
            )


def _named_runs(overrides: Sequence[str]) -> list[str]:
    return [override for override in overrides if re.match(r"(dataset|checkpoint)=(?!latest$)", override)]


def _warn_of_moot(overrides: Sequence[str], stages: Collection[str]) -> None:
    """Names the overrides that only stages read whose results are named."""
    readers = {key: mark.stages for key, mark in marks_of(Config, ReadBy).items() if mark}
    moot = [
        override
        for override in masked_overrides(overrides)
        for key in _keys([override])
        if not {"run", *stages} & {*readers.get(key.partition(".")[0], stages)}
    ]
    if moot and (named := _named_runs(overrides)):
        log.warning("run: %s makes no difference beside %s", " ".join(moot), named[0])


def check_data(plan: Plan) -> None:
    """Refuses a `paths.data_dir` without a benchmark's file before hours are spent on what the evaluation reads."""
    from toolformer.evaluation import suite

    for job in plan.jobs:
        if job.stage == "evaluate" and job.key not in plan.done and job.config.paths.data_dir:
            paths = job.config.paths
            suite.check_data(job.config.benchmarks, paths.data_dir, paths.tasks_dir)


def execute(todo: Plan) -> list[Run]:
    """Does what is missing, stage by stage; returns the runs of all jobs, in their order.

    Raises:
        UserError: bad input; what is finished is kept, and the same command resumes.
        Exception: what the first job that failed had raised, after all jobs that do not read its result, and the report.
    """
    from toolformer.jobs.report import report

    started = time.monotonic()
    runs = dict(todo.done)
    for job in todo.jobs:  # done under another name, it belongs to this experiment too
        if run := todo.done.get(job.key):
            instantiate.finished_results(job.config).add_name(run, job.config.name)
    errors: list[Exception] = []
    for number, job in enumerate(todo.jobs, 1):
        if job.key in runs:
            continue
        if job.source and job.source.key not in runs:
            log.warning("%s: %s %s left out: what it reads has failed", todo.name, job.stage, job.label)
            continue
        try:
            if job.stage == "report":  # tables of what is there, also where something failed
                if runs or not errors:
                    report(job.config, brief=True)
                continue
            log.info(
                "%s: %d of %d, %s", todo.name, number, len(todo.jobs), f"{job.stage} {job.label}".strip()
            )
            runs[job.key] = _run(job)
        except Exception as error:
            log.error("%s: failed: %s", f"{job.stage} {job.label}".strip(), one_line(error, 1000))
            errors.append(error)
    if errors:
        raise errors[0]
    log.info("%s: done in %.1f minutes", todo.name, (time.monotonic() - started) / 60)
    return [runs[job.key] for job in todo.jobs if job.key in runs]


def _run(job: Job) -> Run:
    gc.collect()  # models of earlier jobs
    overrides = [*job.overrides, *(f"{key}={run}" for key, run in job.reads.items())]
    invocation = Invocation(command_of(job.stage, overrides), label=title_label(job.chosen))
    dataset, checkpoint = (job.reads.get(key, getattr(job.config, key)) for key in ("dataset", "checkpoint"))
    run: Run = run_stage(job.stage, replace(job.config, dataset=dataset, checkpoint=checkpoint), invocation)
    return run
