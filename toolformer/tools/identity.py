"""Identity of a tool: settings, versions, and the files that the settings name.

The settings are a tool's arguments, as configuration gives them: a mapping with `_target_`, the class. Marks on the class's
arguments say which of them decide answers, and how (`step.Content` and its like). Code of this package counts by the `VERSION`
of each class that the settings name; a user's code by the content of its file and of the data files that it names.
"""

from __future__ import annotations

import ast
import functools
import glob
import logging
import os
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlsplit

from toolformer.step import NOTHING, Code, Content, Mark, ModelName, Server, Words
from toolformer.storage import content_digest
from toolformer.tools.base import Tool

log = logging.getLogger(__name__)

_LISTING = {"iterdir", "glob", "iglob", "rglob", "listdir", "scandir", "walk"}
"""Functions of the standard library that list a folder."""
_MOST_FILES = 10_000
"""Files of a folder that a source lists."""
MODEL_FILES = (".safetensors", ".bin", ".json", ".model", ".txt", ".jinja")
"""Weights, configurations, tokenizers, chat templates: what decides a model folder's answers."""


@dataclass
class Identity:
    """Everything that a tool's answers depend on, as JSON."""

    settings: dict[str, Any]
    """As far as they decide answers: without what only decides how fast there is one, and without the places of files, functions
    and models, whose content `files` has."""
    versions: dict[str, int | None] = field(default_factory=dict)
    """The `VERSION` of each class that the settings name; None for a user's."""
    files: list[Any] = field(default_factory=list)
    """The state of the files and model folders that the settings name, and of the files that hold the user's code."""


def identify(settings: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> Identity:
    """The identity of a tool with these settings.

    Args:
        base: the settings that these replace a part of, where these do not name their class.
    """
    state = Identity({})
    state.settings = _visit(settings, base or {}, state)
    return state


def cache_key(tool: Tool, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Key of cached results; None for a user's tool without a `version`, since the code that it imports is unknown."""
    from toolformer.tools.user.functions import UserTool

    identity = identify(settings)
    if not tool.version and (isinstance(tool, UserTool) or None in identity.versions.values()):
        return None
    return {**vars(identity), "version": str(tool.version)}


def _visit(settings: Mapping[str, Any], base: Mapping[str, Any], state: Identity) -> dict[str, Any]:
    """The settings that decide; adds the versions and files of them and of what they hold."""
    target = str(settings.get("_target_", base.get("_target_", "")))
    marks, is_ours = argument_marks(target), version_of(target) is not None
    if "_target_" in settings:
        state.versions[target] = version_of(target)
        if not is_ours:
            state.files += _code(sys.modules.get(getattr(class_named(target), "__module__", "")))
    kept: dict[str, Any] = {}
    for name, value in settings.items():
        mark = marks.get(name)
        if mark is NOTHING:
            continue
        if isinstance(value, Mapping):
            kept[name] = _visit(value, base.get(name) or {}, state)
        elif isinstance(mark, Content | ModelName):
            known = [_add_content(text, mark, state) for text in texts_in(value)]
            if not known or not all(known):
                kept[name] = value
        elif isinstance(mark, Code):
            state.files += _code_of_function(str(value))
            kept[name] = Path(str(value)).name
        elif isinstance(mark, Server) and settings.get("model", base.get("model")):
            kept[name] = urlsplit(str(value)).path
        else:
            if isinstance(mark, Words) or not (
                mark or is_ours
            ):  # of a user's class, any file that it is given
                for text in texts_in(value):
                    state.files += _named_by(text)
            kept[name] = value
            if isinstance(value, list | tuple):
                kept[name] = [
                    _visit(part, {}, state) if isinstance(part, Mapping) else part for part in value
                ]
    return kept


def _add_content(text: str, mark: Mark, state: Identity) -> bool:
    """Whether an argument names a file or a folder; adds its state."""
    path = Path(text).expanduser()
    if isinstance(mark, ModelName):
        if path.is_dir():
            state.files.append(model_state(text))
        return path.is_dir()
    if path.exists():
        state.files.append([path.name if path.is_file() else "", content_digest(path)])
    return path.exists()


def argument_marks(target: str) -> dict[str, Mark]:
    """The marks of a class's arguments."""
    kind = class_named(target)
    hints: dict[str, Any] = {}
    for source in (kind, getattr(kind, "FURTHER", None)):
        try:
            hints |= get_type_hints(source.__init__, include_extras=True)  # type: ignore[misc]
        except Exception:  # of a user's class a hint may be anything
            continue
    marks = {
        name: [part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Mark)]
        for name, hint in hints.items()
    }
    return {name: found[0] for name, found in marks.items() if found}


def model_state(name: str) -> dict[str, Any]:
    """Identity of a model: the content of its folder's files, or its name on the hub."""
    folder = Path(name).expanduser()
    return {"files": model_files(folder)} if folder.is_dir() else {"model": name}


def model_files(folder: Path, known: Mapping[str, str] | None = None) -> dict[str, str]:
    """The SHA-256 of the files of a model's folder that decide its answers, by name; of `known` ones the digest given there."""
    models = (file for file in sorted(folder.iterdir()) if file.suffix in MODEL_FILES and file.is_file())
    return {file.name: (known or {}).get(file.name) or content_digest(file) for file in models}


def class_named(target: str) -> Any:
    """A class by its full name; None if it cannot be imported: making the tool reports why."""
    try:
        return pkgutil.resolve_name(target)
    except Exception:  # a user's module may raise anything
        return None


def version_of(target: str) -> int | None:
    """The `VERSION` of a class of this package; None for a user's."""
    # Declared by the class itself: a user's subclass of ours is the user's.
    return getattr(class_named(target), "__dict__", {}).get("VERSION")


def texts_in(value: Any) -> list[str]:
    """The texts of an argument: itself, or those of a list."""
    return [part for part in (value if isinstance(value, list | tuple) else [value]) if isinstance(part, str)]


def _code_of_function(function: str) -> list[Any]:
    from toolformer.tools.user.functions import load_module, split

    return _code(load_module(split(function)[0]))


def _code(module: Any) -> list[Any]:
    """The state of a module's file, and of the data files that it names."""
    file = getattr(module, "__file__", None)
    return [_as_loaded(path) for path in (Path(file), *data_files(Path(file)))] if file else []


@functools.cache
def _as_loaded(path: Path) -> list[str]:
    """A file of the user's when this process first asked: what it does is what it was when it was imported."""
    return [path.name, content_digest(path)]


def _named_by(text: str) -> list[Any]:
    """The states of the files that a word of a command or of a setting names, `--config=FILE` too."""
    paths = dict.fromkeys([*_file_at(text), *_file_at(text.rpartition("=")[2])])
    sources = (path for path in paths if path.suffix == ".py")
    data = (path for source in sources for path in data_files(source.resolve()))
    return [[path.name, content_digest(path)] for path in dict.fromkeys([*paths, *data])]


def _file_at(text: str, folder: Path | None = None) -> list[Path]:
    """The file that a text names, in a folder."""
    try:
        path = (folder or Path()) / Path(text).expanduser()
        return [path] if path.is_file() else []
    except (OSError, ValueError, RuntimeError):  # not a file name, or an unknown home
        return []


@functools.cache
def data_files(source: Path) -> list[Path]:
    """The files beside a Python source, or below a folder beside it, that its text constants name: `"stock.csv"`, or `"/stock.csv"` of
    f"{folder}/stock.csv". Those with a name such as `"stock.csv"` that are not there, but in the working directory, too.

    Also the files that have the source's name, or one of its constants, with a constant such as `".csv"` at its end, and, in a source
    that lists folders (`iterdir`, `glob`, ...), all files of the folders that its constants name and those that match them
    (`"*.csv"`). A name that is put together otherwise while it runs is not found.
    """
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    nodes = list(ast.walk(tree))
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    texts = [os.fsdecode(value) for value in constants if isinstance(value, str | bytes)]
    texts += [text.lstrip("/") for text in texts]
    names = [text for text in dict.fromkeys(texts) if 0 < len(text) < 256 and "\n" not in text]
    called = {getattr(node, "attr", getattr(node, "id", None)) for node in nodes}
    folders = list(_folders(source.parent, names))
    suffixes = [name for name in names if name[0] == "." and name.replace(".", "").isalnum()]
    names += [f"{stem}{suffix}" for stem in (source.stem, *names) for suffix in suffixes]
    found: set[Path] = set()
    for name in names:
        beside = [path for folder in (source.parent, *folders) for path in _file_at(name, folder)]
        found.update(beside or (path.absolute() for path in _file_at(name) if path.suffix))
    if called & _LISTING:
        found.update(_listed(source, folders, [name for name in names if "*" in name]))
    return sorted(path for path in found if path.resolve() != source.resolve())


def _listed(source: Path, folders: Iterable[Path], patterns: Iterable[str]) -> Iterator[Path]:
    """All files of folders, and those beside the source that match a pattern, but for hidden ones and compiled Python."""
    listings = [(folder, "**/*") for folder in folders] + [(source.parent, pattern) for pattern in patterns]
    for folder, pattern in listings:
        files = list(islice(_matching(folder, pattern), _MOST_FILES + 1))
        if len(files) <= _MOST_FILES:
            yield from files
        else:
            log.warning(
                "%s: %s in its folder %s are more than %d files, so they do not count as the tool's data; name what decides its "
                "answers in `files` of its entry of tool_sources",
                *(source, pattern, folder, _MOST_FILES),
            )


def _matching(folder: Path, pattern: str) -> Iterator[Path]:
    """The files below a folder that match a pattern, or the end of one: of f"{folder}/*.csv" a source has the constant "/*.csv"."""
    for name in glob.iglob(pattern.lstrip("/"), root_dir=folder, recursive=True):
        if "__pycache__" not in name:
            yield from _file_at(name, folder)


def _folders(parent: Path, names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        if name.strip("./\\~ "):
            try:
                if (folder := parent / name).is_dir():
                    yield folder
            except (OSError, ValueError):
                continue
