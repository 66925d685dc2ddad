"""What a tool's author says about it, and the few-shot prompt that is drafted from it."""

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
from toolformer.tools.user.arguments import ArgumentError, Parameter, bind

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
    """A function's first paragraph, its arguments' meanings, and the examples behind `>>>`; a `UserError` without."""
    text = inspect.getdoc(function)
    if not text or not text.strip():
        raise UserError(f"{place}: it has no docstring; say there in a sentence what it does")
    parsed = docstring_parser.parse(text)
    meanings = {parameter.arg_name: parameter.description for parameter in parsed.params}
    names = [name for name in inspect.signature(function).parameters if not re.fullmatch("__.*__", name)]
    return Description(
        one_sentence(parsed.short_description or text.strip().split("\n\n")[0]),
        tuple((name, one_sentence(meanings.get(name) or "")) for name in names),
        tuple(_examples(text, function.__name__)),
    )


def one_sentence(text: str) -> str:
    """One line without brackets and without a full stop at its end, cut where it is long."""
    return clean_result(text)[:LONGEST_SUMMARY].strip().rstrip(".").rstrip()


def _examples(docstring: str, name: str) -> list[str]:
    """The calls of a docstring's doctest that have a result, as `ApiCall`s in a text."""
    try:
        examples = doctest.DocTestParser().get_examples(docstring)
    except ValueError:  # badly indented: no examples
        return []
    calls = []
    for example in examples:
        match = re.fullmatch(rf"(?:[\w.()]*\.)?{re.escape(name)}\((.*)\)\s*", example.source, re.DOTALL)
        if not match or not example.want.strip() or example.exc_msg:
            continue
        arguments = " ".join(match[1].split())
        try:
            call = parse(f"[{name}({arguments})]")
        except CallSyntaxError:  # with brackets: in quotes
            call = ApiCall(name, arguments)
        calls.append(linearise(call.with_result(_wanted(example.want))).strip())
    return calls


def _wanted(text: str) -> str:
    """An expected value as the tool would answer it."""
    try:
        value = ast.literal_eval(text.strip())
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def draft(
    name: str,
    description: Description,
    parameters: Sequence[Parameter],
    examples: Sequence[str],
    place: str,
) -> tuple[str, list[tuple[str, str]]]:
    """(instruction, demonstrations) for a tool, from its description and calls with results, `square(3) -> 9`.

    `UserError` if an example is no call with a result, or one that the tool would refuse; the line begins with `place`.
    """
    shown = ", ".join(key for key, _ in description.parameters)
    meanings = [f'"{key}" is {_lower(meaning)}' for key, meaning in description.parameters if meaning]
    where = f" where {' and '.join(meanings)}" if meanings else ""
    instruction = (
        f"Your task is to add calls to a {name} API to a piece of text. What the API does: {description.summary}. You can "
        f'call the API by writing "[{name}({shown})]"{where}. Here are some examples of API calls:'
    )
    demonstrations = []
    for example in examples:
        try:
            call = example_call(example)
            bind(call.input, parameters)
        except (CallSyntaxError, ArgumentError) as error:
            wanted = "write a call with its result, square(3) -> 9"
            raise UserError(f"{place} is {example.strip()[:80]!r} ({error}); {wanted}") from error
        bare = linearise(ApiCall(name, call.input, None, call.quoted)).strip()
        given = clean_result(call.input)
        subject = f"{description.summary}: {given} gives" if given else f"{description.summary}:"
        demonstrations.append((f"{subject} {call.result}.", f"{subject} {bare} {call.result}."))
    return instruction, demonstrations


def example_call(example: str) -> ApiCall:
    """The call that an example is, `square(3) -> 9`; CallSyntaxError if it is none, or has no result."""
    text = example.strip()
    call = parse(text if text.startswith("[") else f"[{text}]")
    if not call.result:
        raise CallSyntaxError(f"{text!r} has no result")
    return call


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
