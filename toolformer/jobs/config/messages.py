"""One line for whatever is wrong with a configuration: the key, the reason, what to do."""

from collections.abc import Collection
from typing import Any

from hydra.errors import MissingConfigException
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from toolformer.credentials import MASK, is_secret, masked
from toolformer.errors import near
from toolformer.jobs.config.overrides import Override, masked_overrides

_PLUGINS = {
    "joblib": "make setup EXTRA=launchers",
    "submitit": "make setup EXTRA=launchers",
    "ray": "make setup EXTRA=ray, then pip install --no-deps hydra-ray-launcher==1.2.2",
}
"""Command that installs each launcher's plugin."""

MOVED = {
    "propose.max_call_tokens": "tool.NAME.max_call_tokens",
    "decoding.max_call_tokens": "tool.NAME.max_call_tokens",
    "decoding.max_result_tokens": "tool.NAME.max_result_tokens",
    "decoding.by_tool": "tool.NAME.k",
    "decoding.stand_in": "tool.NAME.fallback",
    "filter.chance": "tool.NAME.chance",
}
"""Keys of earlier releases, and what they are now."""


def moved(key: str) -> str:
    """Message with the present name of a key of `MOVED`."""
    return f"{key} is now {MOVED[key]}; docs/keys.md has them all"


def one_line(error: BaseException) -> str:
    """The key, the reason and, if it is in a file, the file of Hydra's and OmegaConf's errors, whose messages have several lines."""
    cause = cause_of(error)
    if not isinstance(cause, OmegaConfBaseException):
        return " ".join(str(error).split())
    reason = reason_of(cause)
    place = "" if cause is error else str(error).partition(type(cause).__name__)[0]
    key = cause.full_key if cause.full_key and cause.full_key not in reason else ""
    return f"{place}{key}{': ' * bool(key)}{reason}"


def cause_of(error: BaseException) -> BaseException | None:
    """OmegaConf's error itself, or the error that Hydra raised another one for."""
    return error if isinstance(error, OmegaConfBaseException) else error.__cause__ or error.__context__


def reason_of(error: BaseException) -> str:
    """What an error says, in one line, without the key and the types that OmegaConf's messages end with."""
    return " ".join(str(error).partition("\n    full_key:")[0].split()).rstrip(".")


def missing_file(error: MissingConfigException) -> str:
    """The file of a group that there is not, and the nearest; or what installs a launcher."""
    file = error.missing_cfg_file or ""
    group, _, name = file.rpartition("/")
    launcher = next((name for name in _PLUGINS if file.startswith(f"hydra/launcher/{name}")), "")
    if launcher:
        return f"hydra/launcher: {launcher} is not installed: {_PLUGINS[launcher]}"
    options = list(error.options or ())
    yours = f"; your own is conf/{file}.yaml in the folder of the command" * (group == "experiment")
    return (
        f"Could not find '{file}'{near(name, options)}; available options in '{group}': {', '.join(options)}"
        f"{yours}"
    )


def shown(override: Override) -> str:
    """An override, masked; of `tool_sources`, which may hold anything, the key alone."""
    return "tool_sources" if override.key == "tool_sources" else masked_overrides([override.text])[0]


def first_error(error: ValidationError, known: Collection[str] = ()) -> str:
    """The first thing that pydantic finds wrong, in one line; an unknown key with the nearest of the known ones."""
    details = error.errors()[0]
    context: dict[str, Any] = details.get("ctx", {})
    path = details["loc"][1:] if isinstance(details["loc"][0], int) else details["loc"]  # of a list of one
    key = ".".join(map(str, path))
    if details["type"] == "unexpected_keyword_argument":
        return f"there is no key {key!r}{near(key, known)}"
    holds_secret = any(is_secret(str(part)) for part in details["loc"])
    value = MASK if holds_secret else repr(masked(details["input"]))
    return f"{key} is {value}; {context.get('error', details['msg'])}"
