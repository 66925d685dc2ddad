"""`like=RUN`: the overrides that a run was made with, then those of the command line.

A run may be a stranger's, also the one that `latest` names on a shared disk: an override of a key that is marked `Private`
(code, addresses, paths), or that was masked, is not taken from it, and must be given again.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from toolformer.credentials import MASK
from toolformer.decoding.settings import trained_on
from toolformer.errors import UserError
from toolformer.jobs.config.overrides import Override, parse
from toolformer.jobs.config.schema import Config, ToolConfig
from toolformer.results import Results
from toolformer.step import Private, ReadBy, Setting, all_settings

_TOOL = "\0"
"""In place of the name of any tool."""


def repeated(stage: str, composed: DictConfig, overrides: Sequence[str]) -> list[str]:
    """The overrides of the run `composed.like`, then these but for `like`.

    UserError if there is no such run of this stage, or it had overrides that are not taken from it and are not given again.
    """
    run = Results(Path(composed.paths.root)).resolve(stage, composed.like, composed.name)
    if not run.overrides:
        raise UserError(f"like: run {run.id[:8]} has no stored command; give its settings instead")
    typed = [override for override in parse(overrides) if override.key != "like"]
    given = {override.target for override in typed}
    stored = [override for override in parse(run.overrides) if override.target not in given]
    unread = _unread(stage, [*stored, *typed])
    stored = [override for override in stored if not (override.key in unread and _is_private(override))]
    if private := [override.text for override in stored if _is_private(override)]:
        raise UserError(
            f"like: run {run.id[:8]} had {' '.join(private)[:1000]}, not copied, since a run's code, addresses and paths may be "
            "someone else's: repeat these overrides to allow them, or give others for the same keys"
        )
    return [override.text for override in (*stored, *typed)]


def _unread(stage: str, overrides: Sequence[Override]) -> set[str]:
    """The keys that a stage does not read; of the overrides of a trained system also `model`, which its training names."""
    keys = {setting.key for setting in _SETTINGS if not _is_read(stage, setting)} | {
        "paths.root",
        "paths.cache",
    }
    systems = [override.value for override in overrides if override.key == "system"] or ["toolformer"]
    is_trained = any(override.key == "checkpoint" for override in overrides)
    return keys | ({"model"} if stage == "evaluate" and is_trained and trained_on(systems[-1]) else set())


def _is_read(stage: str, setting: Setting) -> bool:
    mark = setting.marks.get(ReadBy)
    return not isinstance(mark, ReadBy) or stage in mark.stages


def _is_private(override: Override) -> bool:
    """Whether an override is not taken from a run."""
    if MASK in override.text or "${" in override.text or override.key.startswith("hydra"):
        return True
    if override.package or "/" in override.key:  # a file of this machine's configuration
        return False
    for setting in _SETTINGS:
        mark = setting.marks.get(Private)
        if isinstance(mark, Private) and _overlap(setting, override.target):
            return not mark.only_paths or _is_path(override.value)
    return False


def _overlap(setting: Setting, key: str) -> bool:
    """Whether a key is that of a setting, one above it, or one below."""
    parts = key.split(".")
    return all(a in (b, _TOOL) for a, b in zip(setting.path, parts, strict=False))


def _is_path(value: str) -> bool:
    text = value.strip("'\"")
    return text.startswith(("/", "~", ".")) or ".." in Path(text).parts or os.path.exists(text)


_SETTINGS = [*all_settings(Config(tool={_TOOL: ToolConfig()}))]
