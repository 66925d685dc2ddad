"""The stages and `run` as Hydra applications: `-m`, launchers, `--cfg`, `--config-dir` and `--help` are Hydra's.

A sweep's jobs are a group in MLflow. Nothing of Hydra's is written but `sweeps/ID`, where launchers keep their files.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from toolformer.credentials import is_secret, masked, without_credentials
from toolformer.errors import UsageError, UserError, near, one_line
from toolformer.jobs.config import CONF, register
from toolformer.jobs.config.composition import (
    LOCAL,
    VERSION_BASE,
    check_no_sweep,
    composition_errors,
    for_hydra,
)
from toolformer.jobs.config.keys import suggest
from toolformer.jobs.config.overrides import masked_overrides, parse, title_of, values
from toolformer.progress import configure
from toolformer.results import Run

log = logging.getLogger(__name__)

_FLAGS = "\n\nflags of Hydra:\n$FLAGS_HELP"
"""Hydra's addition to the text of `--help`."""
_LAUNCHERS = ("submitit", "joblib", "ray")
"""Packages that start the jobs of a sweep; what they raise is about a job's process, not about its work."""
_HEADING = "\nConfig\n******\n"
"""Heading of the configuration in the output of `--info`."""


@dataclass(frozen=True)
class HydraJob:
    """A job of an application, in whichever process a launcher runs it."""

    config: DictConfig
    overrides: Sequence[str]
    """Which compose its configuration."""
    sweep: str = ""
    """The title of the sweep that it belongs to: its keys and their values."""
    differing: Sequence[str] = ()
    """The overrides that distinguish it from the other jobs of the sweep."""


def run_application(
    name: str,
    arguments: Sequence[str],
    task: Callable[[HydraJob], Sequence[Run]],
    describe: Callable[[DictConfig], str],
    options: Sequence[str] = (),
) -> list[Run]:
    """Runs a task as a Hydra application; jobs that fail keep no others from running.

    Args:
        name: of the command; Hydra's job name.
        describe: makes the text of `--help` from the configuration.
        options: other options of the command, for hints.

    Returns:
        The runs of the jobs in this process, those that were done before included.

    Raises:
        UserError: bad input.
        Exception: what the first job that failed in this process had raised.
    """
    _refuse_misspelt(name, arguments, options)
    runs: list[Run] = []
    errors: list[Exception] = []
    process = os.getpid()

    def job(config: DictConfig) -> None:
        current = _current_job(name, config, arguments)
        if current.sweep:
            if not logging.getLogger().handlers:
                configure()  # a process that a launcher started
            gc.collect()  # models of earlier jobs in this process
            label = " ".join([name, *masked_overrides(current.differing)])
            log.info("%s", label)
        try:
            runs.extend(task(current))
        except Exception as error:
            if os.getpid() != process:  # Hydra raises it in the first process
                raise
            errors.append(error)
            if current.sweep:
                log.error("%s: failed: %s", label, one_line(error, 1000))

    _run_hydra(name, arguments, job, describe)
    if errors:
        raise errors[0]
    return runs


def _run_hydra(
    name: str,
    arguments: Sequence[str],
    job: Callable[[DictConfig], None],
    describe: Callable[[DictConfig], str],
) -> None:
    register()
    OmegaConf.register_new_resolver(
        "toolformer.help", lambda *, _root_: describe(_root_).replace("$", "$$") + _FLAGS, replace=True
    )
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach the caller, which prints one line
    overrides = for_hydra([argument for argument in arguments if _is_override(argument)])
    if not {"-m", "--multirun"} & {*arguments} and not values(overrides, "hydra.mode"):
        check_no_sweep(parse(overrides))
    flags = [argument for argument in arguments if not _is_override(argument)]
    prints_configuration = any(re.match(r"--cfg|-c(?![dnp])|--info|-i", flag) for flag in flags)
    if prints_configuration:  # Hydra prints overrides in more places than one
        overrides = masked_overrides(overrides)
    before, sys.argv = sys.argv, [f"toolformer {name}", *flags, *overrides, f"hydra.job.name={name}"]
    application: Any = hydra.main(version_base=VERSION_BASE, config_path=str(CONF), config_name="base")(job)
    try:
        with composition_errors(name, overrides):
            with _masked_output(flags) if prints_configuration else nullcontext():
                application()
    except SystemExit as end:
        if end.code:
            raise
    except Exception as error:
        package = type(error).__module__.partition(".")[0]
        if package in _LAUNCHERS or 'detect "srun"' in str(error):  # submitit's, where there is no Slurm
            raise UserError(
                f"hydra/launcher: {one_line(error, 500)}; finished work is kept: the same command resumes"
            ) from error
        raise
    finally:
        sys.argv = before


@contextmanager
def _masked_output(flags: Sequence[str]) -> Iterator[None]:
    """Masks the secrets of the configuration that `--cfg` or `--info` prints in the block."""
    output, root = io.StringIO(), logging.getLogger()
    handlers, root.handlers = root.handlers, []  # Hydra adds one for `--info`
    level = root.level
    try:
        with redirect_stdout(output):
            yield
    finally:
        root.handlers = handlers
        root.setLevel(level)
    before, _, printed = output.getvalue().rpartition(_HEADING)
    if before or any(flag.startswith(("--cfg", "-c")) for flag in flags):
        names = [part for flag in flags for part in flag.split(".")]  # --package=tool.qa.api_key
        values = masked(yaml.safe_load(printed), any(map(is_secret, names)))
        printed = yaml.safe_dump(values, sort_keys=False, allow_unicode=True).removesuffix("...\n")
    print(without_credentials(before) + (_HEADING if before else "") + printed, end="")


def _is_override(argument: str) -> bool:
    """Whether it goes after Hydra's flags, which are not recognised after an override."""
    return not argument.startswith("-") and ("=" in argument or argument.startswith("~"))


def _refuse_misspelt(name: str, arguments: Sequence[str], options: Sequence[str]) -> None:
    """UsageError for `--limit 8`, which names a key, and for a misspelt option of the command."""
    for position, argument in enumerate(arguments):
        if argument.startswith("--") and argument not in options:
            option, _, value = argument.partition("=")
            following = next(iter(arguments[position + 1 :]), "")
            value = value or (following if "=" not in following and not following.startswith("-") else "")
            key = option.lstrip("-").replace("-", "_")
            if hint := suggest(key, value or "...", name) or near(option, options):
                raise UsageError(f"unrecognized arguments: {option}{hint}")


def _current_job(name: str, config: DictConfig, arguments: Sequence[str]) -> HydraJob:
    settings = HydraConfig.get()
    typed: Any = OmegaConf.to_container(settings.overrides, resolve=False)
    search_path = [
        override
        for override in typed["hydra"]
        if override.startswith("hydra.searchpath") and override != LOCAL
    ]
    overrides = [*search_path, *typed["task"]]
    if settings.mode != RunMode.MULTIRUN:
        return HydraJob(config, overrides)
    given = for_hydra([argument for argument in arguments if _is_override(argument)])
    differing = [override for override in overrides if override not in given]
    title = title_of(name, given)
    return HydraJob(config, overrides, title, differing)


class PrivateSweep(Callback):
    """Hydra writes the command line of a sweep into its folder; this sends it nowhere, since it may hold secrets."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (folder / "multirun.yaml").symlink_to(os.devnull)

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        (folder / "multirun.yaml").unlink(missing_ok=True)
        with suppress(OSError):  # a launcher's files
            folder.rmdir()
