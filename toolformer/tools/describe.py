"""What a tool's author says about it, and the few-shot prompt that is drafted from it."""

from __future__ import annotations

import ast
import doctest
import inspect
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import docstring_parser

from toolformer.calls import ApiCall, CallSyntaxError, clean_result, linearise, parse
from toolformer.errors import UserError
from toolformer.tools.arguments import ArgumentError, Parameter, bind

LONGEST_SUMMARY = 300


@dataclass(frozen=True)
class Description:
    """A tool in its author's words."""

    summary: str
    """What it does, in a sentence."""
    parameters: tuple[tuple[str, str], ...] = ()
    """(name, meaning or nothing) of each argument."""
    examples: tuple[str, ...] = ()
    """Calls with their results, `square(3) -> 9`."""


def from_docstring(function: Callable[..., Any], place: str) -> Description:
    """A function's description: the first paragraph, the arguments' meanings, and the examples behind `>>>`.

    Raises:
        UserError: it has no docstring.
    """
    text = inspect.getdoc(function)
    if not text or not text.strip():
        raise UserError(f"{place}: it has no docstring; say there in a sentence what it does")
    try:
        read = docstring_parser.parse(text)
        summary, meanings = (
            read.short_description or "",
            {one.arg_name: one.description for one in read.params},
        )
    except docstring_parser.ParseError:
        summary, meanings = "", {}
    names = [
        name
        for name in inspect.signature(function).parameters
        if not (name.startswith("__") and name[-2:] == "__")
    ]
    return Description(
        one_sentence(summary or text.strip().split("\n\n")[0]),
        tuple((name, one_sentence(meanings.get(name) or "")) for name in names),
        tuple(_examples(text, function.__name__)),
    )


def one_sentence(text: str) -> str:
    """One line without brackets and without a full stop at its end, cut where it is long."""
    return clean_result(text)[:LONGEST_SUMMARY].strip().rstrip(".").rstrip()


def _examples(docstring: str, name: str) -> list[str]:
    found = []
    try:
        examples = doctest.DocTestParser().get_examples(docstring)
    except ValueError:  # badly indented: no examples
        return []
    for example in examples:
        call = re.fullmatch(rf"(?:[\w.()]*\.)?{re.escape(name)}\((.*)\)\s*", example.source, re.DOTALL)
        if call and example.want.strip() and not example.exc_msg:
            found.append(
                linearise(_call(name, " ".join(call[1].split())).with_result(_wanted(example.want))).strip()
            )
    return found


def _call(name: str, arguments: str) -> ApiCall:
    try:
        return parse(f"[{name}({arguments})]")
    except CallSyntaxError:  # with brackets: in quotes
        return ApiCall(name, arguments)


def _wanted(text: str) -> str:
    """An expected value as the tool would answer it."""
    try:
        value = ast.literal_eval(text.strip())
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def draft(
    name: str, description: Description, examples: Sequence[str], place: str
) -> tuple[str, list[tuple[str, str]]]:
    """(instruction, demonstrations) for a tool, from its description and calls with results.

    Raises:
        UserError: an example is no call with a result; the line begins with `place`.
    """
    shown = ", ".join(parameter for parameter, _ in description.parameters)
    meanings = [
        f'"{parameter}" is {_lower(meaning)}' for parameter, meaning in description.parameters if meaning
    ]
    where = f" where {' and '.join(meanings)}" if meanings else ""
    instruction = (
        f"Your task is to add calls to a {name} API to a piece of text. What the API does: {description.summary}. You can "
        f'call the API by writing "[{name}({shown})]"{where}. Here are some examples of API calls:'
    )
    demonstrations = []
    for example in examples:
        call = read_example(example, place)
        bare = linearise(ApiCall(name, call.input, None, call.quoted)).strip()
        given = clean_result(call.input)
        subject = f"{description.summary}: {given} gives" if given else f"{description.summary}:"
        demonstrations.append((f"{subject} {call.result}.", f"{subject} {bare} {call.result}."))
    return instruction, demonstrations


def read_example(example: str, place: str) -> ApiCall:
    """`square(3) -> 9` as a call.

    Raises:
        UserError: it is none, or has no result.
    """
    text = example.strip()
    try:
        call = parse(text if text.startswith("[") else f"[{text}]")
    except CallSyntaxError as error:
        raise UserError(
            f"{place} is {text[:80]!r} ({error}); write a call with its result, square(3) -> 9"
        ) from error
    if not call.result:
        raise UserError(f"{place} is {text[:80]!r}; write its result behind it, square(3) -> 9")
    return call


def check_example(example: str, parameters: Sequence[Parameter], place: str) -> None:
    """Refuses an example that the tool itself would.

    Raises:
        UserError: its arguments are wrong; the line begins with `place`.
    """
    try:
        bind(read_example(example, place).input, parameters)
    except ArgumentError as error:
        raise UserError(f"{place} is {example.strip()[:80]!r}: {error}") from error


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
