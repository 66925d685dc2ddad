"""A call's input as typed arguments: only literals, which pydantic converts to the tool's types.

`"Seoul", days=[1, 2], metric=true` is parsed like Python arguments, with JSON's keywords; nothing is evaluated. Anything
else is one text, the first argument: `Search(Ghana flag)`. Length, depth and digits are bounded.
"""

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pydantic import TypeAdapter, ValidationError

MOST_CHARACTERS = 2000
MOST_DIGITS = 30
DEEPEST = 8

_NAME = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_FILE = "<arguments of a call>"
warnings.filterwarnings("ignore", module=re.escape(_FILE))  # "\d" is a valid text


class ArgumentError(ValueError):
    """An input that does not fit a tool's parameters; the message becomes the reason of the result."""


class _NotLiterals(Exception):
    """The text is not a list of literals."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a tool."""

    name: str
    type: TypeAdapter[Any]
    """The type that values are converted to."""
    required: bool


_Value = tuple[Any, str]
"""A value and its source text (007); of a quoted string, the string."""


def bind(text: str, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The converted arguments of a call's input by name; `ArgumentError` if one is wrong, missing or unknown."""
    text = text.strip()
    if len(text) > MOST_CHARACTERS:
        raise ArgumentError("arguments too long")
    names = [parameter.name for parameter in parameters]
    values = _by_name(text, names)
    if values.keys() - set(names):
        raise ArgumentError("unknown argument")
    bound: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.name in values:
            bound[parameter.name] = _converted(parameter, *values[parameter.name])
        elif parameter.required:
            raise ArgumentError(f"argument {parameter.name} is missing")
    return bound


def _by_name(text: str, names: Sequence[str]) -> dict[str, _Value]:
    """The values by the names of their parameters, not yet converted."""
    if not text:
        return {}
    if not names:
        raise ArgumentError("takes no input")
    whole = {names[0]: (text, text)}
    try:
        arguments = _literals(text)
    except _NotLiterals:
        # `city=Seoul` is a broken argument, not a text for the first one.
        begins = _NAME.match(text)
        if begins and begins[1] in names or len(names) > 1 and (begins or text[0] in "\"'"):
            raise ArgumentError("arguments cannot be read") from None
        return whole
    used = [name for name, _ in arguments]
    if len(names) == 1 and (used.count(None) > 1 or {*used} - {None, *names}):
        return whole
    values: dict[str, _Value] = {}
    for n, (name, value) in enumerate(arguments):
        if name is None and n >= len(names):
            raise ArgumentError("too many arguments")
        name = name or names[n]
        if name in values:
            raise ArgumentError(f"argument {name} is given twice")
        values[name] = value
    return values


def _literals(text: str) -> list[tuple[str | None, _Value]]:
    """The arguments and their names; None for positional ones, which come first."""
    source = f"f({text})"
    try:
        call = ast.parse(source, _FILE, "eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _NotLiterals from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise _NotLiterals  # `1) + f(2`
    if any(keyword.arg is None for keyword in call.keywords):
        raise _NotLiterals  # **names
    nodes = [(None, node) for node in call.args] + [(keyword.arg, keyword.value) for keyword in call.keywords]
    values = [(name, node, _literal(node, source, 0)) for name, node in nodes]
    return [
        (name, (value, value if isinstance(value, str) else ast.get_source_segment(source, node) or ""))
        for name, node, value in values
    ]


def _literal(node: ast.expr, source: str, depth: int) -> Any:
    if depth > DEEPEST:
        raise ArgumentError("arguments too deep")
    match node:
        case ast.Constant(value=bool() | None | int() | float()):
            return node.value
        case ast.Constant(value=str()):
            try:  # JSON writes 🙂 as two escapes
                return str(json.loads(ast.get_source_segment(source, node) or "", strict=False))
            except ValueError:
                return node.value
        case ast.Name(id=word) if word in _WORDS:
            return _WORDS[word]
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number if isinstance(node.op, ast.USub) else number
        case ast.List(elts=nodes) | ast.Tuple(elts=nodes):
            return [_literal(value, source, depth + 1) for value in nodes]
        case ast.Dict(keys=keys, values=values):
            names = [_literal(key, source, depth + 1) if key else None for key in keys]
            if not all(isinstance(name, str) for name in names):
                raise _NotLiterals
            return dict(zip(names, (_literal(value, source, depth + 1) for value in values), strict=True))
    raise _NotLiterals


def _converted(parameter: Parameter, value: Any, text: str) -> Any:
    try:
        value = parameter.type.validate_python(value)
    except ValidationError as error:
        try:  # 007, where a text is expected
            value = parameter.type.validate_python(text)
        except ValidationError:
            message = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
            raise ArgumentError(f"argument {parameter.name}: {message[:1].lower()}{message[1:]}") from error
    if not _is_bounded(value):
        raise ArgumentError(f"argument {parameter.name}: number out of bounds")
    return value


def _is_bounded(value: Any) -> bool:
    """Whether all numbers in a value, which may come from quoted texts, are finite and short."""
    if isinstance(value, Mapping):
        return all(_is_bounded(part) for item in value.items() for part in item)
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_bounded, value))
    if isinstance(value, int):
        return abs(value) < 10**MOST_DIGITS
    if isinstance(value, Decimal):
        return value.is_finite() and abs(value.adjusted()) < MOST_DIGITS
    return not isinstance(value, float) or math.isfinite(value)
