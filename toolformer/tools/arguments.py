"""A call's input as the arguments of a tool: literals only, converted to the types that the tool asks for.

    arguments = argument {"," argument}        argument = [name "="] value
    value     = string | number | true | false | none | "(" values ")" | "[" values "]" | "{" string ":" value ... "}"

What is no such list is one text, the first argument: `Search(Ghana flag)`. Length, digits and depth are bounded, so that a
hostile input costs no time. This module knows no tool, and runs nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

MOST_CHARACTERS = 2000
MOST_DIGITS = 30
DEEPEST = 8

_BLANKS = re.compile(r"\s*")
_NAME = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)", re.ASCII)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'', re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?(?=[\s,)\]}]|$)")
_WORD = re.compile(r"[A-Za-z]+(?=[\s,)\]}]|$)", re.ASCII)
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "\\": "\\"}
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class ArgumentError(ValueError):
    """Why an input is no list of arguments for a tool; the message is the reason of a result."""


@dataclass(frozen=True)
class Parameter:
    """An argument that a tool takes."""

    name: str
    type: TypeAdapter[Any]
    """What its value is converted to."""
    required: bool


@dataclass(frozen=True)
class _Given:
    """A value, and how it was written where that was not a quoted string."""

    value: Any
    text: str | None


def bind(text: str, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The arguments in a call's input by name, converted.

    Raises:
        ArgumentError: one is wrong, missing or unknown, or the input is out of bounds.
    """
    text = text.strip()
    if len(text) > MOST_CHARACTERS:
        raise ArgumentError("arguments too long")
    names = [parameter.name for parameter in parameters]
    given = _given(text, names)
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        raise ArgumentError("unknown argument")
    bound: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.name in given:
            bound[parameter.name] = _convert(parameter, given[parameter.name])
        elif parameter.required:
            raise ArgumentError(f"argument {parameter.name} is missing")
    return bound


def _given(text: str, names: Sequence[str]) -> dict[str, _Given]:
    """The values by name, as they are written."""
    if not text:
        return {}
    if not names:
        raise ArgumentError("takes no input")
    whole = {names[0]: _Given(text, text)}
    try:
        positional, given = _Reader(text).arguments()
    except _NoLiterals:
        # `city=Seoul` is a broken argument, and no text for the first one.
        begins = _NAME.match(text)
        if begins and begins[1] in names or len(names) > 1 and (begins or text[0] in "\"'"):
            raise ArgumentError("arguments cannot be read") from None
        return whole
    if len(names) == 1 and (len(positional) > 1 or given.keys() - set(names)):
        return whole
    if len(positional) > len(names):
        raise ArgumentError("too many arguments")
    for name, value in zip(names, positional, strict=False):
        if name in given:
            raise ArgumentError(f"argument {name} is given twice")
        given[name] = value
    return given


def _convert(parameter: Parameter, given: _Given) -> Any:
    value = _converted(parameter, given)
    # Numbers out of bounds may also come out of quotes, which pydantic reads as numbers.
    too_long = isinstance(value, int) and abs(value) >= 10**MOST_DIGITS
    if too_long or (isinstance(value, float) and not math.isfinite(value)):
        raise ArgumentError(f"argument {parameter.name}: number out of bounds")
    return value


def _converted(parameter: Parameter, given: _Given) -> Any:
    try:
        return parameter.type.validate_python(given.value)
    except ValidationError as error:
        # 007 is a text where a text is asked for.
        if given.text is not None and given.text != given.value:
            try:
                return parameter.type.validate_python(given.text)
            except ValidationError:
                pass
        message = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        raise ArgumentError(f"argument {parameter.name}: {message[:1].lower()}{message[1:]}") from None


class _NoLiterals(Exception):
    """The text is no list of literals."""


class _Reader:
    """Recursive descent over a text; its depth is bounded by `DEEPEST`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.depth = 0

    def arguments(self) -> tuple[list[_Given], dict[str, _Given]]:
        """All of the text: arguments by position, then arguments by name."""
        positional: list[_Given] = []
        named: dict[str, _Given] = {}
        while True:
            self._blanks()
            name = _NAME.match(self.text, self.position)
            if name:
                self.position = name.end()
            elif named:
                raise ArgumentError("an argument without a name stands behind one with a name")
            self._blanks()
            start = self.position
            quoted = self.text[start : start + 1] in ("'", '"')
            value = self._value()
            given = _Given(value, None if quoted else self.text[start : self.position])
            if name and name[1] in named:
                raise ArgumentError(f"argument {name[1]} is given twice")
            if name:
                named[name[1]] = given
            else:
                positional.append(given)
            self._blanks()
            if self.position == len(self.text):
                return positional, named
            self._take(",")

    def _value(self) -> Any:
        self._blanks()
        if string := _STRING.match(self.text, self.position):
            self.position = string.end()
            return _text(string)
        if number := _NUMBER.match(self.text, self.position):
            self.position = number.end()
            return _number(number[0])
        word = _WORD.match(self.text, self.position)
        if word and word[0] in _WORDS:
            self.position = word.end()
            return _WORDS[word[0]]
        opening = self.text[self.position : self.position + 1]
        if opening not in _CLOSING:
            raise _NoLiterals
        self.depth += 1
        if self.depth > DEEPEST:
            raise ArgumentError("arguments too deep")
        self.position += 1
        value = self._object() if opening == "{" else self._list(_CLOSING[opening])
        self.depth -= 1
        return value

    def _list(self, closing: str) -> list[Any]:
        values: list[Any] = []
        while not self._closes(closing):
            values.append(self._value())
            if not self._closes(closing, peek=True):
                self._take(",")
        return values

    def _object(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not self._closes("}"):
            key = self._value()
            if not isinstance(key, str):
                raise _NoLiterals
            self._take(":")
            values[key] = self._value()
            if not self._closes("}", peek=True):
                self._take(",")
        return values

    def _closes(self, closing: str, peek: bool = False) -> bool:
        self._blanks()
        found = self.text.startswith(closing, self.position)
        if found and not peek:
            self.position += 1
        return found

    def _take(self, sign: str) -> None:
        self._blanks()
        if not self.text.startswith(sign, self.position):
            raise _NoLiterals
        self.position += 1

    def _blanks(self) -> None:
        blanks = _BLANKS.match(self.text, self.position)
        assert blanks is not None  # it may be empty
        self.position = blanks.end()


def _number(text: str) -> int | float:
    if sum(character.isdigit() for character in text) > MOST_DIGITS:
        raise ArgumentError("number too long")
    if text.lstrip("+-").isdigit():
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        raise ArgumentError("number too large")
    return value


def _text(string: re.Match[str]) -> str:
    """A quoted string's content: as JSON where it is JSON, else with the escapes of calls."""
    try:
        return str(json.loads(string[0], strict=False))
    except ValueError:
        inner = string[1] if string[1] is not None else string[2]
        # A backslash before another character means itself.
        return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), inner, flags=re.DOTALL)
