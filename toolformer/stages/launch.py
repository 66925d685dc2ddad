"""Jobs of a stage, run one after another or by a Hydra launcher (joblib, submitit, Ray), grouped as a sweep.

A job is a list of overrides.
"""

from __future__ import annotations

import gc
import importlib
import io
import logging
import re
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, redirect_stderr
from dataclasses import dataclass
from functools import partial
from typing import Any

from omegaconf import DictConfig

from toolformer.errors import UserError, one_line
from toolformer.progress import configure
from toolformer.results.provenance import command_of, masked_words
from toolformer.stages import sweep as sweeping
from toolformer.stages.config import CONF, Config, allow_new_tools, compose, validate
from toolformer.stages.engine.ray import connected
from toolformer.stages.invocation import DIRECT, Invocation

log = logging.getLogger(__name__)

_NAMED = ("system=", "decoding.k=", "model=", "data=", "dataset=", "checkpoint=", "wording=")
"""Overrides that a run's name shows anyway."""


@dataclass(frozen=True)
class Jobs:
    """The jobs of a stage.

    Args:
        overrides: of each job, valid.
        labels: of each job what distinguishes it from the others.
        hydra: overrides of Hydra itself: the launcher and its settings.
        sweep: the id of the sweep that they belong to.
        done: the ids of runs of the sweep that were done before.
    """

    stage: str
    overrides: Sequence[Sequence[str]]
    labels: Sequence[str] = ()
    hydra: Sequence[str] = ()
    sweep: sweeping.Sweep | None = None
    done: Sequence[str] = ()


def run_stage(stage: str, config: Config, invocation: Invocation = DIRECT) -> Any:
    """Runs a stage with a valid configuration."""
    function = getattr(importlib.import_module(f"toolformer.stages.{stage}"), stage)
    if stage == "report":  # of an experiment a summary, of the stage itself all tables
        return function(config, brief=not invocation.command)
    label = " ".join(word for word in invocation.label.split() if not word.startswith(_NAMED))
    return function(config, Invocation(invocation.command, invocation.parent, label))


def apart(jobs: Sequence[Sequence[str]]) -> list[list[str]]:
    """Of each job the overrides that not all of them have."""
    common = set.intersection(*map(set, jobs))
    return [[word for word in job if word not in common] for job in jobs]


def label(overrides: Iterable[str]) -> str:
    """Overrides of a job without secrets; ids of runs are cut short."""
    return " ".join(
        re.sub(r"^((?:dataset|checkpoint)=\w{8})\w*$", r"\1", word) for word in masked_words(overrides)
    )


def launch(jobs: Jobs) -> list[str | Exception | None]:
    """Runs the jobs; one that fails keeps no other from running. Of each job the run's id, or what it raised.

    UserError if the launcher is not installed, or cannot be started.
    """
    if jobs.sweep is None:
        return _launched(jobs)
    with jobs.sweep.open() as folder:
        outcomes = _launched(jobs)
        if folder is None:  # an equal sweep, which shares these jobs, has it
            return outcomes
        runs = {run: label for run, label in zip(outcomes, jobs.labels, strict=True) if isinstance(run, str)}
        sweeping.summarise(jobs.sweep, folder, runs, jobs.done)
        if any(isinstance(outcome, Exception) for outcome in outcomes):
            folder.outcome = "FAILED"
    return outcomes


def _launched(jobs: Jobs) -> list[str | Exception | None]:
    """`launch`, without the sweep's summary."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.experimental.callback import Callback
    from hydra.types import HydraContext

    # Where Hydra writes comes from the configuration; what jobs differ in comes from each of them.
    first, *others = jobs.overrides
    common = [word for word in first if all(word in job for job in others)]
    # A launcher that is not installed ends here, in one line.
    whole = compose(jobs.stage, [*common, *jobs.hydra], with_hydra=True)
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        callbacks: Any = Callback()  # none of ours
        context = HydraContext(GlobalHydra.instance().config_loader(), callbacks)
        parent = jobs.sweep.id if jobs.sweep else ""
        task = partial(_run_job, jobs.stage, jobs.labels, parent)
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=task, config=whole
        )
        settings = whole.hydra.launcher
        is_ray = str(settings.get("_target_")).endswith(".RayLauncher")
        try:
            with connected(settings.ray.init.get("address")) if is_ray else nullcontext():
                returned = launcher.launch(
                    [allow_new_tools(job) for job in jobs.overrides], initial_job_idx=0
                )
        except RuntimeError as error:  # a fault of a job is in its return; this is one of the launcher
            raise UserError(f"hydra/launcher: {one_line(error)}") from error
    return [_outcome(jobs.stage, label, ended) for label, ended in zip(jobs.labels, returned, strict=True)]


def _outcome(stage: str, label: str, ended: Any) -> str | Exception | None:
    try:
        with redirect_stderr(io.StringIO()):  # Hydra announces a fault there, which is ours to report
            run: str | None = ended.return_value
            return run
    except Exception as error:
        log.error("%s: failed: %s", f"{stage} {label}".strip(), one_line(error, 1000))
        return error


def _run_job(stage: str, labels: Sequence[str], parent: str, config: DictConfig) -> str | None:
    """A job in whichever process a launcher starts. Returns the run's id."""
    from hydra.core.hydra_config import HydraConfig

    if not logging.getLogger().handlers:
        configure()  # a worker that a launcher started
    hydra = HydraConfig.get()
    number, overrides = hydra.job.num, list(hydra.overrides.task)
    if len(labels) > 1:
        log.info("%s", f"{stage} {number + 1} of {len(labels)} {labels[number]}".strip())
    if config.like:
        config = compose(stage, overrides)
    gc.collect()  # models of earlier jobs in this process
    invocation = Invocation(command_of(stage, overrides), parent, labels[number])
    run = run_stage(stage, validate(config, stage), invocation)
    return getattr(run, "id", None)
