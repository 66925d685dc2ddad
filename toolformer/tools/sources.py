"""What a user's tool is made of, told without running it: Python files beside it, files of its server, its variables.

Names files and hashes; knows no tool and no cache.
"""

from __future__ import annotations

import ast
import hashlib
import os
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def imported_beside(file: Path) -> list[Path]:
    """The Python files of its own folder or package that a file imports, and those that they import; not the file itself.

    Imports are read, not run: one that is made otherwise (`importlib`, a changed search path) is not seen.
    """
    found: dict[Path, None] = {}
    left = [file.resolve()]
    while left:
        here = left.pop()
        for other in _imported(here):
            if other not in found and other != file.resolve():
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


def of_server(arguments: Mapping[str, Any]) -> list[Path]:
    """The files that the command line of an MCP server names, `--config=FILE` too, and what its scripts import beside them.

    A log is none of them: the server writes it.
    """
    words = [arguments.get("command"), *(arguments.get("args") or ())]
    named = [
        part for word in words if isinstance(word, str) for part in {word, word.rpartition("=")[2]} if part
    ]
    given = {Path(one).expanduser() for one in named}
    files = {file for file in given if file.suffix != ".log" and _is_file(file)}
    scripts = [file for file in files if file.suffix == ".py"]
    return sorted(files.union(*map(imported_beside, scripts)))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a text that is no name of a file
        return False


def content(files: Sequence[Path]) -> list[tuple[str, str]]:
    """Each file with a hash of what is in it."""
    return [(str(file), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]


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
