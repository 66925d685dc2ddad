"""A stage's configuration, composed by Hydra from conf/ and the overrides of the command line."""

import copy
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from toolformer.errors import UsageError, near
from toolformer.results.provenance import masked_flat
from toolformer.stages.config.keys import meant
from toolformer.stages.config.like import like
from toolformer.stages.config.messages import one_line
from toolformer.stages.config.schema import Config, register
from toolformer.step import all_settings

_PACKAGE = Path(__file__).resolve().parents[2]
CONF = next((folder for folder in (_PACKAGE / "conf", _PACKAGE.parent / "conf") if folder.is_dir()), _PACKAGE)
"""Where Hydra finds the configuration: inside an installed package, beside it in the repository."""


def compose(stage: str, overrides: Sequence[str], with_hydra: bool = False) -> DictConfig:
    """The configuration of a stage; `with_hydra` also Hydra's own, as `hydra` (and then `like` is not looked up).

    UserError, in one line, for an unknown key, a wrong type or a broken override.
    """
    register()
    overrides = [as_typed(word) for word in overrides]
    overrides = allow_new_tools(overrides)
    given = dict(override.lstrip("+").partition("=")[::2] for override in overrides)
    GlobalHydra.instance().clear()
    # Files below a search path are the user's own, and may change between two commands of a process.
    own = any("searchpath" in word for word in overrides)
    try:
        config = copy.deepcopy((_composed.__wrapped__ if own else _composed)(tuple(overrides)))
        if with_hydra:
            config.hydra.job.name = stage
            config.hydra.overrides.hydra.append(f"hydra.job.name={stage}")  # for a launcher's workers
            return config
        with open_dict(config):
            del config["hydra"]
        return like(stage, config, list(overrides), CONF) if config.like else config
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        unknown = re.search(r"Could not override '([\w.@]+)'", str(error))
        if not unknown and "ToolConfig" in one_line(error):  # +tool.NAME.key=value of a tool that is none
            unknown = re.search(r"(?:^| )\+(tool\.\w+\.[\w.]+)=", " ".join(overrides))
        if unknown:
            raise UsageError(_unknown_key(stage, unknown[1], given.get(unknown[1], "..."))) from error
        if (value := given.get("heldout")) and "CorpusConfig" in one_line(error):
            raise UsageError(
                f"heldout={value}: to choose a file of the group corpus, write corpus@heldout={value}"
            ) from error
        raise UsageError(one_line(error)) from error
    except TypeError as error:  # a name in a list: tools.calculator for tool.calculator
        index = re.search(r"Index '([^']*)'", str(error))
        key = next((key for key in given if index and index[1] in key.split(".")[1:]), None)
        if key is None:
            raise
        raise UsageError(_unknown_key(stage, key, given[key])) from error
    except ValueError as error:
        # Hydra's message for a group that is given a number names no key.
        groups = " ".join(
            f"{key}={value}" for key, value in given.items() if (CONF / key.partition("@")[0]).is_dir()
        )
        raise UsageError(f"{groups}: {error}") from error


def allow_new_tools(overrides: Sequence[str]) -> list[str]:
    """Overrides whose decoding settings by tool take, of Hydra, a tool that the experiment's own lack."""
    return [re.sub(r"^(?=decoding\.(?:by_tool|stand_in)\b)", "++", word) for word in overrides]


def as_typed(override: str) -> str:
    """An override whose value is a text and looks like a number or a truth value, quoted: Hydra would change 1e3 to 1000.0."""
    key, sign, value = override.partition("=")
    if not sign or key.lstrip("+") not in _text_keys():
        return override
    parts = [f"'{part}'" if re.fullmatch(_NOT_TEXT, part) else part for part in value.split(",")]
    return f"{key}={','.join(parts)}"


_NOT_TEXT = re.compile(
    r"[+-]?[\d_]*\.?[\d_]+(?:e[+-]?\d+)?|[+-]?\d[\d_]*\.(?:e[+-]?\d+)?|inf|nan|true|false", re.IGNORECASE
)
"""What Hydra reads as a number or a truth value."""


@functools.cache
def _text_keys() -> set[str]:
    """The keys that hold a text, with those of the schema's groups."""
    return {setting.key for setting in all_settings(Config()) if str in setting.types}


@functools.lru_cache(maxsize=32)
def _composed(overrides: tuple[str, ...]) -> DictConfig:
    """What all stages share; a third of a second's work, which planning an experiment asks for again and again."""
    try:
        with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
            return hydra_compose("base", overrides=list(overrides), return_hydra_config=True)
    finally:
        GlobalHydra.instance().clear()


def _unknown_key(stage: str, key: str, value: str) -> str:
    if tool := re.match(r"tool\.(\w+)\.", key):
        known = sorted(path.stem for path in (CONF / "tool").glob("*.yaml"))
        if tool[1] not in known:
            return (
                f"unknown tool {tool[1]!r}{near(tool[1], known)}; for a custom tool (tool_sources) add "
                f"+tool@tool.{tool[1]}=user before {key}"
            )
    alone = {folder.name for folder in CONF.glob("*/")} - {"tool", "retriever", "hydra"}
    every: Any = OmegaConf.to_container(compose(stage, []), resolve=False)
    hint = meant(key, value, stage) or near(key, [*masked_flat(every), *alone])
    return f"there is no key {key!r}{hint}; docs/keys.md has them all"
