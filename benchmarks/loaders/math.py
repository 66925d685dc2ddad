"""ASDiv, SVAMP and MAWPS (paper, section 4.2.2): `id, context, question, answer`, the answer one number.

A problem whose published answer is not one number (a ratio, a time, a name, several numbers) is dropped.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from toolformer.benchmarks.arithmetic import generate
from toolformer.benchmarks.loaders.published import published
from toolformer.benchmarks.loaders.sources import (
    Row,
    Splits,
    collect,
    generated,
    text_of,
    value_of,
)
from toolformer.benchmarks.metrics import as_written
from toolformer.benchmarks.numerals import in_ascii, whole_numeral

_MASK = re.compile(r"\b(?:(?:N_|NUM_?|number_?|temp_?)(\d{1,4})|(?:NUM|temp)_[a-z]|NUM)\b", re.IGNORECASE)
"""A mask that some copies have for a number, with its index if it has one."""

_NEVER_FILLED = re.compile(
    r"[\[{<](?:N_?\d{1,4}|(?:NUM|number|temp)_?(?:\d{1,4}|[a-z])?)[\]}>]|\{\d{1,4}\}|#0(?!\d)|\bN0\b",
    re.IGNORECASE,
)
"""Masks of other forms: [NUM0], {0}, #0, N0. Masks are counted from 0, and nothing else in a problem is written so."""

Problem = tuple[str, str, Any]
"""Context x, question q, answer as published."""


def svamp(**metadata: Any) -> Splits:
    """SVAMP; on the hub, two splits that together are the 1,000 problems."""
    return _problems("svamp", _body_and_question, metadata)


def asdiv(**metadata: Any) -> Splits:
    """ASDiv; its answers are followed by a unit: "9 (apples)"."""
    return _problems("asdiv", _body_and_question, metadata)


def mawps(**metadata: Any) -> Splits:
    """MAWPS; the hub's copy is smaller, and its masked numbers are filled in."""
    return _problems("mawps", _mawps_row, metadata)


def arithmetic(**metadata: Any) -> Splits:
    """Plain arithmetic, generated: `id, family, question, answer`."""
    return generated("arithmetic", generate, metadata)


def _problems(
    name: str,
    read: Callable[[Row, str], Problem],
    metadata: Mapping[str, Any],
) -> Splits:
    """The problems of a set."""

    def make(row: Row, location: str) -> Row | str:
        context, question, raw = read(row, location)
        if _NEVER_FILLED.search(f"{context} {question}"):
            return "masked numbers in the question"
        context, question = (_unmasked(text, row.get("numbers")) for text in (context, question))
        if _MASK.search(f"{context} {question}"):
            return "masked numbers in the question"
        answer, reason = numeric_answer(raw)
        if answer is None:
            return reason
        return {
            "id": row.get("id"), "context": context.strip(), "question": question.strip(), "answer": answer
        }  # fmt: skip

    return collect(name, published(name, metadata), make, metadata)


def _body_and_question(row: Row, location: str) -> Problem:
    return (
        text_of(row, "body", location),
        text_of(row, "question", location),
        value_of(row, "answer", location),
    )


def _mawps_row(row: Row, location: str) -> Problem:
    return "", text_of(row, "question", location), value_of(row, "solutions", location)


def _unmasked(text: str, numbers: Any) -> str:
    """The text with its masks (N_00, number0, temp_0, ...) replaced by the values of `numbers`.

    `numbers` is a list, or a text separated by blanks. A mask without its number stays.
    """
    values = numbers if isinstance(numbers, list) else str(numbers or "").split()

    def value(match: re.Match[str]) -> str:
        index = int(match[1] or len(values))
        return as_written(values[index]) if index < len(values) else match[0]

    return _MASK.sub(value, text)


_UNIT = r"(%)?\s*(?:[^\W\d_]+[.]?(?:\s+[^\W\d_]+)*)?"
"""A percent sign or words after the number of an answer."""


def numeric_answer(answer: Any) -> tuple[str | None, str]:
    """A published answer as one number, or (None, the reason why it is not one).

    Numbers stay as they are written. A text may end with a unit: "9 (apples)", "$5", "1/2 (pizza)",
    "30%".

    >>> numeric_answer("9 (apples)"), numeric_answer([98.0]), numeric_answer("2:1 (ratio)")
    (('9', ''), ('98.0', ''), (None, 'ratio or time'))
    """
    if isinstance(answer, list | tuple):
        if len(answer) != 1:
            return None, "several answers" if answer else "no answer"
        return numeric_answer(answer[0])
    if answer is None or isinstance(answer, bool) or not str(answer).strip():
        return None, "no answer"
    text = re.sub(r"\([^)]*\)", " ", str(answer)).strip()
    if ";" in text or re.search(r"\d\s*,\s+[-$\d]", text):
        return None, "several answers"
    if re.search(r"\d\s*:\s*\d", text):
        return None, "ratio or time"
    text = in_ascii(text)
    found = whole_numeral(text)
    # A unit without parentheses: letters only, so that no second number is lost.
    if not found or found[0].divided is None or not (unit := re.fullmatch(_UNIT, found[1])):
        return None, "not a number"
    return text[: found[0].end] + (unit[1] or ""), ""
