"""WebQuestions, Natural Questions and TriviaQA (paper, section 4.2.3): `id, question, answers`, every alias an answer."""

from collections.abc import Mapping
from typing import Any

from toolformer.benchmarks.loaders.published import published
from toolformer.benchmarks.loaders.sources import Row, Splits, collect, distinct, list_of, text_of


def webqs(**metadata: Any) -> Splits:
    """WebQuestions' test part, 2,032 questions."""
    return _questions("webqs", metadata)


def nq(**metadata: Any) -> Splits:
    """Natural Questions, open: its development part, 3,610 questions."""
    return _questions("nq", metadata)


def triviaqa(**metadata: Any) -> Splits:
    """TriviaQA without documents (unfiltered): its validation part, 11,313 questions."""
    return _questions("triviaqa", metadata)


def _questions(name: str, metadata: Mapping[str, Any]) -> Splits:
    def make(row: Row, location: str) -> Row | str:
        question, answers = (
            text_of(row, "question", location),
            distinct(list_of(row, "answers", location, str)),
        )
        return {"id": row.get("id"), "question": question, "answers": answers} if answers else "no answer"

    return collect(name, published(name, metadata), make, metadata)
