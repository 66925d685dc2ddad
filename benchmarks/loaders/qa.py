"""WebQuestions, Natural Questions and TriviaQA (paper, section 4.2.3): `id, question, answers`, every alias an answer."""

from collections.abc import Mapping, Sequence
from typing import Any

from toolformer.benchmarks.loaders.sources import Row, Splits, collect, distinct, list_of, published, text_of


def webqs(**metadata: Any) -> Splits:
    """WebQuestions' test part, 2,032 questions."""
    return _questions("webqs", metadata)


def nq(**metadata: Any) -> Splits:
    """Natural Questions, open: its development part, 3,610 questions."""
    return _questions("nq", metadata)


def triviaqa(**metadata: Any) -> Splits:
    """TriviaQA without documents (unfiltered): its validation part, 11,313 questions."""
    return _questions("triviaqa", metadata, ("question", "question_id", "answer"))


def _questions(name: str, metadata: Mapping[str, Any], columns: Sequence[str] = ()) -> Splits:
    def make(row: Row, place: str) -> Row | str:
        identity = row.get("id", row.get("question_id"))
        question, answers = text_of(row, "question", place), distinct(answers_of(row, place))
        return {"id": identity, "question": question, "answers": answers} if answers else "no answer"

    return collect(name, published(name, metadata, columns)[1], make, metadata)


def answers_of(row: Row, place: str) -> list[str]:
    """`answers`; on the hub NQ's `answer`, and TriviaQA's value and aliases, as written and as normalised by its authors."""
    answer = row.get("answer")
    if not isinstance(answer, dict):
        return list_of(row, "answer" if "answer" in row else "answers", place, str)
    aliases = (list_of(answer, name, place, str) for name in ("aliases", "normalized_aliases"))
    return [text_of(answer, "value", place), *(alias for several in aliases for alias in several)]
