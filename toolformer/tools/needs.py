"""Descriptions and needs of the configured tools on this machine. Loads and fetches nothing.

Each class says both of its own arguments: `Part.describe` and `Part.needs`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from toolformer.errors import UserError
from toolformer.tools.base import Need
from toolformer.tools.identity import class_named


def described(settings: Mapping[str, Any]) -> str:
    """The reader, index or translator that answers the calls of a configured tool, such as `smollm2; BM25 over ...`."""
    texts = [kind.describe(arguments) for kind, _, arguments in _parts(settings, "")]
    return "; ".join(filter(None, texts))


def needs(settings: Mapping[str, Any], key: str) -> Iterator[tuple[str, Need]]:
    """Everything that a configured tool needs beside this package, each with the key of the part that needs it."""
    for kind, place, arguments in _parts(settings, key):
        yield from ((place, need) for need in kind.needs(arguments))


def check_needs(settings: Mapping[str, Any], key: str) -> None:
    """`UserError` for the first thing that is missing and is not fetched at first use."""
    for place, need in needs(settings, key):
        if need.missing and not need.is_fetched:
            raise UserError(f"{place}: {need.name}: {need.missing}")


def _parts(settings: Mapping[str, Any], key: str) -> Iterator[tuple[Any, str, Mapping[str, Any]]]:
    """Each class that the settings name, the outer one first, with its key and arguments."""
    kind = class_named(str(settings.get("_target_", "")))
    if hasattr(kind, "describe") and hasattr(kind, "needs"):
        yield kind, key, settings
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _parts(value, f"{key}.{name}")
