"""Jobs of a stage, run one after another or by a Hydra launcher (joblib, submitit, Ray), with one parent run.

A job is a list of overrides.
"""

from __future__ import annotations

import gc
import importlib
import io
import logging
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext, redirect_stderr, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from toolformer.errors import UserError, one_line
from toolformer.progress import configure
from toolformer.stages import instantiate
from toolformer.stages.config import CONF, Config, compose, fingerprint, taking_tools, validate
from toolformer.stages.engine.ray import connected
from toolformer.tracking import Run, Tracker
from toolformer.results.provenance import command_of, describe, masked_words
from toolformer.tracking.run import SWEPT
from toolformer.tracking.sweep import summarise

if TYPE_CHECKING:
    from toolformer.reporting.selection import Kind

log = logging.getLogger(__name__)

_NAMED = ("system=", "decoding.k=", "model=", "data=", "dataset=", "checkpoint=", "wording=")


def run_stage(
    stage: str, config: Config, parent: str | None = None, command: str = "", swept: str = ""
) -> Any:
    """Runs a stage with a valid configuration; `command` is what was typed, for the run's description."""
    function = getattr(importlib.import_module(f"toolformer.stages.{stage}"), stage)
    if stage == "report":  # of an experiment a summary, of the stage itself all tables
        return function(config, brief=not command)
    # For its name, which says the others by itself.
    swept = " ".join(word for word in swept.split() if not word.startswith(_NAMED))
    return function(config, parent, command, swept)


def apart(jobs: Sequence[Sequence[str]]) -> list[list[str]]:
    """Of each job the words that not all of them have."""
    common = set.intersection(*map(set, jobs))
    return [[word for word in job if word not in common] for job in jobs]


def shown(words: Sequence[str]) -> str:
    """Words of a job without secrets; ids of runs are cut short."""
    return " ".join(
        re.sub(r"^((?:dataset|checkpoint)=\w{8})\w*$", r"\1", word) for word in masked_words(words)
    )


def parent_run(
    config: Config, stage: str, name: str, differing: Iterable[Sequence[str]], *key: object, command: str = ""
) -> str:
    """The run that holds those of a sweep together, known by its key; `differing` are the words of `apart`."""
    keys = list(dict.fromkeys(word.lstrip("+").partition("=")[0] for words in differing for word in words))
    title = f"{name}: {stage}" + (f" over {', '.join(keys)}" if keys else "")
    tags = {"experiment": config.name, **({SWEPT: " ".join(keys)} if keys else {})}
    description = describe(command, {"experiment": config.name, "holds": "the runs of a sweep, below it"})
    return instantiate.tracker(config).parent_run(fingerprint("sweep", *key), title, tags, description)


def launch(
    stage: str,
    jobs: Sequence[Sequence[str]],
    of_hydra: Sequence[str] = (),
    parent: str | None = None,
    labels: Sequence[str] = (),
    done: Sequence[str] = (),
) -> list[str | Exception | None]:
    """Runs the jobs, which are valid, by the launcher that `of_hydra` names; one that fails keeps no other from running.

    Args:
        parent: the id of the run above theirs, which is given what the sweep came to and is RUNNING meanwhile.
        labels: of each job what tells it from the others of the sweep.
        done: the ids of runs of the sweep that were done before.

    Returns:
        Of each job the run's id, or what it raised.

    Raises:
        UserError: the launcher is not installed, or cannot be started.
    """
    if parent is None:
        return _launched(stage, jobs, labels, of_hydra, parent)
    config = validate(compose(stage, jobs[0]), "report")
    tracker = instantiate.tracker(config)
    with tracker.reopened(parent) as log_of_sweep:
        outcomes = _launched(stage, jobs, labels, of_hydra, parent)
        children = {run: label for run, label in zip(outcomes, labels, strict=True) if isinstance(run, str)}
        if children:
            summarise(tracker, log_of_sweep, children)
            if stage == "evaluate":
                _mean_over_seeds(tracker, parent, [*done, *children])
        if any(isinstance(outcome, Exception) for outcome in outcomes):
            log_of_sweep.outcome = "FAILED"
    return outcomes


def _launched(
    stage: str,
    jobs: Sequence[Sequence[str]],
    labels: Sequence[str],
    of_hydra: Sequence[str],
    parent: str | None,
) -> list[str | Exception | None]:
    """`launch`, without what the sweep comes to."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.experimental.callback import Callback
    from hydra.types import HydraContext

    # Where Hydra writes comes from the configuration; what jobs differ in comes from each of them.
    common = [word for word in jobs[0] if all(word in job for job in jobs)]
    # A launcher that is not installed ends here, in one line.
    whole = compose(stage, [*common, *of_hydra], with_hydra=True)
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        callbacks: Any = Callback()  # none of its own; the sweep's parent run is made by `parent_run`
        context = HydraContext(GlobalHydra.instance().config_loader(), callbacks)
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context,
            task_function=partial(_run_job, stage, labels, parent),
            config=whole,
        )
        try:
            settings = whole.hydra.launcher
            is_ray = str(settings.get("_target_")).endswith(".RayLauncher")
            with connected(settings.ray.init.get("address")) if is_ray else nullcontext():
                returned = launcher.launch([taking_tools(job) for job in jobs], initial_job_idx=0)
        except RuntimeError as error:  # a fault of a job is in its return; this is one of the launcher
            raise UserError(f"hydra/launcher: {one_line(error)}") from error
    outcomes: list[str | Exception | None] = []
    for label, ended in zip(labels, returned, strict=True):
        try:
            with redirect_stderr(io.StringIO()):  # Hydra announces a fault there, which is ours to report
                outcomes.append(ended.return_value)
        except Exception as error:
            outcomes.append(error)
            log.error("%s: failed: %s", f"{stage} {label}".strip(), one_line(error, 1000))
    return outcomes


def _mean_over_seeds(tracker: Tracker, parent: str, ids: Sequence[str]) -> None:
    """Logs `<task>/score` (or perplexity), `ci_low`, `ci_high` and `seeds` of the runs that differ only in their seed.

    With several systems or settings in the sweep, these stand before the task: `toolformer/svamp/score`.
    """
    from toolformer.reporting.pairing import over_seeds, read_samples
    from toolformer.reporting.selection import kind_of, measured, seed_of

    trained = {run.run_id: run for run in tracker.runs("train")}
    groups: dict[tuple[Kind, str], dict[int, Run]] = {}
    for run in map(tracker.get, ids):
        for task, _ in measured(run):
            groups.setdefault((kind_of(run, trained), task), {})[seed_of(run, trained)] = run
    kinds = {kind for kind, _ in groups}
    metrics: dict[str, float] = {}
    for (kind, task), seeds in groups.items():
        if len(seeds) < 2:
            continue
        with suppress(UserError):  # samples that are gone cost their own figures only
            name = f"samples/{task}.parquet"
            files = [tracker.artifact_path(seeds[number], name) for number in sorted(seeds)]
            mean = over_seeds([read_samples(file) for file in files])
            figure = "perplexity" if task.endswith("perplexity") else "score"
            values = {figure: mean.value, "ci_low": mean.low, "ci_high": mean.high, "seeds": len(seeds)}
            metrics |= {f"{_name(kind, kinds)}{task}/{key}": value for key, value in values.items()}
    tracker.sum_up(parent, metrics, ids)
    if metrics:
        log.info("evaluate: means over seeds are on the sweep's run %s; toolformer compare takes it", parent)


def _name(kind: Kind, kinds: Collection[Kind]) -> str:
    """What tells a kind of run from the others, to stand before a task."""
    if len(kinds) == 1:
        return ""

    def parts(kind: Kind) -> tuple[str, ...]:
        return kind.baseline or kind.system, kind.wording, f"k={kind.k}", kind.replicate[:8] or kind.model

    first, *further = parts(kind)
    alike = list(zip(*(parts(other)[1:] for other in kinds if parts(other)[0] == first), strict=True))
    told = [part for part, others in zip(further, alike, strict=True) if len(set(others)) > 1]
    return " ".join([first, *told]) + "/"


def _run_job(stage: str, labels: Sequence[str], parent: str | None, config: DictConfig) -> str | None:
    """A job in whichever process a launcher starts; `labels` tell each from the others. Returns the run's id."""
    from hydra.core.hydra_config import HydraConfig

    if not logging.getLogger().handlers:
        configure()  # a worker that a launcher started
    hydra = HydraConfig.get()
    number, words = hydra.job.num, list(hydra.overrides.task)
    if len(labels) > 1:
        log.info("%s", f"{stage} {number + 1} of {len(labels)} {labels[number]}".strip())
    if config.like:
        config = compose(stage, words)
    gc.collect()  # models of earlier jobs in this process
    result = run_stage(stage, validate(config, stage), parent, command_of(stage, words), labels[number])
    return getattr(result, "run_id", None)
