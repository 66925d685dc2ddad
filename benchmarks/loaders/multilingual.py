"""MLQA, and XQuAD in MLQA's setting (paper, section 4.2.4): `id, context, question, answers`.

Context and answers are English, the question is in another language; in the all-English variant it is English too.
The same id is the same question in every language.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from toolformer.benchmarks.loaders.published import of_another, published
from toolformer.benchmarks.loaders.sources import (
    Placed,
    Row,
    Splits,
    collect,
    distinct,
    list_of,
    text_of,
)


def mlqa(question_language: str = "es", questions_of: str | None = None, **metadata: Any) -> Splits:
    """MLQA's test part with English contexts.

    `questions_of` keeps the questions that are also in that language's part, in its order: Table 6 compares "All En"
    with each language on that language's questions.
    """
    if not questions_of:
        name = f"mlqa_{question_language}"
        return collect(name, published(name, metadata), _passage, metadata)
    name = f"mlqa_all_{question_language}_{questions_of}"
    rows = of_another(f"mlqa_{questions_of}", metadata)
    english = of_another(f"mlqa_{question_language}", metadata)
    return collect(name, _joined(rows, english, question=False), _passage, metadata)


def xquad(question_language: str = "es", **metadata: Any) -> Splits:
    """XQuAD: the English context and answers with the question in `question_language`, joined by id."""
    name = f"xquad_{question_language}"

    rows = published(name, metadata)
    if question_language != "en":
        rows = _joined(rows, of_another("xquad_en", metadata), question=True)
    return collect(name, rows, _passage, metadata)


def _joined(rows: Iterable[Placed], english: Iterable[Placed], question: bool) -> Iterator[Placed]:
    """The English row of every row's id, with the row's own question where `question` is set."""
    by_id = {text_of(row, "id", location): (location, row) for location, row in english}
    for location, row in rows:
        found = by_id.get(text_of(row, "id", location))
        if found is None:
            yield location, {"id": row["id"], "without": "no English row of this id"}
        elif question:
            yield location, {**found[1], "question": text_of(row, "question", location)}
        else:
            yield found


def _passage(row: Row, location: str) -> Row | str:
    if "without" in row:
        return str(row["without"])
    texts = [text_of(answer, "text", location) for answer in list_of(row, "answers", location, dict)]
    found = distinct(texts)
    if not found:
        return "no answer"
    return {
        "id": text_of(row, "id", location),
        "context": text_of(row, "context", location),
        "question": text_of(row, "question", location),
        "answers": found,
    }
