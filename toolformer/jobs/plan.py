"""The jobs of a command: of a stage typed alone one, of `toolformer run` those of an experiment.

An experiment lists its stages, each with the keys that it is swept over and their values (`run.stages`). A plan reads corpora
and runs, loads no model, and writes nothing.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolformer.errors import UserError
from toolformer.jobs import instantiate, steps
from toolformer.jobs.config import Config, compose, effective, validate, with_like
from toolformer.jobs.config.overrides import masked_overrides, parse, values, without, written
from toolformer.jobs.job import Job, Sources
from toolformer.jobs.perform import finished
from toolformer.jobs.sources import LATEST, resolve
from toolformer.results import Run
from toolformer.step import STAGES, ReadBy, marks_of

log = logging.getLogger(__name__)

_ORDER = [*STAGES]
_MADE_AGAIN = "run: files of %s run %s are gone or damaged; they are made again"


def plan(command: str, overrides: Sequence[str], differing: Sequence[str] = ()) -> list[Job]:
    """The jobs of a command with these overrides, in the order of the stages.

    Args:
        command: a stage, or `run`.
        differing: the overrides that distinguish it from the other commands of a sweep.

    UserError for bad input in any job.
    """
    if command == "run":
        return _experiments(overrides)
    typed, overrides = overrides, with_like(command, overrides)
    config = validate(compose(command, overrides), command)
    if (others := config.run.experiments) and command != "report":
        raise UserError(
            f"this experiment combines {len(others)} others; give toolformer {command} one of {', '.join(others)}"
        )
    job = make_job(command, config, overrides=overrides, differing=differing)
    if {override.key for override in parse(typed)} <= {"like", "name", "paths.root"}:
        for run_id in values(typed, "like"):
            if run_id != LATEST and not job.step.key().startswith(run_id):
                log.info(
                    "like: conf/ or the code has changed since run %s, so this will be another run", run_id
                )
    return [job]


def make_job(
    stage: str,
    config: Config,
    planned: Sequence[Job] = (),
    overrides: Sequence[str] = (),
    differing: Sequence[str] = (),
) -> Job:
    """The job of a stage with a valid configuration; the runs that it reads are named by their ids from here on.

    Args:
        planned: earlier jobs of the same plan.

    UserError if a run that it reads is not there, or does not fit.
    """
    sources = resolve(stage, config, planned, instantiate.finished_results(config))
    ids = _ids(stage, sources)
    used = effective(config, stage)
    for key, run_id in ids.items():
        setattr(used, key, run_id)
    if sources.training and config.model == LATEST:
        used.model = Config().model
    is_named = LATEST not in (config.checkpoint if sources.training else config.dataset, config.model)
    made = {job.step.key() for job in planned}
    return Job(
        stage,
        used,
        sources,
        steps.step_of(stage, used, sources),
        () if is_named else [key for key in sources.keys if key in made],
        (*(without(overrides, *ids) if ids else overrides), *(written(key, ids[key]) for key in ids)),
        tuple(differing),
    )


def _ids(stage: str, sources: Sources) -> dict[str, str]:
    """The keys that name the runs that a stage reads, with their ids."""
    if sources.training:
        return {"checkpoint": sources.training.key()}
    annotations = "+".join(step.key() for step in sources.annotations)
    return {"dataset": annotations} if annotations else {}


def survey(jobs: Sequence[Job]) -> tuple[dict[str, Run], list[Job]]:
    """The runs of the jobs that are done, by the job's key, and the jobs that are done or needed.

    A job is not needed if it is not done, but all that read it are. The files of a run may be gone, not damaged, if no job
    that is to be done reads it. Logs which results are made again.
    """
    done: dict[str, Run] = {}
    unused: list[Job] = []
    for job in reversed(jobs):
        readers = [reader for reader in jobs if job.step.key() in reader.reads]
        results = instantiate.finished_results(job.config)
        if readers and all(reader.key in done or reader in unused for reader in readers):
            run = results.find(job.step)
            unused += [] if run else [job]
            if run and not results.is_intact(run, or_gone=True):  # a report may read it
                log.info(_MADE_AGAIN, job.stage, job.key[:8])
                run = None
        else:
            run = finished(job, results)
            lost = None if run else results.find(job.step)
            if lost and (readers or not results.is_intact(lost)):  # it may lack answers alone
                log.info(_MADE_AGAIN, job.stage, job.key[:8])
        if run:
            done[job.key] = run
    return done, [job for job in jobs if job not in unused]


def check_data(jobs: Sequence[Job]) -> None:
    """Refuses a `paths.data_dir` without a benchmark's file before hours are spent on what the evaluation reads."""
    from toolformer.evaluation import suite

    for job in jobs:
        paths = job.config.paths
        if job.stage == "evaluate" and paths.data_dir:
            suite.check_data(job.config.benchmarks, paths.data_dir, paths.tasks_dir)


def _experiments(overrides: Sequence[str]) -> list[Job]:
    names = values(overrides, "experiment")
    if len(names) != 1 or not names[0] or "," in names[0]:
        raise UserError("run: name one experiment, for example toolformer run experiment=smoke")
    others = without(overrides, "experiment")
    overrides = [f"experiment={names[0]}", *others]
    jobs: dict[str, Job] = {}
    for name in validate(compose("report", overrides)).run.experiments or names:
        _collect([f"experiment={name}", *others], name, jobs)
    ordered = sorted(jobs.values(), key=lambda job: _ORDER.index(job.stage))
    _warn_of_unused(overrides, {job.stage for job in ordered})
    return _distinguished(ordered)


def _distinguished(jobs: Sequence[Job]) -> list[Job]:
    """The jobs, of several experiments, with the experiment's name where nothing else distinguishes them."""
    labels = Counter((job.stage, job.label) for job in jobs)
    return [
        job
        if labels[job.stage, job.label] == 1
        else replace(job, differing=(*job.differing, written("name", job.config.name)))
        for job in jobs
    ]


def _collect(overrides: Sequence[str], name: str, jobs: dict[str, Job]) -> None:
    """Adds an experiment's jobs."""
    stages = validate(compose("report", overrides)).run.stages
    if not stages:
        raise UserError(
            f"run: the experiment {name} has no run.stages; docs/experiments.md shows how to write one"
        )
    planned: dict[str, Job] = {}
    for stage in sorted(stages, key=_ORDER.index):
        for chosen in _choices(stages[stage], overrides):
            job_overrides = [*overrides, *chosen]
            config = validate(compose(stage, job_overrides))
            earlier = [*jobs.values(), *planned.values()]
            job = make_job(stage, config, earlier, job_overrides, chosen)
            if first := planned.get(job.key):
                names = (" ".join(masked_overrides(texts)) for texts in (chosen, first.differing))
                log.info("run: %s %s is the same work as %s", stage, *names)
            planned.setdefault(job.key, jobs.get(job.key) or job)
    last = max((stage for stage in stages if stage != "report"), key=_ORDER.index, default="report")
    needed = [job for job in planned.values() if job.stage in (last, "report")]
    for job in needed:  # and what they read: nothing is annotated or trained that nobody reads
        needed += [other for other in planned.values() if other.step.key() in job.reads]
    jobs |= {key: job for key, job in planned.items() if job in needed and key not in jobs}


def _choices(swept: Mapping[str, Sequence[Any]], overrides: Sequence[str]) -> Iterator[list[str]]:
    """The overrides of each job of a stage; a key that the command line sets is not swept over."""
    typed = {override.target for override in parse(overrides)}
    options = [[written(key, value) for value in swept[key]] for key in swept if key not in typed]
    for chosen in itertools.product(*options):
        yield [*chosen]


def _warn_of_unused(overrides: Sequence[str], stages: Collection[str]) -> None:
    """Names the overrides that only stages read whose results are named."""
    readers = {key: mark.stages for key, mark in marks_of(Config, ReadBy).items() if mark}
    parsed = parse(overrides)
    named = [
        override.text
        for override in parsed
        if override.key in ("dataset", "checkpoint") and override.value != LATEST
    ]
    unused = [
        override.text
        for override in parsed
        if not {"run", *stages} & {*readers.get(override.target.partition(".")[0], stages)}
    ]
    if unused and named:
        log.warning("run: %s has no effect together with %s", " ".join(masked_overrides(unused)), named[0])
