"""A call's input as the arguments of a tool: literals only, converted to the types that the tool asks for.

`"Seoul", days=[1, 2], metric=true` is parsed as Python's arguments, with JSON's words; nothing is evaluated. Anything else
is one text, the first argument: `Search(Ghana flag)`. Length, depth and digits are bounded.
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
warnings.filterwarnings("ignore", module=re.escape(_FILE))  # "\d" is a text, and nobody's mistake


class ArgumentError(ValueError):
    """An input that is no list of arguments for a tool; the message is the reason of a result."""


class _NoLiterals(Exception):
    """The text is no list of literals."""


@dataclass(frozen=True)
class Parameter:
    """An argument that a tool takes."""

    name: str
    type: TypeAdapter[Any]
    """What its value is converted to."""
    required: bool


_Given = tuple[Any, str]
"""A value, and how it was written: 007; of a quoted string, itself."""


def bind(text: str, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The arguments in a call's input by name, converted; `ArgumentError` if one is wrong, missing or unknown."""
    text = text.strip()
    if len(text) > MOST_CHARACTERS:
        raise ArgumentError("arguments too long")
    names = [parameter.name for parameter in parameters]
    given = _given(text, names)
    if given.keys() - set(names):
        raise ArgumentError("unknown argument")
    bound: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.name in given:
            bound[parameter.name] = _converted(parameter, given[parameter.name])
        elif parameter.required:
            raise ArgumentError(f"argument {parameter.name} is missing")
    return bound


def _given(text: str, names: Sequence[str]) -> dict[str, _Given]:
    """The values by name, as they are written."""
    if not text:
        return {}
    if not names:
        raise ArgumentError("takes no input")
    whole = {names[0]: (text, text)}
    try:
        read = _read(text)
    except _NoLiterals:
        # `city=Seoul` is a broken argument, and no text for the first one.
        begins = _NAME.match(text)
        if begins and begins[1] in names or len(names) > 1 and (begins or text[0] in "\"'"):
            raise ArgumentError("arguments cannot be read") from None
        return whole
    used = [name for name, _ in read]
    if len(names) == 1 and (used.count(None) > 1 or {*used} - {None, *names}):
        return whole
    given: dict[str, _Given] = {}
    for n, (name, value) in enumerate(read):
        if name is None and n >= len(names):
            raise ArgumentError("too many arguments")
        name = name or names[n]
        if name in given:
            raise ArgumentError(f"argument {name} is given twice")
        given[name] = value
    return given


def _read(text: str) -> list[tuple[str | None, _Given]]:
    """The arguments with their names, the first ones perhaps without."""
    source = f"f({text})"
    try:
        call = ast.parse(source, _FILE, "eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _NoLiterals from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise _NoLiterals  # `1) + f(2`
    if any(keyword.arg is None for keyword in call.keywords):
        raise _NoLiterals  # **names
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
                raise _NoLiterals
            return dict(zip(names, (_literal(value, source, depth + 1) for value in values), strict=True))
    raise _NoLiterals


def _converted(parameter: Parameter, given: _Given) -> Any:
    value, text = given
    try:
        value = parameter.type.validate_python(value)
    except ValidationError as error:
        try:  # 007 is a text where a text is asked for
            value = parameter.type.validate_python(text)
        except ValidationError:
            message = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
            raise ArgumentError(f"argument {parameter.name}: {message[:1].lower()}{message[1:]}") from error
    if not _is_bounded(value):
        raise ArgumentError(f"argument {parameter.name}: number out of bounds")
    return value


def _is_bounded(value: Any) -> bool:
    """Whether all numbers in a value are finite and short; they may also come out of quotes."""
    if isinstance(value, Mapping):
        return all(_is_bounded(part) for item in value.items() for part in item)
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_bounded, value))
    if isinstance(value, int):
        return abs(value) < 10**MOST_DIGITS
    if isinstance(value, Decimal):
        return value.is_finite() and abs(value.adjusted()) < MOST_DIGITS
    return not isinstance(value, float) or math.isfinite(value)
