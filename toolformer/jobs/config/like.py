"""`like=RUN`: the settings that a run logged, with the overrides of the command line on top.

A run may be a stranger's, also the one that `latest` names on a shared disk: what is marked `Private` (code, addresses,
paths) is not copied from it.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from toolformer.credentials import MASK, masked
from toolformer.decoding.settings import trained_on
from toolformer.errors import UserError
from toolformer.jobs.config.messages import one_line
from toolformer.jobs.config.schema import OF_SOURCES, Config
from toolformer.results import Results, Run
from toolformer.step import Private, ReadBy, Setting, all_settings

_GROUPS = ("hydra", "tool")
"""Groups of files that may be chosen beside `like`: they hold what is not copied."""


def like(stage: str, composed: DictConfig, overrides: Sequence[str], groups: Path) -> DictConfig:
    """`composed` with the values of the run `composed.like`, where the overrides set none.

    UserError if there is no such run of this stage, a value of it is masked or an interpolation, it depends on something
    private that is not configured here, or an override chooses a file of `groups`.
    """
    names = [word.lstrip("+~").partition("=")[0] for word in overrides]
    for group in (name.partition("@")[0] for name in names):
        if (groups / group).is_dir() and group.partition("/")[0] not in _GROUPS:
            raise UserError(
                f"{group}: like=RUN says what {group} would; set single keys instead of choosing a file"
            )
    run = Results(Path(composed.paths.root)).resolve(stage, composed.like, composed.name)
    config, settings = _logged(run)
    private = [setting for setting in settings if _is_private(setting)]
    changed = [setting for setting in private if OmegaConf.select(composed, setting.key) != setting.value]
    # What this stage does not read stays as it is here, where part of it is not copied.
    unread = [setting.path[0] for setting in changed if not _is_read(stage, setting)]
    for setting in private:
        is_known = setting.path[0] != "tool" or setting.path[1] in composed.tool
        value = OmegaConf.select(composed, setting.key) if is_known else setting.default
        OmegaConf.update(config, setting.key, value, merge=False)
    for key in (*unread, *(name for name in names if "@" not in name and not (groups / name).is_dir())):
        _copy(key, composed, config)
    for name in set(composed.tool) - set(config.tool):
        config.tool[name] = composed.tool[name]
    chosen = [name.partition("@")[2] for name in names if "@" in name]
    _check(run, stage, changed, config, [*names, *chosen])
    config.like = None
    return config


def _logged(run: Run) -> tuple[DictConfig, list[Setting]]:
    """A run's configuration, and its settings; UserError for one that no run of ours logs."""
    try:
        if "${" in json.dumps(run.config):
            raise ValueError("a value holds ${, which is not taken from a run")
        config = OmegaConf.merge(OmegaConf.structured(Config), dict(run.config))
        assert isinstance(config, DictConfig)
        return config, [*all_settings(OmegaConf.to_object(config))]
    except (ValueError, RecursionError, OmegaConfBaseException) as error:
        raise UserError(f"like: run {run.id[:8]} cannot be repeated here ({one_line(error)})") from error


def _copy(key: str, source: DictConfig, target: DictConfig) -> None:
    above, _, name = key.rpartition(".")
    if name in (OmegaConf.select(source, above) if above else source):
        OmegaConf.update(target, key, OmegaConf.select(source, key), merge=False, force_add=True)
    else:  # removed by ~
        OmegaConf.select(target, above).pop(name, None)


def _is_private(setting: Setting) -> bool:
    """Whether a setting is not copied."""
    mark, text = setting.marks.get(Private), setting.value
    if not isinstance(mark, Private) or not mark.only_paths:
        return mark is not None
    return isinstance(text, str) and (
        text.startswith(("/", "~", ".")) or ".." in Path(text).parts or os.path.exists(text)
    )


def _is_read(stage: str, setting: Setting) -> bool:
    mark = setting.marks.get(ReadBy)
    return not isinstance(mark, ReadBy) or stage in mark.stages


def _check(
    run: Run, stage: str, changed: Sequence[Setting], config: DictConfig, names: Sequence[str]
) -> None:
    """UserError for a value that is masked, or that a result depends on and is not copied, unless an override sets it."""
    here: Any = OmegaConf.to_container(config)
    missing: list[str] = []
    for setting in changed:
        mark = setting.marks[Private]
        is_used = setting.path[0] != "tool" or setting.path[1] in config.tools
        if setting.key == "model":  # a trained system reads its training
            is_used = stage != "evaluate" or not trained_on(config.system)
        is_of_source = "implementation" in setting.path and setting.value.get("_target_") in OF_SOURCES
        if (
            isinstance(mark, Private)
            and mark.decides
            and _is_read(stage, setting)
            and is_used
            and not is_of_source
        ):
            there, now = (
                dict(_leaves(value, setting.key))
                for value in (setting.value, masked(OmegaConf.select(config, setting.key)))
            )
            values = {key: there.get(key, now.get(key)) for key in (*there, *now)}
            missing += [
                f"{'' if key in now else '+'}{key}={value if isinstance(value, str) else json.dumps(value)}"
                for key, value in values.items()
                if there.get(key) != now.get(key)
                and not any(f"{key}.".startswith(f"{name}.") for name in names)
            ]
    if missing:
        raise UserError(
            f"like: run {run.id[:8]} had {' '.join(missing)[:1000]}, not copied, since runs may come from others: repeat these "
            "overrides to allow them (code, addresses, paths), or give others for the same keys"
        )
    for key, value in _leaves(here):
        if MASK in str(value) and not any(key.startswith(setting.key) for setting in changed):
            raise UserError(f"like: {key} of run {run.id[:8]} is masked; give it again: {key}=...")


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The keys of a configuration with their values; a list is one value."""
    if not isinstance(value, dict):
        yield key, value
        return
    for name, item in value.items():
        yield from _leaves(item, f"{key}.{name}" if key else str(name))
