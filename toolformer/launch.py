"""Jobs of a stage, run one after another or by a Hydra launcher (joblib, submitit, Ray), with one parent run.

A job is a list of overrides. Knows nothing of experiments.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING, Any

from toolformer.config import CONF, Config, compose, fingerprint, register, validate
from toolformer.descriptions import command_of, describe
from toolformer.errors import UserError
from toolformer.logs import configure

if TYPE_CHECKING:
    from omegaconf import DictConfig

log = logging.getLogger(__name__)

PARENT = "TOOLFORMER_PARENT_RUN"
"""Names the parent run to jobs, whose environment Hydra sets wherever they run."""


def run_stage(stage: str, config: Config, parent: str | None = None, command: str = "") -> Any:
    """Runs a stage with a valid configuration; `command` is what was typed, for the run's description."""
    if stage == "generate":
        from toolformer.generate import generate

        return generate(config, parent, command)
    if stage == "train":
        from toolformer.train import train

        return train(config, parent, command)
    if stage == "evaluate":
        from toolformer.evaluate import evaluate

        return evaluate(config, parent, command)
    from toolformer.report import report

    return report(config)


def task(stage: str, config: DictConfig, heading: str = "") -> str | None:
    """What a job does, in whichever process, under a line that says which it is; the run's id."""
    from hydra.core.hydra_config import HydraConfig

    if not logging.getLogger().handlers:
        configure()  # a worker that a launcher started
    if heading:
        log.info("%s", heading)
    words = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    result = run_stage(stage, validate(config, stage), os.environ.get(PARENT), command_of(stage, words))
    return getattr(result, "run_id", None)


def parent_run(config: Config, name: str, *key: object, command: str = "") -> str:
    """The run that holds those of a sweep together, known by its key."""
    from toolformer import build

    build.apply_paths(config)
    tracker = build.tracker(config.paths.root, config.tracking)
    facts = {"experiment": config.name, "holds": "the runs of a sweep, below it"}
    return tracker.parent_run(fingerprint("sweep", *key), name, description=describe(command, facts))


def launch(
    stage: str, jobs: Sequence[Sequence[str]], of_hydra: Sequence[str] = (), parent: str | None = None
) -> list[str | Exception | None]:
    """Runs the jobs by the launcher that `of_hydra` names, one after another if it names none.

    Who calls has checked every job. One that fails keeps none of the others from running.

    Args:
        parent: the run that holds theirs together.

    Returns:
        Of each job the run's id, or what it raised.

    Raises:
        UserError: bad input, or a launcher that is not there.
    """
    from hydra import initialize_config_dir
    from hydra._internal.callbacks import Callbacks
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.types import HydraContext, RunMode

    # Hydra sets the environment wherever a job runs; ours would not reach workers that are there already.
    settings = [*of_hydra, *([f"+hydra.job.env_set.{PARENT}={parent}"] if parent else [])]
    # Where Hydra writes comes from the configuration; what jobs differ in comes from each of them.
    common = [one for one in jobs[0] if all(one in job for job in jobs)]
    # A launcher that is not there ends here, in one line.
    compose(stage, [*common, *settings], with_hydra=True)
    register()
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        whole = hydra.compose_config(
            stage, [*common, *settings], RunMode.MULTIRUN, with_log_configuration=False
        )
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(whole))
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context,
            task_function=Task(stage, [_told(job, common) for job in jobs]),
            config=whole,
        )
        try:
            with _around(whole.hydra.launcher):
                done = launcher.launch([list(job) for job in jobs], initial_job_idx=0)
        except RuntimeError as error:  # a fault of a job is in its return; this is one of the launcher
            raise UserError(f"hydra/launcher: {' '.join(str(error).split())[:300]}") from error
    outcomes: list[str | Exception | None] = []
    for job, one in zip(jobs, done, strict=True):
        try:
            with redirect_stderr(io.StringIO()):  # Hydra announces a fault there, which is ours to report
                outcomes.append(one.return_value)
        except Exception as error:
            outcomes.append(error)
            own = _told(job, common)
            log.error(
                "%s%s: failed: %s", stage, own and f" {own}", " ".join(str(error).split()) or repr(error)
            )
    return outcomes


def _told(job: Sequence[str], common: Sequence[str]) -> str:
    """What tells a job from the others."""
    return " ".join(word for word in job if word not in common)


@contextmanager
def _around(launcher: DictConfig) -> Iterator[None]:
    """What a launcher needs while it runs: a Ray that ends with its jobs, and that is as closed as that of engine=ray."""
    if not str(launcher.get("_target_")).endswith(".RayLauncher"):
        yield
        return
    from toolformer.engine.ray import connected

    with connected(launcher.ray.init.get("address")):
        yield


def raise_first(outcomes: Sequence[object]) -> None:
    """Raises what the first job that failed had raised, if one failed."""
    for one in outcomes:
        if isinstance(one, Exception):
            raise one


class Task:
    """`task` for a stage; a launcher may send it to another process."""

    def __init__(self, stage: str, jobs: Sequence[str] = ()) -> None:
        self.stage = stage
        self.jobs = list(jobs)
        """Of each what tells it from the others."""

    def __call__(self, config: DictConfig) -> str | None:
        from hydra.core.hydra_config import HydraConfig

        number = HydraConfig.get().job.num if self.jobs and HydraConfig.initialized() else None
        return task(self.stage, config, "" if number is None else self._heading(number))

    def _heading(self, number: int) -> str:
        return f"{self.stage} {number + 1} of {len(self.jobs)} {self.jobs[number]}".strip()
