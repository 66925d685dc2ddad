"""A tool's description by its author, and a few-shot prompt drafted from it."""

import ast
import datetime
import doctest
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import docstring_parser
from pydantic_core import to_jsonable_python

from toolformer.calls import ApiCall, CallSyntaxError, clean_result, linearise, parse
from toolformer.errors import UserError
from toolformer.tools.user.arguments import ArgumentError, Parameter, bind

LONGEST_SUMMARY = 300
_WRITTEN_AS_CALLS: Mapping[str, Callable[..., Any]] = {
    kind.__name__: kind
    for kind in (Fraction, datetime.date, datetime.datetime, datetime.time, datetime.timedelta)
}
"""Types whose values Python shows as a call with several arguments."""


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
        one_sentence(_first_sentence(parsed) or text.strip().split("\n\n")[0]),
        tuple(
            (name, one_sentence(meanings.get(name) or "")) for name in inspect.signature(function).parameters
        ),
        tuple(_examples(text, function.__name__)),
    )


def _first_sentence(docstring: docstring_parser.Docstring) -> str:
    """The first line, with the lines of its paragraph up to the end of the sentence."""
    sentence = (docstring.short_description or "").strip()
    if docstring.blank_after_short_description or sentence.endswith((".", "!", "?")):
        return sentence
    more = re.split(r"\n\s*\n|>>>", docstring.long_description or "")[0]
    return re.split(r"(?<=[.!?])\s", f"{sentence} {more}".strip())[0]


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
    """A doctest's expected value as the tool's result: `Decimal('1.00')` is 1.00."""
    text = re.sub(r"<[\w.]+: (.*)>", r"\1", text.strip())  # a member of an enumeration
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call):
            value = ast.literal_eval(text)
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        name = ast.unparse(call.func).rpartition(".")[2]
        values = [ast.literal_eval(argument) for argument in call.args]
        if name in _WRITTEN_AS_CALLS:
            return str(to_jsonable_python(_WRITTEN_AS_CALLS[name](*values)))
        return str(values[0]) if len(values) == 1 and isinstance(values[0], str | int | float) else text
    except (ValueError, TypeError, ArithmeticError, SyntaxError, MemoryError, RecursionError):
        return text


def draft(
    name: str,
    description: Description,
    parameters: Sequence[Parameter],
    examples: Sequence[str],
    label: str,
) -> tuple[str, list[tuple[str, str]]]:
    """(instruction, demonstrations) for a tool, from its description and calls with results, `square(3) -> 9`.

    `UserError`, beginning with `place`, if an example is not a call with a result, or the tool would reject it.
    """
    demonstrations = []
    for example in examples:
        try:
            call = example_call(example)
            bind(call.input, parameters)
        except (CallSyntaxError, ArgumentError) as error:
            advice = "write a call with its result, square(3) -> 9"
            raise UserError(f"{label} is {example.strip()[:80]!r} ({error}); {advice}") from error
        bare = linearise(ApiCall(name, call.input, None, call.quoted)).strip()
        arguments = clean_result(call.input)
        subject = f"{description.summary}: {arguments} gives" if arguments else f"{description.summary}:"
        demonstrations.append((f"{subject} {call.result}.", f"{subject} {bare} {call.result}."))
    return instruction(name, description), demonstrations


def instruction(name: str, description: Description) -> str:
    """The first line of a tool's prompt."""
    arguments = ", ".join(key for key, _ in description.parameters)
    meanings = [f'"{key}" is {_lower(meaning)}' for key, meaning in description.parameters if meaning]
    where = f" where {' and '.join(meanings)}" if meanings else ""
    return (
        f"Your task is to add calls to a {name} API to a piece of text. What the API does: {description.summary}. You can "
        f'call the API by writing "[{name}({arguments})]"{where}. Here are some examples of API calls:'
    )


def example_call(example: str) -> ApiCall:
    """The call in an example, `square(3) -> 9`; CallSyntaxError if it is malformed or has no result."""
    text = example.strip()
    call = parse(text if text.startswith("[") else f"[{text}]")
    if not call.result:
        raise CallSyntaxError(f"{text!r} has no result")
    return call


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
