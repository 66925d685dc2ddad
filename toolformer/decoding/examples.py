"""Sentences with inline calls and their results, which show an untrained model how tools are called (system=prompted).

A built-in tool has four of them; for a user's tool they are made from its examples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolformer.calls import START, call_end, clean_result, linearise, parse
from toolformer.tools.identity import class_named
from toolformer.tools.user.describe import example_call

MOST_DESCRIBED = 4
"""Maximum number of examples of a user's tool, as many as the others have."""


def of_tool(implementation: Mapping[str, Any], name: str) -> list[str]:
    """The sentences of a configured tool's class, with its `name` in calls; none for a user's without any."""
    kind = class_named(str(implementation.get("_target_", "")))
    return with_name(getattr(kind, "examples", ()), name)


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
