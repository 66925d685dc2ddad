"""Python functions as tools: one by name, every function of a file, or every method of an Open WebUI `Tools` class.

They run in this process: whatever one raises costs only its call, but one that ends the process (`os._exit`, a crash in C)
belongs behind an MCP server.
"""

import asyncio
import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import json
import logging
import operator
import os
import re
import string
import sys
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from toolformer.calls import clean_result
from toolformer.data import Document
from toolformer.errors import UserError, one_line
from toolformer.tools.base import Result, encodable
from toolformer.tools.user.arguments import ArgumentError, Parameter, bind
from toolformer.tools.user.describe import Description, from_docstring

log = logging.getLogger(__name__)

MOST_CHARACTERS = 1000
"""Of a result; the rest is cut off."""
EMITTER = "__event_emitter__"
SIDE_BY_SIDE = 8
"""Calls of an asynchronous function at once."""


class UserTool(ABC):
    """A tool that takes arguments with types, and is not shown the document."""

    parameters: tuple[Parameter, ...]
    description: Description

    def depends_on(self, document: Document) -> str:
        """Nothing."""
        return ""

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """The answer to each input, one after the other."""
        return [self._answer(text) for text in inputs]

    def _answer(self, text: str) -> Result:
        try:
            return self.call(bind(text, self.parameters))
        except ArgumentError as error:
            return Result(reason=str(error))

    @abstractmethod
    def call(self, arguments: dict[str, Any]) -> Result:
        """The answer to a call with these arguments."""


class FunctionTool(UserTool):
    """A Python function as a tool. An asynchronous one gets an event loop for each call.

    Args:
        function: `module:function`, `file.py:function`, or `file.py:Class.method`, whose class is made without arguments.
        name: its name in a call; the function's own by default.
        valves: for a class with `Valves`: their values; `$NAME` in one stands for an environment variable.
        version: any text; results are cached under it. Without one they are not cached.

    `UserError` if it cannot be loaded, or lacks a docstring or a type hint.
    """

    def __init__(
        self,
        function: str,
        name: str | None = None,
        valves: Mapping[str, Any] | None = None,
        version: str | None = None,
    ) -> None:
        self.version = version or ""
        self._folder = os.getcwd()
        self._call = load(function, valves or {})
        self.elsewhere = inspect.iscoroutinefunction(self._call)
        self.side_by_side = SIDE_BY_SIDE if self.elsewhere else 1
        self.name = name or self._call.__name__
        takes_emitter = EMITTER in inspect.signature(self._call).parameters
        self._extra = {EMITTER: self._emit} if takes_emitter else {}
        self.description = from_docstring(self._call, function)
        self.parameters = parameters(self._call, function)

    def call(self, arguments: dict[str, Any]) -> Result:
        """What the function returns, or that it raised."""
        try:
            with _back_to(self._folder):
                value = self._call(**arguments, **self._extra)
                return show(asyncio.run(value) if inspect.iscoroutine(value) else value)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            log.warning("%s failed: %s: %s", self.name, type(error).__name__, one_line(error))
            return Result(reason=f"tool failed ({type(error).__name__})", fault=True)

    async def _emit(self, event: Any) -> None:
        """Open WebUI's `__event_emitter__`: what a tool says of its progress goes to the log."""
        try:
            event = event["data"]["description"]
        except (LookupError, TypeError):
            pass
        log.info("%s: %s", self.name, " ".join(str(event).split())[:200])


@contextlib.contextmanager
def _back_to(folder: str) -> Iterator[None]:
    """Undoes an `os.chdir` of the user's code, after which no relative path would mean what it did."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the folder is gone
            os.chdir(folder)


def show(value: Any) -> Result:
    """A returned value as a result: a text as it is, anything else as one line of JSON; None is no result."""
    if value is None:
        return Result(reason="no answer")
    if not isinstance(value, str):
        try:
            value = json.dumps(to_jsonable_python(value), ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError, RecursionError):
            return Result(reason="result is not JSON")
    text = clean_result(encodable(value[: 4 * MOST_CHARACTERS]))
    return Result(text[:MOST_CHARACTERS].strip()) if text else Result(reason="empty result")


def parameters(function: Callable[..., Any], name: str) -> tuple[Parameter, ...]:
    """The arguments that a call may give, from type hints; `UserError` if one cannot be given in a call."""
    result = []
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        for key, parameter in inspect.signature(function).parameters.items():
            is_required = parameter.default is parameter.empty
            if key.startswith("__") and key.endswith("__"):  # given by Open WebUI, not by the model
                if is_required and key != EMITTER:
                    raise UserError(f"{name}: it takes {key}, which only Open WebUI has; give it a default")
                continue
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise UserError(f"{name}: argument {key} has no name in a call; write it without *, ** and /")
            if key not in hints:
                raise UserError(f"{name}: argument {key} has no type hint; write for example {key}: str")
            result.append(Parameter(key, TypeAdapter(hints[key]), is_required))
    except UserError:
        raise
    except Exception as error:  # a hint may be any expression, and any type
        reason = f"{_described(error)}; use str, int, float, bool or lists of them"
        raise UserError(f"{name}: a type hint cannot be used ({reason})") from error
    return tuple(result)


# ---------------------------------------------------------------------- loading


def tools_of(source: str) -> dict[str, str]:
    """The functions that a source offers, by name, each as `FunctionTool` takes it.

    Of a file or module with a class `Tools`, its public methods; of one without, the public functions written there. A
    `UserError` if there is none, or importing it fails.
    """
    name, attribute = split(source)
    module = load_module(name)
    if attribute:
        return {attribute.rpartition(".")[2]: source}
    owner = getattr(module, "Tools", None)
    is_class = inspect.isclass(owner)
    prefix = f"{name}:Tools." if is_class else f"{name}:"
    tools = {
        key: f"{prefix}{key}"
        for key, member in inspect.getmembers(owner if is_class else module, inspect.isroutine)
        if not key.startswith("_") and (is_class or member.__module__ == module.__name__)
    }
    if not tools:
        raise UserError(f"{source}: it has no class Tools with public methods, and no public function")
    return tools


def split(source: str) -> tuple[str, str]:
    """A file or module, and the name of something in it or nothing."""
    match = re.fullmatch(r"(.+):([A-Za-z_][\w.]*)", source)
    return (match[1], match[2]) if match else (source, "")


def load(name: str, valves: Mapping[str, Any]) -> Callable[..., Any]:
    """The function behind `module:function`, `file.py:function` or `file.py:Class.method`; `UserError` if none."""
    source, attribute = split(name)
    if not attribute:
        raise UserError(f"{name}: write module:function or file.py:function")
    owner: Any = load_module(source)
    owner_name, _, function_name = attribute.rpartition(".")
    if owner_name:
        owner = _instance(source, owner_name, json.dumps(dict(valves), sort_keys=True, default=str))
    function: Any = getattr(owner, function_name, None)
    if not inspect.isroutine(function):
        raise UserError(f"{name}: there is no function {attribute} in it")
    return function


@cache
def _instance(source: str, name: str, valves: str) -> Any:
    """The object whose methods are tools, shared by all of them since it may hold state."""
    try:
        with _back_to(os.getcwd()):
            owner = operator.attrgetter(name)(load_module(source))
            instance: Any = owner() if inspect.isclass(owner) else owner
            if values := json.loads(valves):
                instance.valves = owner.Valves(
                    **{key: from_environment(value, source) for key, value in values.items()}
                )
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a user's class may do anything
        raise UserError(f"{source}: {name} cannot be made ({_described(error)})") from error
    return instance


def from_environment(value: Any, name: str) -> Any:
    """A text with `$NAME` replaced by environment variables (`UserError` if unset): no secret stands in a configuration."""
    if not isinstance(value, str):
        return value
    try:
        return string.Template(value).substitute(os.environ)
    except KeyError as error:
        raise UserError(f"{name}: the environment variable {error.args[0]} is not set") from error
    except ValueError as error:
        raise UserError(
            f"{name}: write $NAME for an environment variable, and $$ for a dollar sign"
        ) from error


def load_module(name: str) -> ModuleType:
    """A module by name, also one in the working folder, or a file; `UserError` if it cannot be imported."""
    path = Path(name).expanduser() if name.endswith(".py") else Path(*name.split(".")).with_suffix(".py")
    try:
        with _back_to(os.getcwd()):
            # Not by a longer sys.path: another import could take a file of the working folder for a package.
            if name.endswith(".py") or (
                path.is_file() and importlib.util.find_spec(name.split(".")[0]) is None
            ):
                return _import_file(path.resolve(strict=True))
            return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may do anything when it is imported
        raise UserError(f"{name} cannot be imported ({_described(error)})") from error


@cache
def _import_file(path: Path) -> ModuleType:
    name = f"toolformer_user_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _described(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        # Without what was given: it may be a secret.
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"{type(error).__name__}: {one_line(error)}"
