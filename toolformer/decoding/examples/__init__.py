"""Sentences with inline calls and their results, which show an untrained model how tools are called (system=prompted).

This project's own, four for each tool, in `<key>.txt`, a sentence a line; for a tool of the user's made of its own examples.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from toolformer.calls import START, call_end, clean_result, linearise, parse
from toolformer.tools.user.describe import example_call

MOST_DESCRIBED = 4
"""Examples of a tool of the user's own at most, as many as the others have."""


def of_tool(key: str, name: str) -> list[str]:
    """The sentences for a tool by its key, with the `name` that it has in calls; none where there is no file of it."""
    path = Path(__file__).parent / f"{key}.txt"
    sentences = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        before, _, rest = line.partition(START)
        end = call_end(rest)
        call = replace(parse(START + rest[:end]), tool=name)
        sentences.append(f"{before}{linearise(call)}{rest[end:]}")
    return sentences


def described(name: str, summary: str, calls: Sequence[str]) -> list[str]:
    """Sentences for a tool from calls with results, `square(3) -> 9`, and what it does; CallSyntaxError if one is none."""
    sentences = []
    for text in calls[:MOST_DESCRIBED]:
        call = example_call(text)
        subject = f"{summary}: {clean_result(call.input)}".rstrip()
        sentences.append(f"{subject}{linearise(replace(call, tool=name))} {call.result}.")
    return sentences
