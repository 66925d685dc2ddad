"""Python functions as tools: one by name, every function of a file, or every method of an Open WebUI `Tools` class.

A function needs a docstring and type hints. It is the user's own code and trusted; what a model writes is not: it is read
as literals (`arguments.bind`) and converted by the type hints. A function that raises costs its call the result only.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import inspect
import json
import logging
import os
import re
import string
import sys
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import to_jsonable_python

from toolformer.calls import clean_result
from toolformer.credentials import said
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.tools import event_loop
from toolformer.tools.arguments import ArgumentError, Parameter, bind
from toolformer.tools.base import Result, too_late
from toolformer.tools.describe import Description, from_docstring

log = logging.getLogger(__name__)

MOST_CHARACTERS = 1000
"""Of a result; the rest is cut off."""
EMITTER = "__event_emitter__"
SIDE_BY_SIDE = 8
"""Calls of an asynchronous function at once."""
MOST_BLOCKED = 8
"""Calls of a batch that may block the event loop, each for twice the time limit, before the rest is given up."""
NOT_ASKED = Result(reason="tool blocks the event loop (not asked)", fault=True)


class FunctionTool:
    """A Python function as a tool.

    Args:
        function: `module:function`, `file.py:function`, or `file.py:Class.method`, whose class is made without arguments.
        name: its name in a call; the function's own if there is none.
        valves: for a class with `Valves`: their values; `$NAME` in one stands for an environment variable.

    Raises:
        UserError: it cannot be loaded, or lacks a docstring or a type hint.
    """

    def __init__(
        self, function: str, name: str | None = None, valves: Mapping[str, Any] | None = None
    ) -> None:
        self.function = function
        self._call = load(function, valves or {})
        self.bounds_calls = self.elsewhere = inspect.iscoroutinefunction(self._call)
        self.name = name or self._call.__name__
        hidden = [one for one in inspect.signature(self._call).parameters if _is_hidden(one)]
        self._extra = {EMITTER: Emitter(self.name)} if EMITTER in hidden else {}
        self.description: Description = from_docstring(self._call, function)
        self.parameters = parameters(self._call, function)

    def depends_on(self, document: Document) -> str:
        """Nothing: it is not shown the document."""
        return ""

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """What the function returns for each input; asynchronous calls run side by side."""
        if self.bounds_calls:
            return self._side_by_side(inputs)
        return [self._answer(text) for text in inputs]

    def _answer(self, text: str) -> Result:
        try:
            value = self._call(**bind(text, self.parameters), **self._extra)
            return show(event_loop.FUNCTIONS.run(_awaited(value)) if inspect.isawaitable(value) else value)
        except ArgumentError as error:
            return Result(reason=str(error))
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # a user's function may do anything
            return self._fault(error)

    def _side_by_side(self, inputs: Sequence[str]) -> list[Result]:
        """All calls on one loop. One that blocks it is too late, and those without an answer then are made afresh."""
        results: dict[int, Result] = {}
        for _ in range(MOST_BLOCKED):
            left = {n: text for n, text in enumerate(inputs) if n not in results}
            tasks: dict[asyncio.Task[Any], int] = {}
            try:
                event_loop.FUNCTIONS.run(self._gather(left, results, tasks))
                break
            except event_loop.Blocked as blocked:
                results = dict(results)  # what the old loop still writes is too late
                number = tasks.get(blocked.by) if blocked.by else None
                # Where it cannot be told which call it was, all that had begun are.
                for n in tuple(tasks.values()) if number is None else (number,):
                    results.setdefault(n, self._fault(event_loop.TooLate()))
        return [results.get(n, NOT_ASKED) for n in range(len(inputs))]

    async def _gather(
        self, inputs: Mapping[int, str], results: dict[int, Result], tasks: dict[asyncio.Task[Any], int]
    ) -> None:
        """Puts each call's result, as soon as it is there, and its task where others can see them."""
        free = asyncio.Semaphore(SIDE_BY_SIDE)

        async def made(n: int, text: str) -> None:
            task = asyncio.current_task()
            assert task is not None  # it is in one
            tasks[task] = n
            try:
                value = await _kept(self._call(**bind(text, self.parameters), **self._extra))
                results.setdefault(n, show(value))
            except ArgumentError as error:
                results.setdefault(n, Result(reason=str(error)))
            except Exception as error:  # a user's function may do anything
                results.setdefault(n, self._fault(error))

        async def answer(n: int, text: str) -> None:
            async with free:
                try:
                    await event_loop.bounded(made(n, text))
                except Exception as error:  # it is late, or has cancelled itself
                    results.setdefault(n, self._fault(error))

        await asyncio.gather(*(answer(n, text) for n, text in inputs.items()))

    def _fault(self, error: BaseException) -> Result:
        if isinstance(error, event_loop.TooLate | event_loop.Blocked):
            return Result(reason=too_late(event_loop.LIMIT.get()), fault=True, final=True)
        log.warning("%s failed: %s: %s", self.name, type(error).__name__, said(error, 300))
        return Result(reason=f"tool failed ({type(error).__name__})", fault=True)


class Emitter:
    """Open WebUI's `__event_emitter__`: status goes to the log; it may be awaited, and need not be."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, event: Any) -> _Done:
        data = event.get("data") if isinstance(event, Mapping) else None
        text = data.get("description", "") if isinstance(data, Mapping) else ""
        log.info("%s: %s", self.name, " ".join(str(text or event).split())[:200])
        return _Done()


async def _awaited(value: Awaitable[Any]) -> Any:
    return await event_loop.bounded(_kept(value))


async def _kept(value: Awaitable[Any]) -> Any:
    try:
        return await value
    except SystemExit as error:  # would end the loop that all tools share
        raise RuntimeError(f"SystemExit: {error}") from error


class _Done:
    """Nothing to wait for."""

    def __await__(self) -> Iterator[None]:
        return iter(())


def show(value: Any) -> Result:
    """A returned value as a result: a text as it is, anything else as one line of JSON; None is no result."""
    if value is None:
        return Result(reason="no answer")
    if not isinstance(value, str):
        try:
            value = json.dumps(to_jsonable_python(value), ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError, RecursionError):
            return Result(reason="result is not JSON")
    # A lone surrogate stands in no file.
    text = clean_result(value[: 4 * MOST_CHARACTERS].encode("utf-8", "replace").decode("utf-8"))
    return Result(text[:MOST_CHARACTERS].strip()) if text else Result(reason="empty result")


# ------------------------------------------------------------------- signatures


def parameters(function: Callable[..., Any], place: str) -> tuple[Parameter, ...]:
    """The arguments that a call may give, from type hints.

    Raises:
        UserError: one has no hint, a hint that no text can be converted to, or no name of its own.
    """
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # a hint may be any expression
        raise UserError(f"{place}: its type hints cannot be read ({_said(error)}); mend them") from error
    found = []
    for name, one in inspect.signature(function).parameters.items():
        if _is_hidden(name):
            if one.default is one.empty and name != EMITTER:
                raise UserError(f"{place}: it takes {name}, which only Open WebUI has; give it a default")
            continue
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            raise UserError(f"{place}: argument {name} has no name in a call; write it without *, ** and /")
        if name not in hints:
            raise UserError(f"{place}: argument {name} has no type hint; write for example {name}: str")
        try:
            adapter = TypeAdapter(hints[name])
        except PydanticUserError as error:
            raise UserError(
                f"{place}: argument {name} has a type that no text can be converted to; use str, int, float, bool or "
                "lists of them"
            ) from error
        found.append(Parameter(name, adapter, one.default is one.empty))
    return tuple(found)


def _is_hidden(name: str) -> bool:
    """Whether Open WebUI gives the argument and not the model."""
    return name.startswith("__") and name.endswith("__")


# ---------------------------------------------------------------------- loading


def tools_of(source: str) -> dict[str, str]:
    """The functions that a source offers, by name, each as `FunctionTool` takes it.

    `source` is a file or module with a class `Tools` (its public methods) or without (the public functions written
    there), or one function of it (`file.py:function`).

    Raises:
        UserError: there is no such file, module or function, or importing it fails.
    """
    left, _, attribute = source.rpartition(":") if _names_one(source) else (source, "", "")
    module = load_module(left)
    if attribute:
        _attribute(module, source, attribute)
        return {attribute.rpartition(".")[2]: source}
    owner = getattr(module, "Tools", None)
    if inspect.isclass(owner):
        methods = inspect.getmembers(owner, lambda one: inspect.isfunction(one) or inspect.ismethod(one))
        found = {name: f"{left}:Tools.{name}" for name, _ in methods if not name.startswith("_")}
    else:
        functions = inspect.getmembers(module, inspect.isfunction)
        found = {
            name: f"{left}:{name}"
            for name, one in functions
            if one.__module__ == module.__name__ and not name.startswith("_")
        }
    if not found:
        raise UserError(f"{source}: it has no class Tools with public methods, and no public function")
    return found


def load(place: str, valves: Mapping[str, Any]) -> Callable[..., Any]:
    """The function behind `module:function`, `file.py:function` or `file.py:Class.method`.

    Raises:
        UserError: there is none.
    """
    left, colon, attribute = place.rpartition(":")
    if not colon or not attribute:
        raise UserError(f"{place}: write module:function or file.py:function")
    module = load_module(left)
    owner, _, method = attribute.rpartition(".")
    if not owner:
        found = _attribute(module, place, attribute)
    else:
        made = _instance(module, place, owner, json.dumps(dict(valves), sort_keys=True, default=str))
        found = _attribute(made, place, method)
    if not inspect.isroutine(found):
        raise UserError(f"{place}: {attribute} is no function")
    return typing.cast(Callable[..., Any], found)


def _names_one(source: str) -> bool:
    return bool(re.search(r"(?<=.):[A-Za-z_][\w.]*$", source))


def _attribute(owner: Any, place: str, name: str) -> Any:
    for part in name.split("."):
        if not hasattr(owner, part):
            raise UserError(f"{place}: there is no {name} in it")
        owner = getattr(owner, part)
    return owner


@cache
def _instance(module: ModuleType, place: str, name: str, valves: str) -> Any:
    """The object whose methods are tools: one for all of them, since it may hold state."""
    owner = _attribute(module, place, name)
    if not inspect.isclass(owner):
        return owner
    try:
        made: Any = owner()
        values = json.loads(valves)
        kind = getattr(owner, "Valves", None)
        if inspect.isclass(kind) and values:
            made.valves = kind(**{key: from_environment(one, place) for key, one in values.items()})
        elif values:
            raise UserError(f"{place}: valves are given, but {name} has no class Valves")
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # a user's class may do anything
        raise UserError(f"{place}: {name} cannot be made ({_said(error)})") from error
    return made


def from_environment(value: Any, place: str) -> Any:
    """A text with `$NAME` replaced by environment variables, so that no secret stands in a configuration.

    Raises:
        UserError: a variable is not set.
    """
    if not isinstance(value, str):
        return value
    try:
        return string.Template(value).substitute(os.environ)
    except KeyError as error:
        raise UserError(f"{place}: the environment variable {error.args[0]} is not set") from error
    except ValueError as error:
        raise UserError(
            f"{place}: write $NAME for an environment variable, and $$ for a dollar sign"
        ) from error


def source_file(place: str) -> Path | None:
    """The file behind a place, without importing it; None if there is none."""
    left = place.rpartition(":")[0] if _names_one(place) else place
    if left.endswith(".py"):
        return Path(left).expanduser()
    try:
        spec = importlib.util.find_spec(left)
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.has_location and spec.origin:
        return Path(spec.origin)
    here = Path(*left.split(".")).with_suffix(".py")
    return here if here.is_file() else None


@cache
def load_module(name: str) -> ModuleType:
    """A module by name, or a file; one of this folder is found even where Python would not look for it.

    Raises:
        UserError: there is none, or importing it fails.
    """
    path = Path(name).expanduser() if name.endswith(".py") else None
    try:
        if path is None:
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError as error:
                path = source_file(name)
                if path is None or error.name is None or not name.startswith(error.name):
                    raise
        return _import_file(path.resolve())
    except FileNotFoundError as error:
        raise UserError(f"there is no file {error.filename}; name one that is there") from error
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserError(f"there is no module {name}; name one, or a file such as tools.py") from error
        raise UserError(f"{name} cannot be imported ({_said(error)})") from error
    except (Exception, SystemExit) as error:  # a module may do anything when it is imported
        raise UserError(f"{name} cannot be imported ({_said(error)})") from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    name = f"toolformer_user_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _said(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        # Without what was given: it may be a secret.
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"{type(error).__name__}: {said(error)}"
