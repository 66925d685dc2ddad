"""Sentences with inline calls and their results, which show an untrained model how tools are called (system=prompted).

Four for each built-in tool are in `<key>.txt`, one per line; for a user's tool they are made from its examples.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from toolformer.calls import START, call_end, clean_result, linearise, parse
from toolformer.tools.user.describe import example_call

MOST_DESCRIBED = 4
"""Maximum number of examples of a user's tool, as many as the others have."""


def of_tool(key: str, name: str) -> list[str]:
    """The sentences for a tool by its key, with its `name` in calls; empty for a tool that has no file."""
    path = Path(__file__).parent / f"{key}.txt"
    sentences = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        before, _, rest = line.partition(START)
        end = call_end(rest)
        call = replace(parse(START + rest[:end]), tool=name)
        sentences.append(f"{before}{linearise(call)}{rest[end:]}")
    return sentences


def described(name: str, summary: str, calls: Sequence[str]) -> list[str]:
    """Sentences for a tool from its summary and calls with results, `square(3) -> 9`; CallSyntaxError if one is malformed."""
    sentences = []
    for text in calls[:MOST_DESCRIBED]:
        call = example_call(text)
        subject = f"{summary}: {clean_result(call.input)}".rstrip()
        sentences.append(f"{subject}{linearise(replace(call, tool=name))} {call.result}.")
    return sentences
