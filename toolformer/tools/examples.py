"""Sentences with inline calls and their results: they show an untrained model how tools are called (system=prompted), and are
the prompt of a built-in tool that is in no set of prompts.

A built-in tool has four of them; for a user's tool they are made from its examples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolformer.calls import START, CallSyntaxError, call_end, clean_result, linearise, parse
from toolformer.errors import UserError
from toolformer.tools.base import Tool
from toolformer.tools.identity import class_named
from toolformer.tools.prompt_sets import Prompt
from toolformer.tools.user.describe import Description, example_call, instruction

MOST_DESCRIBED = 4
"""Maximum number of examples of a user's tool, as many as the others have."""


def sentences_of(tool: Tool, example: str | None, key: str) -> list[str]:
    """The sentences that show a tool's calls: its own, else made of the calls that its author gives as examples.

    Args:
        example: a call with its result that the configuration gives in their place.
        key: the tool's key.

    UserError if there are none, or a call is malformed.
    """
    description = tool.description or Description(tool.name)
    calls = [example] if example else description.examples
    try:
        sentences = with_name(tool.examples, tool.name) or described(tool.name, description.summary, calls)
    except CallSyntaxError as error:
        raise UserError(f"tool.{key}.example: {error}") from error
    if not sentences:
        raise UserError(
            f"tool.{key}.example is missing: give a call with its result, {tool.name}(...) -> ..."
        )
    return sentences


def of_tool(implementation: Mapping[str, Any], name: str) -> list[str]:
    """The sentences of a configured tool's class, with its `name` in calls; none for a user's without any."""
    return with_name(getattr(_class(implementation), "examples", ()), name)


def prompt_of_class(implementation: Mapping[str, Any], name: str) -> Prompt | None:
    """The prompt of a configured tool that no set has: its class's description, and its examples without their results."""
    description = getattr(_class(implementation), "description", None)
    sentences = of_tool(implementation, name)
    if not isinstance(description, Description) or not sentences:
        return None
    return Prompt(instruction(name, description), tuple(demonstrations(sentences)))


def _class(implementation: Mapping[str, Any]) -> Any:
    return class_named(str(implementation.get("_target_", "")))


def with_name(sentences: Sequence[str], name: str) -> list[str]:
    """Sentences with one call each, which calls the tool by this name."""
    renamed = []
    for sentence in sentences:
        before, _, rest = sentence.partition(START)
        end = call_end(rest)
        call = replace(parse(START + rest[:end]), tool=name)
        renamed.append(f"{before}{linearise(call)}{rest[end:]}")
    return renamed


def demonstrations(sentences: Sequence[str]) -> list[tuple[str, str]]:
    """Sentences with one call each as demonstrations of a prompt: without the call, and with the call without its result."""
    pairs = []
    for sentence in sentences:
        before, _, rest = sentence.partition(START)
        end = call_end(rest)
        call = replace(parse(START + rest[:end]), result=None)
        after = rest[end:]
        pairs.append((f"{before}{after}".strip(), f"{before}{linearise(call)}{after}"))
    return pairs


def described(name: str, summary: str, calls: Sequence[str]) -> list[str]:
    """Sentences for a tool from its summary and calls with results, `square(3) -> 9`; CallSyntaxError if one is malformed."""
    sentences = []
    for text in calls[:MOST_DESCRIBED]:
        call = example_call(text)
        subject = f"{summary}: {clean_result(call.input)}".rstrip()
        sentences.append(f"{subject}{linearise(replace(call, tool=name))} {call.result}.")
    return sentences
