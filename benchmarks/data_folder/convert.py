"""Rows of a source, in its published layout, become rows of a data folder.

The fields that loaders and scripts read get the names that they expect; other fields of the source stay where the analysis of
errors reads them. Nothing is filtered: loaders drop what they cannot use, and say so.
"""

import datetime
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from toolformer.benchmarks.loaders.lama import facts
from toolformer.benchmarks.loaders.perplexity import articles_of
from toolformer.benchmarks.loaders.qa import answers_of
from toolformer.benchmarks.loaders.sources import Placed, Row, list_of, read_json, text_of, value_of
from toolformer.errors import UserError

Converter = Callable[[Iterable[Placed]], Iterator[Row]]

_MARKS = re.compile(r"<<[^<>]*>>")
"""The calculator's annotations in GSM8K's answers: `48/2 = <<48/2=24>>24`."""
_FINAL = re.compile(r"\n#### [^\n]*\s*\Z")
EVIDENCE_RELATIONS = frozenset(
    "P19 P20 P27 P31 P39 P101 P103 P106 P108 P127 P136 P138 P140 P159 P176 P178 P264 P364 P407 P413 P449 P463 P495 P527 P740 "
    "P937 P1303 P1412".split()
)
"""The relations of T-REx whose sentences are in the index of the published results."""


def json_rows(path: Path) -> Iterator[Placed]:
    """The objects of a file that is one JSON array; UserError if it is anything else."""
    rows = read_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: not a JSON array of objects; fetch it again")
    return ((f"{path}, row {number}", row) for number, row in enumerate(rows))


def unchanged(rows: Iterable[Placed]) -> Iterator[Row]:
    """The rows as they are."""
    return (row for _, row in rows)


def problems(rows: Iterable[Placed]) -> Iterator[Row]:
    """SVAMP, ASDiv: field names in lower case, and an answer in digits alone as a number, as SVAMP's authors publish it."""
    for number, (place, row) in enumerate(rows):
        lower = {name.lower(): value for name, value in row.items()}
        answer = str(value_of(lower, "answer", place))
        numeric = float(answer) if re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", answer) else answer
        yield {"id": number, **lower, "answer": numeric}


def mawps(rows: Iterable[Placed]) -> Iterator[Row]:
    """MAWPS: `iIndex, sQuestion, lEquations, lSolutions`."""
    names = {
        "iIndex": "orig_index",
        "sQuestion": "question",
        "lEquations": "equations",
        "lSolutions": "solutions",
    }
    for number, (place, row) in enumerate(rows, start=1):
        yield {"id": number, **{name: value_of(row, source, place) for source, name in names.items()}}


def questions(rows: Iterable[Placed]) -> Iterator[Row]:
    """WebQuestions, NQ, TriviaQA: every alias an answer, in the published order."""
    for number, (place, row) in enumerate(rows):
        answers = list(dict.fromkeys(answers_of(row, place)))
        identity = str(row.get("question_id") or number)
        yield {"id": identity, "question": text_of(row, "question", place), "answers": answers}


def lama_squad(rows: Iterable[Placed]) -> Iterator[Row]:
    """LAMA SQuAD: a sentence per row on the hub, a list in a data folder."""
    for place, row in rows:
        sentence = text_of(row, "masked_sentence", place)
        yield {**_without(row, "masked_sentence"), "masked_sentences": [sentence]}


def google_re(rows: Iterable[Placed]) -> Iterator[Row]:
    """LAMA Google-RE: one row per fact, without its sentences."""
    return (_without(row, "masked_sentence") for _, row in facts(rows, "pred"))


def trex(rows: Iterable[Placed]) -> Iterator[Row]:
    """LAMA T-REx: one row per fact, without its evidence."""
    for _, row in facts(rows, "predicate_id"):
        fact = _without(row, "predicate_id", "sub_surface", "obj_surface", "masked_sentence")
        yield {"relation": row["predicate_id"], **fact, "relation_label": row.get("label")}


def trex_evidences(rows: Iterable[Placed]) -> Iterator[Row]:
    """The sentences of T-REx's facts of `EVIDENCE_RELATIONS`, one row per fact, a sentence once per fact."""
    kept = ((place, row) for place, row in rows if row.get("predicate_id") in EVIDENCE_RELATIONS)
    fields = ("sub_surface", "obj_surface", "masked_sentence")
    for (relation, uuid), group in itertools.groupby(
        kept, key=lambda placed: (placed[1]["predicate_id"], placed[1].get("uuid"))
    ):
        sentences = [{name: text_of(row, name, place) for name in fields} for place, row in group]
        distinct = {tuple(sentence.values()): sentence for sentence in sentences}
        yield {"relation": relation, "uuid": uuid, "evidences": list(distinct.values())}


def wikitext(rows: Iterable[Placed]) -> Iterator[Row]:
    """WikiText: articles, from the lines of the hub's copy."""
    lines = (text_of(row, "text", place) for place, row in rows)
    return ({"article": number, "text": text} for number, text in enumerate(articles_of(lines)))


def mlqa(rows: Iterable[Placed]) -> Iterator[Row]:
    """MLQA: all questions as one object in SQuAD's layout, as published: `data`, `paragraphs`, `qas`."""
    data: list[Row] = []
    for title, article in itertools.groupby(rows, key=lambda placed: placed[1].get("title")):
        paragraphs = [
            {"context": context, "qas": [_squad_question(row, place) for place, row in group]}
            for context, group in itertools.groupby(
                article, key=lambda placed: text_of(placed[1], "context", placed[0])
            )
        ]
        data.append({"title": title, "paragraphs": paragraphs})
    yield {"version": 1.0, "data": data}


def xquad(rows: Iterable[Placed]) -> Iterator[Row]:
    """XQuAD: answers as a list of objects, as published."""
    return ({"context": text_of(row, "context", place), **_squad_question(row, place)} for place, row in rows)


def _squad_question(row: Row, place: str) -> Row:
    """A question with its answers as objects, which the hub has as an object of lists."""
    answers = value_of(row, "answers", place)
    texts, starts = list_of(answers, "text", place, str), value_of(answers, "answer_start", place)
    pairs = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    return {"id": text_of(row, "id", place), "question": text_of(row, "question", place), "answers": pairs}


def prose(rows: Iterable[Placed]) -> Iterator[Row]:
    """GSM8K: question and worked answer as prose, without the calculator's annotations and the line of the final answer."""
    for number, (place, row) in enumerate(rows):
        answer = _FINAL.sub("", _MARKS.sub("", text_of(row, "answer", place)))
        yield {"id": f"gsm8k-train-{number:05}", "text": f"{text_of(row, 'question', place)}\n{answer}"}


def paragraphs(rows: Iterable[Placed]) -> Iterator[Row]:
    """SQuAD's paragraphs, without their questions."""
    return ({"title": row["title"], "context": row["context"]} for _, row in rows)


def passages(rows: Iterable[Placed]) -> Iterator[Row]:
    """Passages with title and text, with an id."""
    for number, (place, row) in enumerate(rows):
        yield {
            "id": f"2wiki/{number}",
            "title": text_of(row, "title", place),
            "text": text_of(row, "text", place),
        }


def gold_passages(rows: Iterable[Placed]) -> Iterator[Row]:
    """NQ's questions, each with passages: `ctxs` of the source."""
    for number, (place, row) in enumerate(rows):
        contexts = list_of(row, "ctxs", place, dict)
        texts = [{name: text_of(context, name, place) for name in ("title", "text")} for context in contexts]
        question = {name: value_of(row, name, place) for name in ("question", "answers")}
        yield {"id": f"nq-oracle-{number}", **question, "passages": texts}


def news(rows: Iterable[Placed]) -> Iterator[Row]:
    """CC-News: `date` is `YYYY-MM-DD hh:mm:ss`, or anything else for unknown."""
    for number, (place, row) in enumerate(rows):
        fields = {"url": row.get("url"), "date": _day(row.get("date")), "title": row.get("title")}
        yield {"id": f"cc_news/{number}", "text": text_of(row, "text", place), **fields, "language": "en"}


def wikipedia(rows: Iterable[Placed]) -> Iterator[Row]:
    """Articles: the title, a line break, the text."""
    for number, (place, row) in enumerate(rows):
        text = f"{text_of(row, 'title', place)}\n\n{text_of(row, 'text', place)}"
        yield {"id": f"wikipedia/{number}", "text": text}


def _day(date: Any) -> str | None:
    try:
        return datetime.date.fromisoformat(str(date)[:10]).isoformat()
    except ValueError:
        return None


def _without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}
