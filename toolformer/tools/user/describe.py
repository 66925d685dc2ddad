"""A tool's description by its author, and a few-shot prompt drafted from it."""

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
    """The author's description of a tool."""

    summary: str
    """One sentence on what it does."""
    parameters: tuple[tuple[str, str], ...] = ()
    """(name, meaning or "") of each argument."""
    examples: tuple[str, ...] = ()
    """Calls with their results, `square(3) -> 9`."""


def from_docstring(function: Callable[..., Any], name: str) -> Description:
    """A function's first paragraph, its arguments' meanings, and the examples after `>>>`; `UserError` without docstring.

    `name` is what messages call the function.
    """
    text = inspect.getdoc(function)
    if not text or not text.strip():
        raise UserError(f"{name}: it has no docstring; say in one sentence what it does")
    parsed = docstring_parser.parse(text)
    meanings = {parameter.arg_name: parameter.description for parameter in parsed.params}
    return Description(
        one_sentence(parsed.short_description or text.strip().split("\n\n")[0]),
        tuple(
            (name, one_sentence(meanings.get(name) or "")) for name in inspect.signature(function).parameters
        ),
        tuple(_examples(text, function.__name__)),
    )


def one_sentence(text: str) -> str:
    """One line without brackets or final full stop, at most `LONGEST_SUMMARY` characters."""
    return clean_result(text)[:LONGEST_SUMMARY].strip().rstrip(".").rstrip()


def _examples(docstring: str, name: str) -> list[str]:
    """The calls with results in a docstring's doctest, as written in a text."""
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
        except CallSyntaxError:  # brackets need quotes
            call = ApiCall(name, arguments)
        calls.append(linearise(call.with_result(_expected(example.want))).strip())
    return calls


def _expected(text: str) -> str:
    """A doctest's expected value as the tool's result."""
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

    `UserError`, beginning with `place`, if an example is not a call with a result, or the tool would reject it.
    """
    arguments = ", ".join(key for key, _ in description.parameters)
    meanings = [f'"{key}" is {_lower(meaning)}' for key, meaning in description.parameters if meaning]
    where = f" where {' and '.join(meanings)}" if meanings else ""
    instruction = (
        f"Your task is to add calls to a {name} API to a piece of text. What the API does: {description.summary}. You can "
        f'call the API by writing "[{name}({arguments})]"{where}. Here are some examples of API calls:'
    )
    demonstrations = []
    for example in examples:
        try:
            call = example_call(example)
            bind(call.input, parameters)
        except (CallSyntaxError, ArgumentError) as error:
            advice = "write a call with its result, square(3) -> 9"
            raise UserError(f"{place} is {example.strip()[:80]!r} ({error}); {advice}") from error
        bare = linearise(ApiCall(name, call.input, None, call.quoted)).strip()
        arguments = clean_result(call.input)
        subject = f"{description.summary}: {arguments} gives" if arguments else f"{description.summary}:"
        demonstrations.append((f"{subject} {call.result}.", f"{subject} {bare} {call.result}."))
    return instruction, demonstrations


def example_call(example: str) -> ApiCall:
    """The call in an example, `square(3) -> 9`; CallSyntaxError if it is malformed or has no result."""
    text = example.strip()
    call = parse(text if text.startswith("[") else f"[{text}]")
    if not call.result:
        raise CallSyntaxError(f"{text!r} has no result")
    return call


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
