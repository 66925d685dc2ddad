"""MLQA, and XQuAD in MLQA's setting (paper, section 4.2.4): `id, context, question, answers`.

Context and answers are English, the question is in another language; in the all-English variant it is English too.
The same id is the same question in every language.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from toolformer.benchmarks import lines_file, mlqa_file
from toolformer.benchmarks.loaders.sources import (
    Placed,
    Row,
    Splits,
    collect,
    distinct,
    list_of,
    published,
    read_document,
    text_of,
    value_of,
)


def mlqa(question_language: str = "es", questions_of: str | None = None, **metadata: Any) -> Splits:
    """MLQA's test part with English contexts.

    `questions_of` keeps the questions that are also in that language's part, in its order: Table 6 compares "All En"
    with each language on that language's questions.
    """
    name = f"mlqa_all_{question_language}_{questions_of}" if questions_of else f"mlqa_{question_language}"

    def part(language: str) -> Iterator[Placed]:
        config = f"MLQA.en.{language}"
        return published(name, metadata, files=mlqa_file(language), config=config, read=squad_rows)[1]

    rows = part(question_language)
    if questions_of:
        rows = _joined(part(questions_of), rows, question=False)
    return collect(name, rows, _passage, metadata)


def xquad(question_language: str = "es", **metadata: Any) -> Splits:
    """XQuAD: the English context and answers with the question in `question_language`, joined by id."""
    name = f"xquad_{question_language}"

    def part(language: str) -> Iterator[Placed]:
        files = lines_file(f"xquad/{language}")
        return published(name, metadata, files=files, config=f"xquad.{language}")[1]

    rows = part(question_language)
    if question_language != "en":
        rows = _joined(rows, part("en"), question=True)
    return collect(name, rows, _passage, metadata)


def squad_rows(path: Path) -> Iterator[Placed]:
    """The questions of a file in SQuAD's layout: data, paragraphs, qas."""
    for place, paragraph in squad_paragraphs(path):
        for question in list_of(paragraph, "qas", place, dict):
            yield f"{path}, question {question.get('id')}", {**question, "context": paragraph["context"]}


def squad_paragraphs(path: Path) -> Iterator[Placed]:
    """The paragraphs of a file in SQuAD's layout: its articles' `title`, `context`, `qas`."""
    for article in list_of(read_document(path), "data", str(path), dict):
        for paragraph in list_of(article, "paragraphs", str(path), dict):
            context = text_of(paragraph, "context", str(path))
            yield str(path), {**paragraph, "title": article.get("title"), "context": context}


def _joined(rows: Iterable[Placed], english: Iterable[Placed], question: bool) -> Iterator[Placed]:
    """The English row of every row's id, with the row's own question where `question` is set."""
    by_id = {text_of(row, "id", place): (place, row) for place, row in english}
    for place, row in rows:
        found = by_id.get(text_of(row, "id", place))
        if found is None:
            yield place, {"id": row["id"], "without": "no English row of this id"}
        elif question:
            yield place, {**found[1], "question": text_of(row, "question", place)}
        else:
            yield found


def _passage(row: Row, place: str) -> Row | str:
    if "without" in row:
        return str(row["without"])
    answers = value_of(row, "answers", place)
    # A list of objects in the published files; the hub turns it into an object of lists.
    if isinstance(answers, dict):
        texts = list_of(answers, "text", place, str)
    else:
        texts = [text_of(answer, "text", place) for answer in list_of(row, "answers", place, dict)]
    found = distinct(texts)
    if not found:
        return "no answer"
    return {
        "id": text_of(row, "id", place),
        "context": text_of(row, "context", place),
        "question": text_of(row, "question", place),
        "answers": found,
    }
