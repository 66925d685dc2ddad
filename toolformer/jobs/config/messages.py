"""One line for whatever is wrong with a configuration: the key, the reason, what to do."""

import re
from collections.abc import Collection
from typing import Any

from hydra.errors import MissingConfigException, OverrideParseException
from pydantic import ValidationError

from toolformer.credentials import MASK, is_secret, masked
from toolformer.errors import near
from toolformer.jobs.config.overrides import masked_overrides, parse_error

_NOISE = ("object_type", "reference_type", "Set the environment", "Config search path", "provider=")


_PLUGINS = {
    "joblib": "make setup EXTRA=launchers",
    "submitit": "make setup EXTRA=launchers",
    "ray": "make setup EXTRA=ray, then pip install --no-deps hydra-ray-launcher==1.2.2",
}
"""What installs each launcher's plugin."""

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
    """What a key of `MOVED` is now."""
    return f"{key} is now {MOVED[key]}; docs/keys.md has them all"


def one_line(error: BaseException) -> str:
    """The key and the reason of Hydra's and OmegaConf's errors, whose messages run over several lines."""
    if isinstance(error, OverrideParseException):
        return parse_error(error)
    causes = [error, *([error.__cause__] if error.__cause__ else [])]
    lines = [line.strip() for cause in causes for line in str(cause).splitlines() if line.strip()]
    lines = [line for line in dict.fromkeys(lines) if not line.startswith(_NOISE)]
    key = next((line.removeprefix("full_key:").strip() for line in lines if line.startswith("full_key:")), "")
    lines = [
        re.sub(r"^Error merging override (.*)", lambda match: f"{_shown(match[1])}:", line) for line in lines
    ]
    text = " ".join(line for line in lines if not line.startswith("full_key:"))
    text = re.sub(r"\w+ raised while composing config: ", "", text)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        launcher = re.fullmatch(r"hydra/launcher/([a-z]+)\w*", error.missing_cfg_file)
        if launcher and launcher[1] in _PLUGINS:
            return f"hydra/launcher: {launcher[1]} is not installed: {_PLUGINS[launcher[1]]}"
        hint = near(error.missing_cfg_file.rpartition("/")[2], error.options or ())
        text = text.removeprefix("In 'base': ").replace(" Available", f"{hint}; available", 1)
    text = re.sub(
        r"^Ambiguous value for argument '(.*)' 1\. .*",
        r"\1: add -m to sweep over several values, put a list into brackets, or quote a value with a comma inside the shell's quotes",
        text,
    )
    text = re.sub(
        r"Invalid value assigned: \w+ is not a ListConfig.*?\.", "it must be a list, such as [a,b];", text
    ).rstrip(";")
    return f"{key}: {text}" if key and key not in text else text


def _shown(override: str) -> str:
    """An override, masked; of `tool_sources`, which may hold anything, the key alone."""
    return "tool_sources" if override.startswith("tool_sources=") else masked_overrides([override])[0]


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
