"""Functions of the task files: the paper's prompts (appendix C), and the score of an answer to a document.

A document is a row as benchmarks/loaders/ makes it; `results` is lm-eval's list with one answer.
"""

import ast
import datetime
import json
import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from toolformer.benchmarks.metrics import as_number, as_written, score_first_words, score_math
from toolformer.errors import UserError

Doc = Mapping[str, Any]


def answers_of(doc: Doc) -> list[str]:
    """The right answers of a document: its field `answers`, or else `answer`.

    A text or a number, a list of them, or SQuAD's and MLQA's objects with a `text`. UserError for other forms, among them NaN
    and a list that is written as a text, or without a text.

    >>> answers_of({"answers": {"text": ["Paris"], "answer_start": [0]}}), answers_of({"answer": 7.0})
    (['Paris'], ['7'])
    """
    name = "answers" if "answers" in doc or "answer" not in doc else "answer"
    value = doc.get(name)
    value = value.get("text") if isinstance(value, Mapping) else value
    if isinstance(value, str) and _is_list(value):
        shown = reprlib.repr(value)
        raise _refused(
            doc,
            f"field `{name}` is a list written as a text, {shown}; give the list, or [{shown}] if it is the answer",
        )
    values = value if isinstance(value, list | tuple) else [value]
    texts: list[Any] = [item.get("text") if isinstance(item, Mapping) else item for item in values]
    if not texts or not all(_is_answer(text) for text in texts):
        expected = "a text, a number, a list of them, or an object with the field `text`"
        raise _refused(doc, f"field `{name}` is {reprlib.repr(doc.get(name))}; it must be {expected}")
    return [text if isinstance(text, str) else as_written(text) for text in texts]


def _is_answer(value: Any) -> bool:
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return (is_number and not isinstance(value, bool)) or (isinstance(value, str) and bool(value.strip()))


def _is_list(text: str) -> bool:
    """Whether a text is a list or an object in JSON or Python, or NumPy's array, as tables write them."""
    text = text.strip()
    if text[:1] not in ("[", "{", "("):
        return text.startswith("array([")
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            value = read(text)
            # (1, 2) is a point.
            return isinstance(value, list | dict | set) or (
                isinstance(value, tuple) and any(isinstance(part, str) for part in value)
            )
    return False


def number_of(doc: Doc) -> str:
    """The right answer of a math problem; UserError if it is not one number."""
    answers = answers_of(doc)
    if len(answers) > 1:
        raise _refused(doc, f"the problem has {len(answers)} answers; it must have one number")
    try:
        as_number(answers[0])
    except ValueError as error:
        raise _refused(doc, f"the answer {error}") from error
    return answers[0]


def day_of(doc: Doc) -> str | None:
    """The day on which a question is asked, YYYY-MM-DD: the field `current_date`; None without one. UserError for other forms."""
    value = doc.get("current_date")
    if value is None or value == "":
        return None
    try:
        day = (
            value if isinstance(value, datetime.date) else datetime.datetime.strptime(str(value), "%Y-%m-%d")
        )
    except ValueError:
        raise _refused(doc, f"field `current_date` is {reprlib.repr(value)}; it must be YYYY-MM-DD") from None
    return datetime.date(day.year, day.month, day.day).isoformat()  # strftime writes the year 1 as "1"


def _refused(doc: Doc, reason: str) -> UserError:
    return UserError(f"the row {doc.get('id')!r}: {reason}; fix the row")


def problem_of(doc: Doc) -> str:
    """A math problem: context x, if it has one, and question q."""
    return " ".join(part for part in (doc.get("context"), doc["question"]) if part)


def question_of(doc: Doc) -> str:
    """The question, with a question mark added if it has none."""
    question = doc["question"].rstrip()
    return f"{question}{'' if question.endswith('?') else '?'}"


def math_prompt(doc: Doc) -> str:
    """Context x, question q and "The answer is" (appendix C.2)."""
    return " ".join(part for part in (problem_of(doc), "The answer is") if part)


def question_prompt(doc: Doc) -> str:
    """The question after its instruction (appendix C.3)."""
    return f"Answer the following question: {question_of(doc)}"


def statement_prompt(doc: Doc) -> str:
    """A statement up to its mask, after its instruction (appendix C.1)."""
    return f"Please complete the following text so that it is factually correct: {doc['text']}"


def passage_prompt(doc: Doc) -> str:
    """Context x and question q with their instructions (appendix C.4)."""
    return (
        f"Your task is to answer a question based on the following paragraph: {doc['context'].strip()} "
        f"Now answer the following question in English: {doc['question'].strip()}"
    )


def math_score(doc: Doc, results: Sequence[str]) -> dict[str, float]:
    """100 or 0: ASDiv, SVAMP and MAWPS (paper, section 4.2.2)."""
    return {"score": 100.0 * score_math(results[0], number_of(doc))}


def answer_in_5_words(doc: Doc, results: Sequence[str]) -> dict[str, float]:
    """100 or 0: LAMA, TempLAMA and Dateset (paper, sections 4.2.1 and 4.2.5)."""
    return {"score": 100.0 * score_first_words(results[0], answers_of(doc), words=5)}


def answer_in_10_words(doc: Doc, results: Sequence[str]) -> dict[str, float]:
    """100 or 0: MLQA (paper, section 4.2.4)."""
    return {"score": 100.0 * score_first_words(results[0], answers_of(doc), words=10)}


def answer_in_20_words(doc: Doc, results: Sequence[str]) -> dict[str, float]:
    """100 or 0: question answering (paper, section 4.2.3)."""
    return {"score": 100.0 * score_first_words(results[0], answers_of(doc), words=20)}


def perplexity_results(doc: Doc, results: Sequence[float]) -> dict[str, tuple[float, int]]:
    """Log-likelihood in nats with the words and bytes of the text as published, counted as lm-eval does."""
    text = doc["text"]
    return {
        "word_perplexity": (results[0], len(re.split(r"\s+", text))),
        "byte_perplexity": (results[0], len(text.encode("utf-8"))),
    }
