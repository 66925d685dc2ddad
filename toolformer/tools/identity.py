"""What distinguishes one tool from another: settings, versions, and the files that the settings name.

The settings are a tool's arguments, as configuration gives them: a mapping with `_target_`, the class. Code of this
package counts by the `VERSION` of each class that they name, a user's code by the content of its file.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from toolformer.storage import content_digest
from toolformer.tools.base import Tool

MODEL_FILES = (".safetensors", ".bin", ".json", ".model", ".txt", ".jinja")
"""Weights, configurations, tokenizers, chat templates: what decides a model folder's answers."""
UNDECIDING = (
    *("concurrency", "timeout", "start_timeout", "tries", "key_variable"),
    *("device", "threads", "batch_tokens"),
)
"""Arguments of this package's classes that change no answer, or only its rounding."""


def tool_key(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that a tool's answers depend on, as JSON: its settings, versions and files."""
    return {"settings": deciding(settings), "versions": versions(settings), "files": files(settings)}


def cache_key(tool: Tool, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """What cached results are kept under; None for a user's tool without a `version`: what its code imports is unknown."""
    from toolformer.tools.user.functions import UserTool

    key = tool_key(settings)
    if not tool.version and (isinstance(tool, UserTool) or None in key["versions"].values()):
        return None
    return {**key, "version": str(tool.version)}


def deciding(settings: Any, target: str = "") -> Any:
    """Settings as far as they decide answers.

    Left out is how fast there is an answer, and where files, functions and models are, whose content `files` has. Of a
    user's class all counts, since nothing here knows what its arguments mean.

    Args:
        target: the class of settings that name none.
    """
    if isinstance(settings, list):
        return [deciding(part, target) for part in settings]
    if not isinstance(settings, Mapping):
        return settings
    target = str(settings.get("_target_", target))
    if _version(target) is None:
        return {key: deciding(value, target) for key, value in settings.items()}
    kept = {
        key: deciding(value, target)
        for key, value in settings.items()
        if key not in UNDECIDING and not (isinstance(value, str) and _is_place(key, value))
    }
    if isinstance(kept.get("function"), str):
        kept["function"] = Path(kept["function"]).name
    # A served model is known by its name; without one the address is all that is known.
    if kept.get("model") and isinstance(kept.get("url"), str):
        kept["url"] = urlsplit(kept["url"]).path
    return kept


def versions(settings: Mapping[str, Any]) -> dict[str, int | None]:
    """The `VERSION` of each class that the settings name; None for a user's."""
    return {name: _version(name) for key, name in _leaves(settings) if key == "_target_"}


def files(settings: Mapping[str, Any]) -> list[Any]:
    """The state of the files and model folders that the settings name, and of the files that hold the user's code."""
    states: list[Any] = []
    for key, text in _leaves(settings):
        if key not in ("model", "tokenizer"):
            states += ([file.name, content_digest(file)] for file in _files_of(key, text))
        elif Path(text).expanduser().is_dir():
            states.append(model_state(text))
    return states


def model_state(name: str) -> dict[str, Any]:
    """What identifies a model: the content of its folder's files, or its name on the hub."""
    folder = Path(name).expanduser()
    return {"files": model_files(folder)} if folder.is_dir() else {"model": name}


def model_files(folder: Path) -> dict[str, str]:
    """The SHA-256 of the files of a model's folder that decide its answers, by name."""
    models = (file for file in sorted(folder.iterdir()) if file.suffix in MODEL_FILES and file.is_file())
    return {file.name: content_digest(file) for file in models}


def class_named(target: str) -> Any:
    """A class by its full name; None if it cannot be imported: making the tool reports why."""
    try:
        return pkgutil.resolve_name(target)
    except Exception:  # a user's module may raise anything
        return None


def _version(target: str) -> int | None:
    # Declared by the class itself: a user's subclass of ours is the user's.
    return getattr(class_named(target), "__dict__", {}).get("VERSION")


def _files_of(key: str, text: str) -> Iterable[Path]:
    """The files that a setting names, judged by its key: others, such as a log, decide no answer."""
    from toolformer.tools.user.functions import load_module, split

    module: Any = None
    if key in ("args", "command"):  # --config=FILE too
        return dict.fromkeys([*_files_at(text), *_files_at(text.rpartition("=")[2])])
    if key == "path" or key.endswith("_path"):
        return _files_at(text, inside=key != "path")
    if key == "function":
        module = load_module(split(text)[0])
    elif key == "_target_" and _version(text) is None:
        module = sys.modules.get(getattr(class_named(text), "__module__", ""))
    file = getattr(module, "__file__", None)
    return [Path(file)] if file else []


def _is_place(key: str, text: str) -> bool:
    """Whether a setting says where something is whose content `files` has."""
    if key in ("model", "tokenizer"):
        return Path(text).expanduser().is_dir()
    return key.endswith("_path") and bool(_files_at(text, inside=True))


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in the settings, with the key of it or of its list."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(part, str(name))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part, key)


def _files_at(text: str, inside: bool = False) -> list[Path]:
    """The file that a text names or, with `inside`, those right in the folder (a search index) that it names."""
    try:
        path = Path(text).expanduser()
        entries = sorted(path.iterdir()) if inside and path.is_dir() else [path]
        return [file for file in entries if file.is_file()]
    except (OSError, ValueError, RuntimeError):  # not a file name, or an unknown home
        return []
