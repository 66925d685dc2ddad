"""ASDiv, SVAMP and MAWPS (paper, section 4.2.2): `id, context, question, answer`, the answer one number.

A problem whose published answer is not one number (a ratio, a time, a name, several numbers) is dropped.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.arithmetic import generate
from benchmarks.loaders.sources import Row, Splits, collect, generated, published, text_of, value_of
from benchmarks.metrics import as_number, as_written

Problem = tuple[str, str, Any]
"""Context x, question q, answer as published."""


def svamp(**metadata: Any) -> Splits:
    """SVAMP; on the hub, two splits that together are the 1,000 problems."""
    return _problems("svamp", _body_and_question, metadata)


def asdiv(**metadata: Any) -> Splits:
    """ASDiv; its answers have a unit behind them: "9 (apples)"."""
    return _problems("asdiv", _body_and_question, metadata)


def mawps(**metadata: Any) -> Splits:
    """MAWPS: the whole set in a data folder; the hub copy is smaller and has its numbers masked."""
    return _problems("mawps", _mawps_row, metadata)


def arithmetic(**metadata: Any) -> Splits:
    """Plain arithmetic, generated: `id, family, question, answer`."""
    return generated("arithmetic", generate, metadata)


def _problems(name: str, read: Callable[[Row, str], Problem], metadata: Mapping[str, Any]) -> Splits:
    _, rows = published(name, metadata)

    def make(row: Row, place: str) -> Row | str:
        row = {field.lower(): value for field, value in row.items()}  # the hub's copies have capitals
        context, question, raw = read(row, place)
        answer, reason = numeric_answer(raw)
        if answer is None:
            return reason
        return {
            "id": row.get("id"), "context": context.strip(), "question": question.strip(), "answer": answer
        }  # fmt: skip

    return collect(name, rows, make, metadata)


def _body_and_question(row: Row, place: str) -> Problem:
    return text_of(row, "body", place), text_of(row, "question", place), value_of(row, "answer", place)


def _mawps_row(row: Row, place: str) -> Problem:
    """On the hub, `question` has N_00, N_01, ... for the values of `numbers` (separated by blanks)."""
    question = text_of(row, "question", place)
    if "numbers" not in row:
        return "", question, value_of(row, "solutions", place)
    numbers = text_of(row, "numbers", place).split()

    def value(match: re.Match[str]) -> str:
        index = int(match[1])
        return as_written(numbers[index]) if index < len(numbers) else match[0]

    question = re.sub(r"\bN_(\d+)\b", value, question)
    return "", question, None if re.search(r"\bN_\d", question) else value_of(row, "answer", place)


def numeric_answer(answer: Any) -> tuple[str | None, str]:
    """An answer as published to one number, or (None, the reason why it is none).

    Numbers stay as they are written. A text may have its unit behind it: "9 (apples)", "$5", "1/2 (pizza)",
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
    # A unit without parentheses: letters only, so that no second number is lost.
    text = re.sub(r"(?<=[\d.%])\s*[^\W\d_]+[.]?(?:\s+[^\W\d_]+)*$", "", text)
    try:
        as_number(text)
    except ValueError:
        return None, "not a number"
    return text, ""
