"""A stage's configuration, composed by Hydra from conf/ and the overrides of the command line."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from toolformer.errors import UsageError, UserError, near
from toolformer.jobs.config.keys import all_keys, is_key, is_text, suggest
from toolformer.jobs.config.like import repeated
from toolformer.jobs.config.messages import MOVED, cause_of, missing_file, moved, one_line, reason_of, shown
from toolformer.jobs.config.overrides import Override, masked_overrides, parse, parse_error, values, written
from toolformer.jobs.config.schema import register
from toolformer.jobs.config.texts import SEARCH_PATH, check_texts
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
    check_no_sweep(parse(overrides))
    with composition_errors(stage, overrides):
        if GlobalHydra.instance().is_initialized():
            return hydra.compose("base", for_hydra(overrides))
        with hydra.initialize_config_dir(str(CONF), version_base=VERSION_BASE):
            return hydra.compose("base", for_hydra(overrides))


LOCAL = f"{SEARCH_PATH}=[file://conf]"
"""Configuration files of the user's, beside the place where a command is given."""


def for_hydra(texts: Sequence[str]) -> list[str]:
    """The overrides as Hydra reads them rightly.

    A value of a text key that Hydra would read as a number or a truth value is put into quotes: names and the ids of runs
    may look like numbers (`name=1e-5`, `dataset=52137e92`). A folder `conf` where the command is given is searched, too.
    """
    overrides, local = parse(texts), Path("conf")
    is_searched = any(override.key == SEARCH_PATH for override in overrides)
    searched = [] if is_searched or not local.is_dir() or local.samefile(CONF) else [LOCAL]
    for override in overrides:
        if override.key == "experiment":
            _check_experiment(override.value)
    check_texts([*parse(searched), *overrides])
    return [*searched, *map(_quoted, overrides)]


def _check_experiment(name: str) -> None:
    """UserError for a user's experiment whose file would be read as a part of the key `experiment`."""
    file = Path("conf", "experiment", f"{name}.yaml")
    if re.fullmatch(r"\w[\w./-]*", name) and file.is_file():
        text = file.read_text(encoding="utf-8", errors="replace")
        if not re.search(r"^# *@package +_global_", text, re.MULTILINE):
            raise UserError(
                f"experiment={name}: {file} must begin with the line: # @package _global_ (its keys would be read as parts of "
                "experiment)"
            )


def _quoted(override: Override) -> str:
    if override.key == "experiment":  # base.yaml has the group
        return override.text.removeprefix("+")
    if override.key == "paths.root" and str(override.values[0]).startswith("~"):
        # Hydra makes a sweep's folder below it.
        return written(override.key, str(Path(override.values[0]).expanduser()))
    parts = override.value.split(",")  # of a sweep
    if not any(map(_is_number, parts)) or not is_text(override.key):
        return override.text
    return override.with_value(",".join(repr(part) if _is_number(part) else part for part in parts))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.lower() in ("true", "false")
    return True


def check_no_sweep(overrides: Iterable[Override]) -> None:
    """UsageError for an override with several values, outside of a sweep."""
    for override in overrides:
        if override.is_sweep:
            raise UsageError(
                f"{masked_overrides([override.text])[0]}: add -m to sweep over several values, put a list into brackets, or quote a "
                "value with a comma inside the shell's quotes"
            )


@contextmanager
def composition_errors(stage: str, texts: Sequence[str]) -> Iterator[None]:
    """Errors of a composition as one line: a UsageError that suggests the nearest name."""
    try:
        yield
    except OverrideParseException as error:
        raise UsageError(parse_error(error)) from error
    except MissingConfigException as error:
        raise UsageError(missing_file(error)) from error
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, TypeError, ValueError) as error:
        cause = cause_of(error)
        key = str((isinstance(cause, OmegaConfBaseException) and cause.full_key) or "")
        overrides = parse(texts)
        wrong = next((each for each in overrides if _is_named(each, key, str(error))), None)
        wrong = wrong or next((each for each in overrides if not _is_known(each.key)), None)
        if wrong:
            reason = _of_override(stage, wrong, overrides, cause or error)
        elif key:
            reason = _of_file(stage, key, error)
        elif isinstance(error, HydraException | yaml.YAMLError):
            reason = one_line(error)
        elif groups := [each.text for each in overrides if (CONF / each.key).is_dir()]:
            # Hydra's message for a group that is given a number names no key.
            reason = f"{' '.join(groups)}: {error}"
        else:
            raise
        raise UsageError(reason) from error


def _is_named(override: Override, key: str, message: str) -> bool:
    """Whether an error at a key is that of an override, and not of a file."""
    is_at = bool(key) and f"{override.key}.".startswith(f"{key}.")
    return override.text in message or (is_at and f"'{override.key}'" in message)


def _is_known(key: str) -> bool:
    """Whether there is such a key, section or group of files."""
    return is_key(key) or key.startswith("hydra") or (CONF / key).is_dir()


def _of_override(stage: str, override: Override, overrides: Iterable[Override], error: BaseException) -> str:
    """What is wrong with one of the overrides."""
    key = override.key
    tool = re.match(r"tool\.(\w+)\.", key)
    added = {each.package.removeprefix("tool.") for each in overrides if each.key == "tool"}
    known = sorted(added | {path.stem for path in (CONF / "tool").glob("*.yaml")})
    if tool and tool[1] not in known:
        return (
            f"unknown tool {tool[1]!r}{near(tool[1], known)}; for a custom tool (tool_sources) add +tool@tool.{tool[1]}=user "
            f"before {key}"
        )
    if old := next((old for old in MOVED if f"{key}.".startswith(f"{old}.")), ""):
        return moved(old)
    if not _is_known(key) or isinstance(error, ConfigKeyError | ConfigAttributeError):
        groups = {folder.name for folder in CONF.glob("*/")} - {"tool", "retriever", "hydra"}
        keys: Any = OmegaConf.to_container(compose(stage, []), resolve=False)
        hint = suggest(key, override.value, stage) or near(key, [*masked_flat(keys), *groups])
        return f"there is no key {key!r}{hint}; docs/keys.md has them all"
    if key == "heldout":
        return f"{override.text}: to choose a file of the group corpus, write corpus@{override.text}"
    if isinstance(error, OmegaConfBaseException) and isinstance(error.child_node, ListConfig):
        return f"{shown(override)}: it must be a list, such as [a,b]"
    return f"{shown(override)}: {reason_of(error)}"


def _of_file(stage: str, key: str, error: BaseException) -> str:
    """What is wrong with a key in a file."""
    if key in MOVED:
        return moved(key)
    reason = one_line(error)
    if isinstance(cause_of(error), ConfigKeyError | ConfigAttributeError):
        names = [name for known in all_keys() for name in known.name.split(".")]
        hint = suggest(key, "...", stage) or near(key.rpartition(".")[2], names)
        reason += hint.replace("=...", "")
    return reason
