"""Functions of the task files: the paper's prompts (appendix C), and the score of an answer to a document.

A document is a row as benchmarks/loaders/ makes it; `results` is lm-eval's list with one answer.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolformer.benchmarks.metrics import score_first_words, score_math

Doc = Mapping[str, Any]


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
    return {"score": 100.0 * score_math(results[0], doc["answer"])}


def answer_in_5_words(doc: Doc, results: Sequence[str]) -> dict[str, float]:
    """100 or 0: LAMA, TempLAMA and Dateset (paper, sections 4.2.1 and 4.2.5)."""
    return {"score": 100.0 * score_first_words(results[0], doc["answers"], words=5)}


def answer_in_10_words(doc: Doc, results: Sequence[str]) -> dict[str, float]:
    """100 or 0: MLQA (paper, section 4.2.4)."""
    return {"score": 100.0 * score_first_words(results[0], doc["answers"], words=10)}


def answer_in_20_words(doc: Doc, results: Sequence[str]) -> dict[str, float]:
    """100 or 0: question answering (paper, section 4.2.3)."""
    return {"score": 100.0 * score_first_words(results[0], doc["answers"], words=20)}


def perplexity_results(doc: Doc, results: Sequence[float]) -> dict[str, tuple[float, int]]:
    """Log-likelihood in nats with the words and bytes of the text as published, counted as lm-eval does."""
    text = doc["text"]
    return {
        "word_perplexity": (results[0], len(re.split(r"\s+", text))),
        "byte_perplexity": (results[0], len(text.encode("utf-8"))),
    }
