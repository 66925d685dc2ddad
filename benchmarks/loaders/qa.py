"""WebQuestions, Natural Questions and TriviaQA (paper, section 4.2.3): `id, question, answers`, every alias an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.loaders.sources import Row, Splits, collect, distinct, list_of, published, text_of, value_of
from toolformer.errors import UserError

Answers = Callable[[Row, str], list[str]]


def webqs(**metadata: Any) -> Splits:
    """WebQuestions' test part, 2,032 questions."""
    return _questions("webqs", lambda row, place: list_of(row, "answers", place, str), metadata)


def nq(**metadata: Any) -> Splits:
    """Natural Questions, open: its development part, 3,610 questions."""
    return _questions("nq", lambda row, place: list_of(row, "answer", place, str), metadata)


def triviaqa(**metadata: Any) -> Splits:
    """TriviaQA without documents (unfiltered): its validation part, 11,313 questions."""
    return _questions("triviaqa", _trivia_answers, metadata)


def _questions(name: str, hub_answers: Answers, metadata: Mapping[str, Any]) -> Splits:
    from_file, rows = published(name, metadata, _NEEDED.get(name, ()))

    def make(row: Row, place: str) -> Row | str:
        found = list_of(row, "answers", place, str) if from_file else hub_answers(row, place)
        identity = row.get("id", row.get("question_id"))
        question, answers = text_of(row, "question", place), distinct(found)
        return {"id": identity, "question": question, "answers": answers} if answers else "no answer"

    return collect(name, rows, make, metadata)


_NEEDED = {"triviaqa": ("question", "question_id", "answer")}
"""Columns worth reading where a data set has far more."""


def _trivia_answers(row: Row, place: str) -> list[str]:
    """The value and all aliases, as written and as normalised by the authors."""
    answer = value_of(row, "answer", place)
    if not isinstance(answer, dict):
        raise UserError(f"{place}: field `answer` is no object with `value` and `aliases`; fix the row")
    return [
        text_of(answer, "value", place),
        *list_of(answer, "aliases", place, str),
        *list_of(answer, "normalized_aliases", place, str),
    ]
