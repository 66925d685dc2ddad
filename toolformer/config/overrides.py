"""A stage's configuration from conf/ and the overrides of the command line, by Hydra; mistakes in one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from toolformer.config.checks import near, one_of
from toolformer.config.schema import register
from toolformer.errors import UserError

CONF = Path(__file__).resolve().parent.parent.parent / "conf"
"""Where Hydra finds the configuration."""


def compose(stage: str, overrides: Sequence[str], with_hydra: bool = False) -> DictConfig:
    """The configuration of a stage; `with_hydra` also Hydra's own, as `hydra`.

    Raises:
        UserError: an unknown key, a wrong type or a broken override, in one line.
    """
    if not CONF.is_dir():
        raise UserError(
            f"{CONF} is not there: install toolformer from its repository by make setup (pip install -e)"
        )
    register()
    given = dict(override.lstrip("+").partition("=")[::2] for override in overrides)
    if "experiment" in given:
        _check_experiment(given["experiment"], given.get("hydra.searchpath", ""))
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
            return hydra_compose(stage, overrides=list(overrides), return_hydra_config=with_hydra)
    except (HydraException, OmegaConfBaseException) as error:
        unknown = re.search(r"Could not override '([\w.@]+)'", str(error))
        if unknown:
            raise UserError(_unknown_key(stage, unknown[1])) from error
        raise UserError(f"{one_line(error)}; see toolformer {stage} --help") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = (
            f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}" if mark else "the configuration"
        )
        reason = getattr(error, "problem", None) or str(error)
        raise UserError(f"{place}: this is no YAML ({reason}); mend the file") from error
    except ValueError as error:
        # Hydra's word, which names no key, on a group that is given a number.
        groups = " ".join(f"{key}={value}" for key, value in given.items() if (CONF / key).is_dir())
        raise UserError(f"{groups}: {error}; see toolformer {stage} --help") from error
    finally:
        GlobalHydra.instance().clear()


def _unknown_key(stage: str, key: str) -> str:
    if tool := re.match(r"tool\.(\w+)\.", key):
        known = sorted(path.stem for path in (CONF / "tool").glob("*.yaml"))
        if tool[1] not in known:
            return (
                f"there is no tool {tool[1]!r}{near(tool[1], known)} to set {key} of; for one of your own put "
                f"+tool@tool.{tool[1]}=user before"
            )
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        known = _keys(hydra_compose(stage))
    return f"there is no key {key!r}{near(key, known)}; see toolformer {stage} --help"


def _keys(config: DictConfig, above: str = "") -> list[str]:
    """Every key of a configuration, written out."""
    found: list[str] = []
    for key in map(str, config):
        name = f"{above}{key}"
        found.append(name)
        if OmegaConf.is_dict(config._get_node(key)) and not OmegaConf.is_missing(config, key):
            found += _keys(config[key], f"{name}.") if config[key] is not None else []
    return found


def experiments(own: Iterable[Path] = ()) -> list[str]:
    """The experiments in conf/, and in folders of one's own."""
    return sorted(path.stem for folder in (CONF, *own) for path in (folder / "experiment").glob("*.yaml"))


def _check_experiment(name: str, searchpath: str) -> None:
    """Hydra takes an experiment that is not there for none, since base.yaml has none."""
    own = [
        Path(one.strip(" '\"").removeprefix("file://")) for one in searchpath.strip("[] ").split(",") if one
    ]
    known = experiments(own)
    for one in name.split(","):
        if one not in ("", "null"):
            one_of("experiment", one.strip(), known)


_QUOTING = (
    "; quote a value with a comma, parenthesis, brace, colon or equals sign once more inside the shell's quotes: "
    """"model='/a folder, (old)'\""""
)


_MERGING = "Error merging override "
_WRONG_TYPES = (
    (r"Value '.*' of type '\w+' could not be converted to Integer", "it must be a whole number"),
    (r"Value '.*' of type '\w+' could not be converted to Float", "it must be a number"),
    (r"Value '.*' is not a valid bool \(type \w+\)", "it must be true or false"),
    (
        r"Invalid value assigned: \w+ is not a ListConfig, list or tuple\.?",
        "it must be a list, such as [a,b]",
    ),
    (r"field '.*' is not Optional", "it must have a value"),
    (r"Cannot convert '\w+' to string: '.*'", "it must be a text"),
)
"""What OmegaConf says of a value that a key cannot have, and what the key can have."""


def one_line(error: Exception) -> str:
    """Hydra's and OmegaConf's messages run over several lines; the key and the reason are what is wanted."""
    if isinstance(error, OverrideParseException):
        reason = " ".join(str(error).split()).partition(" See https")[0]
        return reason.rstrip(".") + _QUOTING
    causes = [error, *([error.__cause__] if error.__cause__ else [])]
    lines = [line.strip() for one in causes for line in str(one).splitlines() if line.strip()]
    noise = ("object_type", "reference_type", "Set the environment", "Config search path", "provider=")
    lines = [line for line in dict.fromkeys(lines) if not line.startswith(noise)]
    key = next((line.removeprefix("full_key:").strip() for line in lines if line.startswith("full_key:")), "")
    text = " ".join(line for line in lines if not line.startswith("full_key:"))
    if text.startswith(_MERGING):
        for found, wanted in _WRONG_TYPES:
            text = re.sub(rf" {found}$", f": {wanted}", text)
        text = text.removeprefix(_MERGING)
    return f"{key}: {text}" if key and key not in text else text
