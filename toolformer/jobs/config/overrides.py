"""Overrides of the command line, `key=value`, taken apart by Hydra's own parser: the only file that knows their grammar."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Quote, QuotedString
from hydra.core.override_parser.types import Override as HydraOverride
from hydra.errors import HydraException, OverrideParseException

from toolformer.credentials import MASK, is_secret, masked, without_credentials
from toolformer.errors import UsageError

_PARSER = OverridesParser.create()
_QUOTING = (
    "; quote a value with letters beyond a to z, a comma, parenthesis, brace, colon or equals sign again inside the shell's quotes: "
    """"model='/a folder, (old)'\""""
)

_PLAIN = re.compile(r"[\w./$%*@?|:+-]+")
"""A text that needs no quotes in an override."""
_NOT_IN_TITLES = ("paths.", "tracking.", "engine.", "hydra")
_NAMED = re.compile(r"([\w-]+)['\"]?\s*[:=]")


@dataclass(frozen=True)
class Override:
    """One override: `+decoding.k=3`, `corpus@heldout=jsonl`, `~tool.search`."""

    text: str
    key: str
    """A dotted key, or a group of configuration files."""
    package: str
    """Where the file of a group goes, if it is named: `heldout`."""
    value: str
    """As it is written."""
    values: Sequence[Any] = field(default=(), compare=False)
    """In plain types: one, or those of a sweep."""
    is_sweep: bool = False
    """Whether it has several values, one for each job of a sweep."""

    @property
    def target(self) -> str:
        """The key that it sets."""
        return self.package or self.key

    @property
    def listed(self) -> list[Any]:
        """Its values, those of a list one by one."""
        return [part for value in self.values for part in (value if isinstance(value, list) else [value])]

    def with_value(self, value: str) -> str:
        """The override with another value, as it is to be written."""
        return f"{self.text.partition('=')[0]}={value}"


def parse(overrides: Iterable[str]) -> list[Override]:
    """UsageError, in one line, for one that cannot be read."""
    try:
        parsed = _PARSER.parse_overrides(list(overrides))
    except OverrideParseException as error:
        raise UsageError(parse_error(error)) from error
    texts = [str(override.input_line) for override in parsed]
    return [
        Override(
            text,
            override.key_or_group,
            override.package or "",
            text.partition("=")[2],
            _values(override),
            override.is_sweep_override(),
        )
        for text, override in zip(texts, parsed, strict=True)
    ]


def parse_error(error: OverrideParseException) -> str:
    """The key, and why its value cannot be read, in one line."""
    reason = " ".join(str(error).split()).partition(" See https")[0]
    text = error.override or ""
    key, equals, _ = text.partition("=")
    if not equals:
        return f"{key!r}: expected key=value"
    if key == "tool_sources" or masked_overrides([text]) != [text]:
        reason = "its value cannot be parsed; it is not shown, since it may hold a secret"
    if key == "tools" and not text.isascii():
        return "tools: names of tools have letters (a-z), digits and _ only; rename the tool"
    reason = re.sub(r"^\w+Exception: ", "", reason).rstrip(".")
    return f"{key}: {reason}{_QUOTING}"


def without(overrides: Iterable[str], *keys: str) -> list[str]:
    """The overrides but for those of these keys."""
    return [override.text for override in parse(overrides) if override.key not in keys]


def values(overrides: Iterable[str], key: str) -> list[str]:
    """The values that the overrides give a key or a group, as they are written."""
    return [override.value for override in parse(overrides) if override.key == key]


def written(key: str, value: Any) -> str:
    """The override that gives a key a value."""
    is_plain = isinstance(value, str) and re.fullmatch(r"[\w./-]+", value, re.ASCII)
    return f"{key}={value if is_plain else json.dumps(value)}"


def masked_overrides(overrides: Iterable[str]) -> list[str]:
    """Overrides with their secrets masked, as `credentials.masked` masks a configuration."""
    return [_masked(override) for override in overrides]


def title_of(stage: str, arguments: Sequence[str]) -> str:
    """The title of a command's jobs, in one line: the keys with several values first, or the experiment; no secrets, no paths."""
    shown = [override for override in parse(arguments) if not override.key.startswith(_NOT_IN_TITLES)]
    swept = [override for override in shown if override.is_sweep]
    first = swept or [override for override in shown if override.key == "experiment"]
    parts = (first, [override for override in shown if override not in first])
    differing, others = (" ".join(masked_overrides(override.text for override in part)) for part in parts)
    return f"{differing}: {stage} {others}".strip(": ")


def command_of(stage: str, overrides: Sequence[str], *flags: str) -> str:
    """The command line of a stage, without secrets."""
    return shlex.join(["toolformer", stage, *flags, *masked_overrides(overrides)])


def _masked(text: str) -> str:
    key, sign, _ = text.partition("=")
    try:
        override = _PARSER.parse_override(text)
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


def _values(override: HydraOverride) -> list[Any]:
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
