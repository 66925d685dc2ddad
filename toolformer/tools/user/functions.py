"""Python functions as tools: one function, or all public functions of a file or module.

They run in this process. An exception costs only its call; code that may end the process (`os._exit`, a crash in C) belongs
in an MCP server.
"""

import asyncio
import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import itertools
import json
import logging
import math
import os
import re
import string
import sys
import typing
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from toolformer.calls import clean_result
from toolformer.data import Document
from toolformer.errors import UserError, one_line
from toolformer.step import Code, Content
from toolformer.tools.base import ClosedTool, Result, encodable, is_full_gpu
from toolformer.tools.user.arguments import ArgumentError, Parameter, bind
from toolformer.tools.user.describe import Description, from_docstring

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?")
MOST_CHARACTERS = 1000
"""Maximum characters of a result; the rest is cut."""
MAX_PARALLEL_CALLS = 8
"""Parallel calls of an asynchronous function."""


class UserTool(ClosedTool):
    """A tool with typed arguments, which does not see the document."""

    parameters: tuple[Parameter, ...]
    description: Description

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """Answers the inputs one after the other."""
        return [self._answer(text) for text in inputs]

    def _answer(self, text: str) -> Result:
        try:
            return self.call(bind(text, self.parameters))
        except ArgumentError as error:
            return Result(reason=str(error))

    @abstractmethod
    def call(self, arguments: dict[str, Any]) -> Result:
        """Answers a call."""


class FunctionTool(UserTool):
    """A Python function as a tool. An asynchronous one gets an event loop for each call.

    Args:
        function: `module:function` or `file.py:function`.
        name: its name in a call; by default the function's name.
        version: any text; results are cached under it, and never without one.
        files: the files and folders that it reads, and that its source does not name.

    `UserError` if the function cannot be loaded, or lacks a docstring or a type hint.
    """

    VERSION = 3

    def __init__(
        self,
        function: Annotated[str, Code()],
        name: str | None = None,
        version: str | None = None,
        files: Annotated[Sequence[str], Content()] = (),
    ) -> None:
        self.version = version or ""
        self._folder = os.getcwd()
        self._call = load_function(function)
        self.is_remote = inspect.iscoroutinefunction(self._call)
        self.max_parallel_calls = MAX_PARALLEL_CALLS if self.is_remote else 1
        self.name = name or self._call.__name__
        self.description = from_docstring(self._call, function)
        self.parameters = parameters(self._call, function)

    def call(self, arguments: dict[str, Any]) -> Result:
        """Result of the function; a fault if it raises anything except that a GPU's memory is full."""
        try:
            with _returning_to(self._folder):
                value = self._call(**arguments)
                return to_result(asyncio.run(value) if inspect.iscoroutine(value) else value)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if is_full_gpu(error):
                raise  # the tool is handed fewer calls at once
            log.warning("%s failed: %s: %s", self.name, type(error).__name__, one_line(error))
            return Result(reason=f"tool failed ({type(error).__name__})", fault=True)


@contextlib.contextmanager
def _returning_to(folder: str) -> Iterator[None]:
    """Undoes an `os.chdir` by user code, which would change the meaning of relative paths."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the folder is gone
            os.chdir(folder)


def to_result(value: Any) -> Result:
    """A returned value as a result; None is not one.

    Texts are as they are, and so are values that JSON writes as a text: decimals, fractions, dates, identifiers. Others,
    NumPy's too, become one line of JSON.
    """
    if value is None:
        return Result(reason="no answer")
    try:
        value = to_jsonable_python(_beginning(value), fallback=_of_array)
        text = value if isinstance(value, str) else _json(value)
    except (ValueError, TypeError, RecursionError):
        return Result(reason="result is not JSON")
    text = clean_result(encodable(text[: 4 * MOST_CHARACTERS]))
    return Result(text[:MOST_CHARACTERS].strip()) if text else Result(reason="empty result")


def _json(value: Any) -> str:
    """The beginning of a value's JSON in one line: a large value does not become a large text first."""
    parts, length = [], 0
    for part in json.JSONEncoder(ensure_ascii=False, allow_nan=False).iterencode(value):
        parts.append(part)
        length += len(part)
        if length > 4 * MOST_CHARACTERS:
            break
    return "".join(parts)


def _beginning(value: Any) -> Any:
    """As many items of a list, an array, a generator or a text as a result can show."""
    if isinstance(value, Generator):
        return list(itertools.islice(value, 4 * MOST_CHARACTERS))
    if shape := getattr(value, "shape", None):
        return value[: max(1, 4 * MOST_CHARACTERS // max(1, math.prod(shape[1:])))]
    return value[: 4 * MOST_CHARACTERS] if isinstance(value, list | tuple | str) else value


def _of_array(value: Any) -> Any:
    """An array as the list of its first rows, and a scalar of an array library as Python's; TypeError for anything else."""
    if getattr(value, "shape", None) and hasattr(
        value, "tolist"
    ):  # a table of pandas would become its columns' names
        return list(_beginning(value))
    number = value.item() if hasattr(value, "item") else None
    if number is None or type(number) is type(value):
        raise TypeError(f"a value of the type {type(value).__name__}")
    # The shortest digits of its precision: 0.33333334, not 0.3333333432674408.
    return float(str(value)) if isinstance(number, float) and _NUMBER.fullmatch(str(value)) else number


def parameters(function: Callable[..., Any], name: str) -> tuple[Parameter, ...]:
    """The parameters of a function, from its type hints; `UserError` if a call cannot give one."""
    result = []
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        for key, parameter in inspect.signature(function).parameters.items():
            is_required = parameter.default is parameter.empty
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
    """The functions of a source by name, as `FunctionTool` takes them.

    `UserError` if it has no public function or cannot be imported.
    """
    name, attribute = split(source)
    module = load_module(name)
    if attribute:
        return {attribute: source}
    tools = {
        key: f"{name}:{key}"
        for key, member in inspect.getmembers(module, inspect.isroutine)
        if not key.startswith("_") and member.__module__ == module.__name__
    }
    if not tools:
        objects = [
            key
            for key, member in vars(module).items()
            if not (key.startswith("_") or inspect.isclass(member) or inspect.ismodule(member))
            and _function_in(member)
        ]
        advice = f"; {_is_object(objects[0], getattr(module, objects[0]))}" if objects else ""
        raise UserError(f"{source}: it has no public function{advice}")
    return tools


def split(source: str) -> tuple[str, str]:
    """A file or module, and a name in it or ""."""
    match = re.fullmatch(r"(.+):([A-Za-z_]\w*)", source)
    return (match[1], match[2]) if match else (source, "")


def load_function(name: str) -> Callable[..., Any]:
    """The function of `module:function` or `file.py:function`; `UserError` if it is missing."""
    source, attribute = split(name)
    if not attribute:
        raise UserError(f"{name}: write module:function or file.py:function")
    function: Any = getattr(load_module(source), attribute, None)
    if not inspect.isroutine(function):
        is_object = _function_in(function) and not (inspect.isclass(function) or inspect.ismodule(function))
        reason = _is_object(attribute, function) if is_object else f"there is no function {attribute} in it"
        raise UserError(f"{name}: {reason}")
    return function


def _function_in(value: Any) -> str:
    """The attribute in which a tool object of another framework keeps its function; "" if there is none."""
    names = ("func", "fn", "_fn", "function", "_func", "coroutine", "forward", "_run", "run")
    return next((name for name in names if inspect.isroutine(getattr(value, name, None))), "")


def _is_object(name: str, value: Any) -> str:
    """Kind of an object, and how to give its function."""
    kind, inner = type(value), _function_in(value)
    advice = f"def {name}_function(...): return {name}{f'.{inner}' * bool(inner)}(...)"
    return (
        f"{name} is a {kind.__name__} (of {kind.__module__.partition('.')[0]}), not a function; give its function, the one that it was made "
        f"of, or write one with type hints and a docstring: {advice}"
    )


def from_environment(value: Any, name: str) -> Any:
    """Replaces `$NAME` by environment variables (`UserError` if unset), so that configurations contain no secrets."""
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
    """A module by name, possibly from the working folder, or a file; `UserError` if it cannot be imported."""
    path = Path(name).expanduser() if name.endswith(".py") else Path(*name.split(".")).with_suffix(".py")
    try:
        with _returning_to(os.getcwd()):
            # sys.path is not extended: other imports could find files of the working folder.
            if name.endswith(".py") or (
                path.is_file() and importlib.util.find_spec(name.split(".")[0]) is None
            ):
                return _import_file(path.resolve(strict=True))
            return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # user code may raise anything
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
    return f"{type(error).__name__}: {one_line(error)}"
