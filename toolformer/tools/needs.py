"""Descriptions and needs of the configured tools on this machine. Loads and fetches nothing.

Each class says both of its own arguments: `Part.describe` and `Part.needs`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolformer.errors import UserError
from toolformer.step import Content, ModelName
from toolformer.tools.base import Need
from toolformer.tools.identity import argument_marks, class_named, texts_in


def described(settings: Mapping[str, Any]) -> str:
    """The reader, index or translator that answers the calls of a configured tool, such as `smollm2; BM25 over ...`."""
    texts = [kind.describe(arguments) for kind, _, arguments in _parts(settings, "") if _says(kind)]
    return "; ".join(filter(None, texts))


def needs(settings: Mapping[str, Any], key: str) -> Iterator[tuple[str, Need]]:
    """Everything that a configured tool needs beside this package, each with the key of the part that needs it."""
    for kind, place, arguments in _parts(settings, key):
        yield from ((place, need) for need in (kind.needs(arguments) if _says(kind) else ()))


def check_needs(settings: Mapping[str, Any], key: str) -> None:
    """`UserError` for the first thing that is missing and is not fetched at first use, also for a file or a model folder that a
    tool would open at its first call, hours after the command was given.

    Args:
        key: the key of the settings in the configuration.
    """
    for place, need in needs(settings, key):
        if need.missing and not need.is_fetched:
            raise UserError(f"{place}: {need.name}: {need.missing}")
    for _, place, arguments in _parts(settings, key):
        marks = argument_marks(str(arguments["_target_"]))
        for name, value in arguments.items():
            mark = marks.get(name)
            for text in texts_in(value):
                is_path = isinstance(mark, ModelName) and text.startswith(("/", "./", "../", "~"))
                if (is_path or isinstance(mark, Content)) and not Path(text).expanduser().exists():
                    raise UserError(
                        f"{place}.{name}: there is no file or folder {text}; name one that is there"
                    )


def _parts(settings: Mapping[str, Any], key: str) -> Iterator[tuple[Any, str, Mapping[str, Any]]]:
    """Each class that the settings name, the outer one first, with its key and arguments; None for one that cannot be imported."""
    if "_target_" in settings:
        yield class_named(str(settings["_target_"])), key, settings
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _parts(value, f"{key}.{name}")


def _says(kind: Any) -> bool:
    """Whether a class says what it is and what it needs."""
    return hasattr(kind, "describe") and hasattr(kind, "needs")
