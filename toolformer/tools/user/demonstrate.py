"""Drafts demonstrations of a tool from plain texts: where a tool's result for words of a text follows them in the text.

No model is asked. The drafts are for a person to read and correct.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from toolformer.calls import ApiCall, linearise
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.tools.base import Tool

LONGEST_INPUT = 5
"""Words of an input that are tried."""
MOST_WORDS = 60
"""Words of a text that is tried: a demonstration is read by a person, and again with every text that is annotated."""
_WORD = re.compile(r"[^\s\"“”«»()\[\]]+")
_EDGE = ".,;:!?'’"


def demonstrations(tool: Tool, documents: Iterable[Document], most: int = 5) -> list[tuple[str, str]]:
    """(text, the same text with a call) for at most `most` of the documents that are short enough.

    A tool is called some hundred times per text. `UserError` for one that needs several arguments.
    """
    if sum(parameter.required for parameter in tool.parameters or ()) > 1:
        raise UserError(
            f"{tool.name}: it needs several arguments; write its demonstrations by hand (docs/tools.md)"
        )
    examples = tool.description.examples if tool.description else tool.examples
    quoted = not examples or any('("' in example for example in examples)
    pairs = (pair for document in documents if (pair := _demonstration(tool, document, quoted)))
    return list(islice(pairs, most))


def _demonstration(tool: Tool, document: Document, quoted: bool) -> tuple[str, str] | None:
    text = " ".join(document.text.split())
    inputs = list(_inputs(text)) if len(text.split()) <= MOST_WORDS else []
    if not inputs:
        return None
    distinct = list(dict.fromkeys(words for words, _ in inputs))
    results = dict(zip(distinct, tool.run(distinct, [document] * len(distinct)), strict=True))
    found = [
        (words, start)
        for words, end in inputs
        if (result := results[words].text) and (start := _next(text, result, words, end)) is not None
    ]
    if not found:
        return None
    words, start = max(found, key=lambda pair: len(pair[0]))  # of inputs with the same result the whole name
    call = linearise(ApiCall(tool.name, words, None, quoted)).strip()
    return text, f"{text[:start]}{call} {text[start:]}"


def _inputs(text: str) -> Iterator[tuple[str, int]]:
    """Every run of a few words of a text, without signs at its ends, and where it ends."""
    words = list(_WORD.finditer(text))
    for first in range(len(words)):
        for last in range(first, min(first + LONGEST_INPUT, len(words))):
            written = text[words[first].start() : words[last].end()]
            if stripped := written.strip(_EDGE):
                yield stripped, words[last].end()


def _next(text: str, result: str, words: str, after: int) -> int | None:
    """Where the result occurs as whole words after a position; None where it is a part of the input or not there."""
    if result.lower() in words.lower():
        return None
    match = re.compile(rf"(?<!\w){re.escape(result)}(?!\w)").search(text, after)
    return match.start() if match else None
