"""Doing jobs: what is done is found, what is not is opened, shared with other processes, finished and logged. Here alone.

A stage's module has a `Work`, which knows neither locks nor whether there is anything to do.
"""

from __future__ import annotations

import gc
import importlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from graphlib import TopologicalSorter
from typing import Any, Protocol

from toolformer.errors import UserError, one_line
from toolformer.jobs import instantiate
from toolformer.jobs.config.overrides import command_of, masked_overrides, without
from toolformer.jobs.job import Job
from toolformer.results import Folder, Results, Run, RunInfo
from toolformer.results.provenance import describe, git_commit, run_name
from toolformer.training import distributed

log = logging.getLogger(__name__)

_IN_TITLES = ("system", "decoding.k", "seed", "model", "data", "dataset", "checkpoint", "wording", "name")
"""Keys that a run's title shows anyway."""
PATIENCE = 2.0
"""Seconds for which processes that train together wait for another command, since they cannot wait one by one."""


class Work(Protocol):
    """The work of a stage, made with a job and the results to read and write."""

    def __init__(self, job: Job, results: Results) -> None: ...

    @property
    def name(self) -> str:
        """The title of the run."""

    @property
    def title(self) -> str:
        """Title of the work and its inputs, for the log."""

    @property
    def details(self) -> Mapping[str, object]:
        """Lines of the run's description."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """As `Run.facts`, known from the start."""

    @property
    def processes(self) -> int:
        """How many processes are to be started that do it together; 1 if this one does it, alone or beside those of a launcher."""

    def check(self) -> None:
        """UserError for bad input, before a run begins and before anything that takes long."""

    def share(self, folder: Folder | None) -> None:
        """Does the part that several processes can share: when this returns all of it is done, here or elsewhere.

        Args:
            folder: of the run, in the process that leads.
        """

    def finish(self, folder: Folder) -> None:
        """Does the part of a single process, and writes it into the run's folder."""

    def log(self, how: str, run: Run) -> None:
        """Logs a finished run; `how` it came to be: done, already done."""


def execute(jobs: Sequence[Job], done: Mapping[str, Run] | None = None, parent: str = "") -> list[Run]:
    """Performs jobs, each after those whose results it reads; returns the runs of all of them, in their order.

    Args:
        done: the runs of those that are done, by the job's key.
        parent: the sweep or the experiment that they belong to.

    Raises:
        UserError: bad input; what is finished is kept, and the same command resumes.
        Exception: what the first job that failed had raised, after all jobs that do not read its result, and the reports.
    """
    from toolformer.jobs.report import write_report

    started, runs, failed = time.monotonic(), dict(done or {}), dict[str, Exception]()
    by_key = {job.key: job for job in jobs}
    for key, run in runs.items():  # done under another name, it belongs to this experiment too
        instantiate.finished_results(by_key[key].config).add_name(run, by_key[key].config.name)
    order = TopologicalSorter(
        {
            job.key: [other.key for other in jobs if other.step.key() in job.reads]
            for job in jobs
            if job.stage != "report"
        }
    )
    order.prepare()
    numbers = {job.key: number for number, job in enumerate(jobs, 1)}
    while ready := sorted(order.get_ready(), key=numbers.__getitem__):
        for key in ready:  # one that fails is not done, so that none that reads it gets ready
            job = by_key[key]
            try:
                if key not in runs:
                    if len(jobs) > 1:
                        log.info("%d of %d, %s", numbers[key], len(jobs), f"{job.stage} {job.label}".strip())
                    gc.collect()  # models of earlier jobs
                    if made := perform(job, parent):
                        runs[key] = made
                order.done(key)
            except Exception as error:
                failed[key] = error
                if len(jobs) > 1:
                    log.error("%s: failed: %s", f"{job.stage} {job.label}".strip(), one_line(error, 1000))
    for job in jobs:
        if job.stage == "report":
            if runs or not failed:  # tables of what is there, also where something failed
                write_report(job.config, brief=len(jobs) > 1, parent=parent)
        elif failed and job.key not in {**runs, **failed}:
            log.warning(
                "%s: skipped, because a job whose result it reads has failed",
                f"{job.stage} {job.label}".strip(),
            )
    if failed:
        raise next(iter(failed.values()))
    if len(jobs) > 1:
        log.info("%s: done in %.1f minutes", jobs[0].config.name, (time.monotonic() - started) / 60)
    return [runs[job.key] for job in jobs if job.key in runs]


def perform(job: Job, parent: str = "") -> Run | None:
    """Does a job unless that is done; continues what was interrupted, beside other processes that do the same.

    Returns its run; None in all processes but the first of several that train together.
    """
    results = instantiate.results(job.config)
    work: Work = importlib.import_module(f"toolformer.jobs.{job.stage}").Work(job, results)
    log.info("%s: %s", job.stage, work.title)
    if run := finished(job, results):
        results.add_name(run, job.config.name)
        work.log(already_done(run), run)
        return run
    work.check()
    if (count := work.processes) > 1:
        distributed.launch(count, perform, job, parent)
        return results.get(job.step.key())
    if distributed.rank() > 0:  # of several processes the first one does the book-keeping
        work.share(None)
        return None
    alone = distributed.processes() == 1
    is_done = partial(finished, job, results)
    for wait in (
        False,
        True if alone else PATIENCE,
    ):  # first lead or help; then have the result, or a dead leader's place
        with results.open(job.step, _info(job, work, results, parent), wait, is_done) as folder:
            if isinstance(folder, Run):
                work.log(already_done(folder), folder)
                return folder
            if alone:
                work.share(folder)
            if folder:
                work.finish(folder)
                break
    else:
        raise UserError(f"{job.stage}: another command does this in {results.path(job.step)}; wait for it")
    run = results.get(job.step.key())
    work.log("done", run)
    return run


def finished(job: Job, results: Results) -> Run | None:
    """The run of a job that needs no more work, with its files intact. Writes nothing."""
    from toolformer.evaluation.metrics import count_faults
    from toolformer.training.checkpoints import damaged_file

    run = results.done(job.step)
    if run is None or (
        run.stage == "train" and damaged_file(run.folder / str(run.facts.get("model", "model")))
    ):
        return None
    # Answers that met a fault are not kept: the same command asks for them again.
    is_accepted = run.stage != "evaluate" or job.config.evaluation.accept_faults
    return run if is_accepted or not count_faults(run.tasks) else None


def already_done(run: Run) -> str:
    """That a run is done, and by which commit if the code has changed since, or may have."""
    commit = git_commit()
    if commit == run.commit and not commit.endswith("-dirty"):
        return "already done"
    if run.commit.endswith("-dirty"):
        return f"already done, by commit {run.commit[:8]} with uncommitted changes"
    return f"already done, by commit {run.commit[:8]}; the code has changed since"


def _info(job: Job, work: Work, results: Results, parent: str) -> RunInfo:
    """Record of a run's folder from the start."""
    command = command_of(job.stage, job.overrides)
    label = " ".join(masked_overrides(without(job.differing, *_IN_TITLES)))
    read = [job.sources.training] if job.sources.training else job.sources.annotations
    made_from = [run for step in read if (run := results.find(step))]
    return RunInfo(
        run_name(f"{work.name} {label}"),
        asdict(job.config),
        command,
        job.config.name,
        parent,
        describe(command, work.details, made_from),
        work.facts,
    )
