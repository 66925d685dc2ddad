"""The right call of an example, as far as the published data has it: tools, input, and a passage that contains the answer.

Reads the rows a second time and joins them by id: documents of evaluations, and with them recorded answers, do not change.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from toolformer.benchmarks import GROUPS
from toolformer.benchmarks.declared import lines_file
from toolformer.benchmarks.loaders.published import of_another, published
from toolformer.benchmarks.loaders.sources import Row, data_folder, rows_of
from toolformer.benchmarks.metrics import as_written, score_first_words, score_math
from toolformer.benchmarks.tasks import question_of
from toolformer.tools.calculator import calculate

Doc = Mapping[str, Any]
WORDS = 35
"""Words of a passage, as many as the search tool shows."""
_EVERYWHERE = 1_000_000
_STEP = 10
_SIGNS = {"plus": "+", "minus": "-", "times": "*"}

FOREIGN = (*GROUPS["mlqa"], *GROUPS["xquad"])

EQUATIONS = ("equation", "formula", "equations")
"""The fields that hold a math problem's equation, in one data set or another."""


@dataclass(frozen=True)
class Gold:
    """The right call of an example."""

    answer: str
    input: str | None
    """None if the data has none."""
    passage: str | None = None
    """A passage that contains the answer, as `Title > text`."""
    result: str | None = None
    """The right call's result if that is not the answer: a foreign question in English."""


def golds(task: str, docs: Sequence[Doc], metadata: Mapping[str, Any]) -> list[Gold]:
    """The right call of each document of a task that a tool can answer; `metadata` is the task's, as the loaders get it.

    UserError if the published data cannot be read.
    """
    rows: dict[str, Row] = {}
    if task in (*GROUPS["math"], *GROUPS["lama"]):
        published_rows = enumerate(published(task, metadata), start=1)
        rows = {_identity(row, number): row for number, (_, row) in published_rows}
    passages = dict(_passages(task, metadata))
    english = _english_questions(task, metadata) if task in FOREIGN else {}
    right_calls = []
    for doc in docs:
        # Rows that share an id have `#2` and so on added to it.
        known, once = str(doc["id"]), re.sub(r"#\d+$", "", str(doc["id"]))
        row = rows.get(known) or rows.get(once) or {}
        key = doc["question"] if task == "nq" else str(row.get("uuid"))
        text = passages.get(key, "").replace("[MASK]", answer_of(doc))
        passage = cut(text, doc) if text else None
        right_calls.append(
            Gold(answer_of(doc), _input(task, doc, row), passage, english[once] if english else None)
        )
    return right_calls


def answer_of(doc: Doc) -> str:
    """The answer as a tool would write it."""
    if "answers" in doc:
        return str(doc["answers"][0])
    return as_written(doc["answer"])


def holds(doc: Doc, text: str) -> bool:
    """Whether a result contains the answer: one of the answers' texts, or the answer as its first number."""
    if "answers" in doc:
        return score_first_words(text, doc["answers"], _EVERYWHERE)
    return score_math(text, doc["answer"])


def cut(passage: str, doc: Doc) -> str | None:
    """The title and the first `WORDS` words in a row that contain the answer; None if none do."""
    title, mark, text = passage.rpartition(" > ")
    words = text.split()
    for start in range(0, max(len(words), 1), _STEP):
        part = " ".join(words[start : start + WORDS])
        if holds(doc, part):
            return f"{title}{mark}{part}"
    return None


def expression(equation: str, answer: str | float | Fraction) -> str | None:
    """The side of an equation whose value by the calculator is the answer, or None.

    >>> expression("( 76.0 - 25.0 )", "51.0"), expression("X=(27.0*16.0)", 432), expression("x-5=3", 8)
    ('76 - 25', '27*16', None)
    >>> expression("X = (1 + 2) * (3 + 4)", 21), expression("7+2=9", "9"), expression("__import__('os')", 8)
    ('(1 + 2) * (3 + 4)', '7+2', None)
    """
    for side in equation.split("="):
        text = re.sub(r"(?<=\d)\.0+(?!\d)", "", side).strip()
        bare = text[1:-1].strip() if text[:1] == "(" and text[-1:] == ")" else text
        for written in (bare, text):
            try:
                value = calculate(written)
            except ValueError:
                continue
            if score_math(value, answer):
                return written
    return None


def _identity(row: Row, number: int) -> str:
    """A row's id, as the loaders make it."""
    if "sub_label" not in row:
        return str(row.get("id") or number)
    relation = row.get("relation") or str(row.get("pred", "")).rpartition("/")[2]
    return str(row.get("uuid") or row.get("id") or f"{relation} {row['sub_label']}")


def _input(task: str, doc: Doc, row: Row) -> str | None:
    if task == "dateset":
        return ""
    if task == "arithmetic":
        text = doc["question"].removeprefix("What is ").removesuffix("?")
        text = re.sub(r"\b(plus|minus|times)\b", lambda sign: _SIGNS[sign[0]], text)
        return expression(text, doc["answer"])
    if task in GROUPS["math"]:
        equation = next((row[name] for name in EQUATIONS if name in row), None)
        return expression(
            str(equation[0] if isinstance(equation, list) and equation else equation), doc["answer"]
        )
    if task in FOREIGN:
        return str(doc["question"]).strip()
    if task in GROUPS["qa"]:
        return question_of(doc)
    label = row.get("relation_label") or doc.get("family", "").replace("_", " ")
    if row.get("sub_label") and task != "lama_squad" and label:
        return f"What is the {label} of {row['sub_label']}?"
    return f"{doc['text']} what?"


def _english_questions(task: str, metadata: Mapping[str, Any]) -> dict[str, str]:
    """The questions of MLQA or XQuAD in English, by id."""
    rows = of_another("xquad_en" if task in GROUPS["xquad"] else "mlqa_en", metadata)
    return {str(row["id"]): str(row["question"]).strip() for _, row in rows}


def _passages(task: str, metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Passages that come with the data, by question (NQ) or by a fact's uuid (T-REx, the answer masked)."""
    folder = data_folder(metadata)
    name = {"nq": "nq_open/oracle_passages", "lama_trex": "lama/trex_evidences"}.get(task)
    if folder is None or name is None:
        return
    file = next((folder / file for file in lines_file(name) if (folder / file).is_file()), None)
    for _, row in rows_of(file) if file else ():
        if task == "lama_trex" and row.get("evidences"):
            yield str(row.get("uuid")), str(row["evidences"][0]["masked_sentence"])
        for passage in row.get("passages", ())[:1]:
            yield str(row.get("question")), f"{passage['title']} > {passage['text']}"
