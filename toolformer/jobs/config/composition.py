"""A stage's configuration, composed by Hydra from conf/ and the overrides of the command line."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from toolformer.errors import UsageError, UserError, near
from toolformer.jobs.config.keys import all_keys, is_text, suggest
from toolformer.jobs.config.like import repeated
from toolformer.jobs.config.messages import MOVED, moved, one_line
from toolformer.jobs.config.overrides import values
from toolformer.jobs.config.schema import register
from toolformer.jobs.config.texts import check_texts
from toolformer.results.provenance import masked_flat

_PACKAGE = Path(__file__).resolve().parents[2]
CONF = next((folder for folder in (_PACKAGE / "conf", _PACKAGE.parent / "conf") if folder.is_dir()), _PACKAGE)
"""Where Hydra finds the configuration: inside an installed package, beside it in the repository."""
VERSION_BASE = "1.3"


def compose(stage: str, overrides: Sequence[str]) -> DictConfig:
    """The configuration of a stage.

    Within a Hydra application this uses its search path. UserError, in one line, for an unknown key, a wrong type or a broken
    override.
    """
    return _compose(stage, with_like(stage, overrides))


def with_like(stage: str, overrides: Sequence[str]) -> list[str]:
    """The overrides, after those of the run that `like` names, if they name one.

    UserError if there is no such run, or it had overrides that are not taken from it.
    """
    if not values(overrides, "like"):
        return list(overrides)
    return repeated(stage, _compose(stage, overrides), overrides)


def _compose(stage: str, overrides: Sequence[str]) -> DictConfig:
    register()
    with composition_errors(stage, overrides):
        if GlobalHydra.instance().is_initialized():
            return hydra.compose("base", for_hydra(overrides))
        with hydra.initialize_config_dir(str(CONF), version_base=VERSION_BASE):
            return hydra.compose("base", for_hydra(overrides))


LOCAL = "hydra.searchpath=[file://conf]"
"""Configuration files of the user's, beside the place where a command is given."""


def for_hydra(overrides: Sequence[str]) -> list[str]:
    """The overrides as Hydra reads them rightly.

    A value of a text key that Hydra would read as a number or a truth value is put into quotes: names and the ids of runs
    may look like numbers (`name=1e-5`, `dataset=52137e92`). A folder `conf` where the command is given is searched, too.
    """
    local = Path("conf")
    is_searched = any(override.startswith("hydra.searchpath=") for override in overrides)
    searched = [] if is_searched or not local.is_dir() or local.samefile(CONF) else [LOCAL]
    _check_experiment(overrides)
    check_texts([*searched, *overrides])
    return [*searched, *map(_quoted, overrides)]


def _check_experiment(overrides: Sequence[str]) -> None:
    """UserError for a user's experiment whose file would be read as a part of the key `experiment`."""
    for override in overrides:
        name = override.removeprefix("+").removeprefix("experiment=")
        file = Path("conf", "experiment", f"{name}.yaml")
        if name in override and re.fullmatch(r"\w[\w./-]*", name) and file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace")
            if not re.search(r"^# *@package +_global_", text, re.MULTILINE):
                raise UserError(
                    f"experiment={name}: {file} must begin with the line: # @package _global_ (its keys would be read as parts "
                    "of experiment)"
                )


def _quoted(text: str) -> str:
    text = text.removeprefix("+") if text.startswith("+experiment=") else text  # base.yaml has the group
    key, sign, value = text.partition("=")
    if key == "paths.root" and value.startswith("~"):  # Hydra makes a sweep's folder below it
        return f"{key}={Path(value).expanduser()}"
    parts = value.split(",")  # of a sweep
    if not sign or not any(map(_is_number, parts)) or not is_text(key.lstrip("+")):
        return text
    return f"{key}={','.join(repr(part) if _is_number(part) else part for part in parts)}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.lower() in ("true", "false")
    return True


@contextmanager
def composition_errors(stage: str, overrides: Sequence[str]) -> Iterator[None]:
    """Errors of a composition as one line: a UsageError that suggests the nearest name."""
    values = dict(override.lstrip("+").partition("=")[::2] for override in overrides)
    try:
        yield
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        reason = one_line(error)
        unknown = re.search(r"Could not override '([\w.@]+)'", str(error))
        if not unknown and "ToolConfig" in reason:  # +tool.NAME.key=value of an unknown tool
            unknown = re.search(r"(?:^| )\+(tool\.\w+\.[\w.]+)=", " ".join(overrides))
        in_file = re.search(r"full_key: ([\w.]+)", str(error))
        if in_file and in_file[1] in MOVED:
            reason = moved(in_file[1])
        elif not unknown and in_file and "not in" in reason:
            last = in_file[1].rpartition(".")[2]
            hint = suggest(in_file[1], "...", stage) or near(
                last, [name for key in all_keys() for name in key.name.split(".")]
            )
            reason += hint.replace("=...", "")
        elif unknown:
            key = unknown[1]
            reason = _unknown_key(stage, key, values.get(key, "..."))
        elif (value := values.get("heldout")) and "CorpusConfig" in reason:
            reason = f"heldout={value}: to choose a file of the group corpus, write corpus@heldout={value}"
        raise UsageError(reason) from error
    except TypeError as error:  # a name in a list: tools.calculator for tool.calculator
        index = re.search(r"Index '([^']*)'", str(error))
        key = next((key for key in values if index and index[1] in key.split(".")[1:]), "")
        if not key:
            raise
        raise UsageError(_unknown_key(stage, key, values[key])) from error
    except ValueError as error:
        # Hydra's message for a group that is given a number names no key.
        groups = [
            f"{key}={value}" for key, value in values.items() if (CONF / key.partition("@")[0]).is_dir()
        ]
        raise UsageError(": ".join(filter(None, (" ".join(groups), str(error))))) from error


def _unknown_key(stage: str, key: str, value: str) -> str:
    if tool := re.match(r"tool\.(\w+)\.", key):
        known = sorted(path.stem for path in (CONF / "tool").glob("*.yaml"))
        if tool[1] not in known:
            return (
                f"unknown tool {tool[1]!r}{near(tool[1], known)}; for a custom tool (tool_sources) add "
                f"+tool@tool.{tool[1]}=user before {key}"
            )
    if old := next((old for old in MOVED if f"{key}.".startswith(f"{old}.")), ""):
        return moved(old)
    groups = {folder.name for folder in CONF.glob("*/")} - {"tool", "retriever", "hydra"}
    keys: Any = OmegaConf.to_container(compose(stage, []), resolve=False)
    hint = suggest(key, value, stage) or near(key, [*masked_flat(keys), *groups])
    return f"there is no key {key!r}{hint}; docs/keys.md has them all"
