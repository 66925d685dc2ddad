"""ASDiv, SVAMP and MAWPS (paper, section 4.2.2): `id, context, question, answer`, the answer one number.

A problem whose published answer is not one number (a ratio, a time, a name, several numbers) cannot be scored as
the paper scores; it is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.loaders.sources import (
    Placed,
    Row,
    Splits,
    as_splits,
    collect,
    data_folder,
    from_hub,
    read_lines,
    text_of,
    value_of,
)
from benchmarks.metrics import as_number

Problem = tuple[str, str, Any]
"""Context x, question q, answer as published."""


def svamp(hub: Row | None = None, published_rows: int | None = None, **metadata: Any) -> Splits:
    """SVAMP; on the hub, two splits that together are the 1,000 problems."""
    folder = data_folder(metadata)
    if folder:
        rows = _problems("svamp", read_lines(folder, "svamp", "svamp/svamp"), _svamp_row, published_rows)
    else:
        rows = _problems("svamp", from_hub("svamp", hub), _svamp_hub_row, published_rows)
    return as_splits("svamp", rows, metadata)


def asdiv(hub: Row | None = None, published_rows: int | None = None, **metadata: Any) -> Splits:
    """ASDiv; its answers have a unit behind them: "9 (apples)"."""
    folder = data_folder(metadata)
    rows = read_lines(folder, "asdiv", "asdiv/asdiv") if folder else from_hub("asdiv", hub)
    return as_splits("asdiv", _problems("asdiv", rows, _asdiv_row, published_rows), metadata)


def mawps(hub: Row | None = None, published_rows: int | None = None, **metadata: Any) -> Splits:
    """MAWPS: the whole set in a data folder; the hub copy is smaller and has its numbers masked."""
    folder = data_folder(metadata)
    if folder:
        rows = _problems("mawps", read_lines(folder, "mawps", "mawps/mawps_full"), _mawps_row, published_rows)
    else:
        rows = _problems("mawps", from_hub("mawps", hub), _mawps_hub_row, published_rows)
    return as_splits("mawps", rows, metadata)


def _problems(
    name: str, rows: Iterable[Placed], read: Callable[[Row, str], Problem], published_rows: int | None
) -> list[Row]:
    def make(row: Row, place: str) -> Row | str:
        context, question, published = read(row, place)
        answer, reason = numeric_answer(published)
        if answer is None:
            return reason
        identity = row.get("id", row.get("ID"))
        return {"id": identity, "context": context.strip(), "question": question.strip(), "answer": answer}

    return collect(name, rows, make, published_rows)


def _svamp_row(row: Row, place: str) -> Problem:
    return text_of(row, "body", place), text_of(row, "question", place), value_of(row, "answer", place)


def _svamp_hub_row(row: Row, place: str) -> Problem:
    return text_of(row, "Body", place), text_of(row, "Question", place), value_of(row, "Answer", place)


def _asdiv_row(row: Row, place: str) -> Problem:
    return text_of(row, "body", place), text_of(row, "question", place), value_of(row, "answer", place)


def _mawps_row(row: Row, place: str) -> Problem:
    return "", text_of(row, "question", place), value_of(row, "solutions", place)


def _mawps_hub_row(row: Row, place: str) -> Problem:
    """`Question` with N_00, N_01, ... for the values of `Numbers` (separated by blanks)."""
    numbers = text_of(row, "Numbers", place).split()

    def value(match: re.Match[str]) -> str:
        index = int(match[1])
        # 8.0 is how the copy writes an 8.
        return re.sub(r"\.0+$", "", numbers[index]) if index < len(numbers) else match[0]

    question = re.sub(r"\bN_(\d+)\b", value, text_of(row, "Question", place))
    return "", question, None if re.search(r"\bN_\d", question) else value_of(row, "Answer", place)


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
