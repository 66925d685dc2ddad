"""`like=RUN`: the settings that a run logged, with the other overrides of the command line on top.

A run may be a stranger's, also the one that `latest` names on a shared server: only plain values are taken from it. What
starts a command, loads code, or reads, writes and sends at places that it names is this command's own.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from toolformer.credentials import MASK
from toolformer.errors import UserError
from toolformer.results import Results, Run
from toolformer.results.provenance import masked
from toolformer.stages.config.messages import one_line
from toolformer.stages.config.schema import OF_A_RUN, OF_SOURCES, Config

_ANSWERS = ("implementation", "inference")
"""The keys of a tool that say which code answers, and where."""


def like(stage: str, composed: DictConfig, overrides: list[str], conf: Path) -> DictConfig:
    """`composed` with the values of the run `composed.like` where the overrides neither set nor choose one.

    UserError if there is no such run of this stage, a value of it is masked or an interpolation, or it had other tools
    or data than are configured here, which are not taken from it.
    """
    run = Results(Path(composed.paths.root)).resolve(stage, composed.like, composed.name)
    try:
        logged = _read(run)
        config = OmegaConf.merge(OmegaConf.structured(Config), _values(logged))
    except (OSError, ValueError, RecursionError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"like: run {run.id[:8]} cannot be repeated here ({one_line(error)})") from error
    assert isinstance(config, DictConfig)
    own = [key for key in map(str, composed) if key not in OF_A_RUN]
    own += [f"tool.{name}.{key}" for name in config.tool if name in composed.tool for key in _ANSWERS]
    for key in own:
        OmegaConf.update(config, key, OmegaConf.select(composed, key), merge=False)
    given: list[str] = []
    for override in OverridesParser.create().parse_overrides(overrides):
        for key in _set_by(override, conf):
            given.append(key)
            if override.is_delete():
                parent, _, name = key.rpartition(".")
                OmegaConf.select(config, parent).pop(name, None)
            else:
                value = OmegaConf.select(composed, key)
                OmegaConf.update(config, key, value, merge=False, force_add=True)
    config.like = None
    _check(run, logged, config, given)
    return config


def _read(run: Run) -> dict[str, Any]:
    """A run's configuration; ValueError for what no run of ours logs, such as a text that another one is put into."""
    logged = dict(run.config)
    if not logged:
        raise ValueError("it has no configuration")
    for key, value in _leaves(_values(logged)):
        if "${" in str(value):
            raise ValueError(f"{key} holds ${{, which is not taken from a run")
    return logged


def _values(logged: dict[str, Any]) -> dict[str, Any]:
    """What is taken from a run."""
    values = {key: value for key, value in logged.items() if key in OF_A_RUN}
    values["tool"] = {
        name: {key: value for key, value in tool.items() if key not in _ANSWERS}
        for name, tool in _mapping(values, "tool").items()
        if isinstance(tool, dict)
    }
    return values


def _check(run: Run, logged: dict[str, Any], config: DictConfig, given: Sequence[str]) -> None:
    """Refuses to repeat a run without settings that are not taken from it, unless an override replaces them."""
    here: Any = OmegaConf.to_container(config, resolve=True)
    for key, value in _leaves(_values(here)):
        if MASK in str(value):
            raise UserError(f"like: {key} of run {run.id[:8]} is masked; give it again: {key}=...")
    there, now = _decisive(logged, here), _decisive(masked(here), here)
    values = {key: there.get(key, now.get(key)) for key in (*there, *now)}
    other = {key: value for key, value in values.items() if there.get(key) != now.get(key)}
    words = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in other.items()
        if not any(f"{key}.".startswith(f"{word}.") for word in given)
    ]
    if words:
        raise UserError(
            f"like: run {run.id[:8]} had {' '.join(words)[:1000]}, which is not taken from a run, for that may be anyone's: "
            "add those of these overrides that you trust, or others for the same keys"
        )


def _decisive(config: dict[str, Any], here: dict[str, Any]) -> dict[str, Any]:
    """What decides a result of the configuration `here` and is not taken from a run, by key."""
    found = {"tool_sources": config.get("tool_sources") or []}
    found |= {f"paths.{key}": _mapping(config, "paths").get(key) for key in ("data_dir", "tasks_dir")}
    for name in here["tools"]:
        tool = _mapping(_mapping(config, "tool"), name)
        if _mapping(tool, "implementation").get("_target_") in OF_SOURCES:
            continue  # its source says it
        for key in _ANSWERS:
            found |= _leaves(tool.get(key), f"tool.{name}.{key}")
    return found


def _mapping(config: dict[str, Any], key: str) -> dict[str, Any]:
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def _set_by(override: Override, conf: Path) -> Iterator[str]:
    """The keys that an override sets, or of the group that it chooses."""
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
    """The keys of a configuration with their values; a list is one value."""
    if not isinstance(value, dict):
        yield key, value
        return
    for name, item in value.items():
        yield from _leaves(item, f"{key}.{name}" if key else str(name))
