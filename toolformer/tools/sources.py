"""What a user's tool is made of, told without running it: Python files beside it, files of its server, its variables.

Names files as their folder sees them, so that a project that is moved stays what it is, and hashes; knows no tool and no
cache.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import os
import platform
import string
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

LARGEST_HASHED = 16 * 2**20
"""Bytes of a file that `state` tells by its content; weights and indexes are larger, and hashed at no start."""


def told(file: Path) -> list[tuple[str, str]]:
    """A Python file and what it imports beside it, with hashes; of an installed package its name and version.

    Raises:
        OSError: it cannot be read.
    """
    file = file.resolve()
    if _library(file) is not None:
        return [_installed(file)]
    return content([file, *imported_beside(file)], file.parent)


def _library(file: Path) -> Path | None:
    """The folder of installed packages, or of Python's own modules, that a resolved file is in."""
    for folder in file.parents:
        if folder.name in ("site-packages", "dist-packages"):
            return folder
    return next((folder for folder in _own_modules() if file.is_relative_to(folder)), None)


@cache
def _own_modules() -> tuple[Path, ...]:
    return tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))


@cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _installed(file: Path) -> tuple[str, str]:
    library = _library(file)
    assert library is not None  # asked before
    if library in _own_modules():
        return "python", platform.python_version()
    package = file.relative_to(library).parts[0].partition(".")[0]
    names = sorted(set(_distributions().get(package, ())))
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    return package, versions or _hash(file)  # one that was put there by hand has no version


def imported_beside(file: Path) -> list[Path]:
    """The Python files of its own folder or package that a file imports, and those that they import; not the file itself.

    Imports are read, not run: one that is made otherwise (`importlib`, a changed search path) is not seen. Installed
    packages and Python's own modules are none of them, wherever they are.
    """
    found: dict[Path, None] = {}
    left = [file.resolve()] if _library(file.resolve()) is None else []
    while left:
        here = left.pop()
        for other in _imported(here):
            if other not in found and other != file.resolve() and _library(other) is None:
                found[other] = None
                left.append(other)
    return sorted(found)


def _imported(file: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return  # who imports it says so
    folders = [file.parent]
    while (folders[-1] / "__init__.py").is_file():  # from where its package is imported
        folders.append(folders[-1].parent)
    roots = list(dict.fromkeys((folders[0], folders[-1])))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(roots, alias.name)
        elif isinstance(node, ast.ImportFrom):
            above = [file.parents[node.level - 1]] if 0 < node.level <= len(file.parents) else roots
            for alias in node.names:
                name = ".".join(part for part in (node.module, alias.name) if part)
                yield from _files(above, name)


def _files(roots: Sequence[Path], name: str) -> Iterator[Path]:
    """The files of a module or of something in it, and of the packages that it is in."""
    for root in roots:
        place = root
        for part in name.split("."):
            place = place / part
            for file in (place.with_name(f"{part}.py"), place / "__init__.py"):
                if file.is_file():
                    yield file.resolve()


def of_server(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The files that the command line of an MCP server names, `--config=FILE` too, and what its scripts import beside them.

    A log is none of them: the server writes it.
    """
    words = [arguments.get("command"), *(arguments.get("args") or ())]
    named = {part for word in words if isinstance(word, str) for part in (word, word.rpartition("=")[2])}
    found: dict[tuple[str, str], None] = {}
    for word in sorted(named):
        for file in files_at(word, inside=False):
            if file.suffix != ".log":
                one = told(file) if file.suffix == ".py" else content([file], file.parent)
                found.update(dict.fromkeys(one))
    return list(found)


def files_at(text: str, inside: bool = True) -> list[Path]:
    """The file that a text names or, with `inside`, the files right in the folder that it names; none for any other text."""
    try:
        place = Path(text).expanduser()
        found = sorted(place.iterdir()) if inside and place.is_dir() else [place]
        return [file for file in found if file.is_file()]
    except (OSError, ValueError, RuntimeError):  # a text that is no name of a file, or of nobody's home
        return []


def content(files: Sequence[Path], folder: Path) -> list[tuple[str, str]]:
    """Each file by its place as the folder sees it, with a hash of what is in it."""
    return [(Path(os.path.relpath(file, folder)).as_posix(), _hash(file)) for file in files]


def state(file: Path) -> tuple[str, int, str]:
    """A file's name, its size, and what is in it: a hash, or of a large one the time of its last change."""
    stat = file.stat()
    return file.name, stat.st_size, _hash(file) if stat.st_size <= LARGEST_HASHED else str(stat.st_mtime_ns)


def _hash(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def variables(value: Any) -> str:
    """A hash of the environment variables (`$NAME`) that texts name, anywhere in a configuration; empty without any.

    It tells other values from these and shows none.
    """
    names = sorted(set(_named(value)))
    if not names:
        return ""
    digest = hashlib.sha256()
    for name in names:
        for text in (name, os.environ.get(name, "")):
            data = text.encode("utf-8", "surrogateescape")
            digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def _named(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from string.Template(value).get_identifiers()
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _named(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _named(one)
