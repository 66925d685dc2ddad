"""Overrides of the command line, `key=value`, taken apart by Hydra's own parser."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, Quote, QuotedString
from hydra.errors import HydraException

from toolformer.credentials import MASK, is_secret, masked, without_credentials

_PLAIN = re.compile(r"[\w./$%*@?|:+-]+")
"""A text that needs no quotes in an override."""
_NAMED = re.compile(r"([\w-]+)['\"]?\s*[:=]")


def masked_overrides(overrides: Iterable[str]) -> list[str]:
    """Overrides with their secrets masked, as `credentials.masked` masks a configuration."""
    return [_masked(override) for override in overrides]


def command_of(stage: str, overrides: Sequence[str], *flags: str) -> str:
    """The command line of a stage, without secrets."""
    return shlex.join(["toolformer", stage, *flags, *masked_overrides(overrides)])


def _masked(text: str) -> str:
    key, sign, _ = text.partition("=")
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException:
        names = [*re.split(r"[.@/]", key), *_NAMED.findall(text)]
        is_plain = "://" not in text and not any(map(is_secret, names))
        return text if is_plain and without_credentials(text) == text else f"{key}{sign}{MASK}"
    holds_secret = any(map(is_secret, re.split(r"[.@/]", override.get_key_element().lstrip("+~"))))
    values = _values(override)
    shown = [masked(value, holds_secret) for value in values]
    if shown == values:
        return text
    written = ",".join(map(_written, shown))
    return f"{override.get_key_element()}={written}"


def _values(override: Override) -> list[Any]:
    """The value of an override, or those of a sweep, in plain types."""
    value: Any = override.value()
    if isinstance(value, ChoiceSweep):
        return [_plain(choice) for choice in value.list]
    if override.is_sweep_override():  # numbers, or names of files
        return [override.input_line.partition("=")[2] if override.input_line else ""]
    return [value]


def _plain(value: Any) -> Any:
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return {_plain(key): _plain(part) for key, part in value.items()} if isinstance(value, dict) else value


def _written(value: Any) -> str:
    """A value as an override has it."""
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{_written(key)}:{_written(part)}' for key, part in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    return text if _PLAIN.fullmatch(text) else QuotedString(text, Quote.single).with_quotes()
