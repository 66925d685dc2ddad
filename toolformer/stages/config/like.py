"""`like=RUN`: a run's own logged configuration, with the other words of the command line over it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from toolformer.credentials import MASK
from toolformer.errors import UserError
from toolformer.stages.config.messages import one_line
from toolformer.stages.config.schema import OF_SOURCES, Config
from toolformer.tracking import Tracker

_OWN = ("paths.root", "tracking")
"""Where runs are looked up: the command's own, since a folder of runs may have been moved."""


def like(stage: str, composed: DictConfig, overrides: list[str], conf: Path) -> DictConfig:
    """The configuration of the run `composed.like`, with what the overrides (in `composed` too) set or choose laid over it.

    UserError if there is no such run of this stage, or a masked value of it is not given again.
    """
    tracker = Tracker(composed.tracking.uri, Path(composed.paths.root))
    run = tracker.resolve(stage, composed.like, experiment=composed.name)
    try:
        logged = yaml.safe_load(tracker.artifact_path(run, "config.yaml").read_text(encoding="utf-8"))
        config = OmegaConf.merge(OmegaConf.structured(Config), logged)
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"like: run {run.run_id[:8]} cannot be repeated here ({one_line(error)})") from error
    assert isinstance(config, DictConfig)
    if config.tool_sources:  # whose tools are added again
        for tool in config.tool.values():
            if tool.implementation.get("_target_") in OF_SOURCES:
                tool.implementation = {}
    for key in _OWN:
        OmegaConf.update(config, key, OmegaConf.select(composed, key), merge=False)
    for override in OverridesParser.create().parse_overrides(overrides):
        for key in _set_by(override, conf):
            if override.is_delete():
                parent, _, name = key.rpartition(".")
                OmegaConf.select(config, parent).pop(name, None)
            else:
                value = OmegaConf.select(composed, key)
                OmegaConf.update(config, key, value, merge=False, force_add=True)
    config.like = None
    for key, value in _leaves(OmegaConf.to_container(config)):
        if isinstance(value, str) and MASK in value:
            raise UserError(f"like: {key} of run {run.run_id[:8]} is masked; give it again: {key}=...")
    return config


def _set_by(override: Override, conf: Path) -> Iterator[str]:
    """The keys that a word sets, or whose values it chooses whole."""
    name = override.key_or_group
    if name == "like" or name.startswith("hydra"):
        return
    if not (conf / name).is_dir():
        yield name
        return
    if name in ("experiment", "setting"):
        raise UserError(f"{name}: like=RUN says what {name} would; leave one of the two out")
    text = (conf / name / f"{override.value()}.yaml").read_text(encoding="utf-8")
    header = re.search(r"^# @package (\S+)", text)
    package = override.package or (header[1] if header else name.replace("/", "."))
    if package == "_global_":
        yield from (key for key in yaml.safe_load(text) if key != "defaults")
    else:
        yield package


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict | list):
        yield key, value
        return
    for name, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(item, f"{key}.{name}" if key else str(name))
