"""MLQA in its published layout, and XQuAD joined by id: English contexts, questions in another language."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.conftest import Hub, documents, task
from tests.benchmarks.test_loaders import write
from toolformer.errors import UserError

CONTEXT = "Ada Bell crossed the river in 1815. It took her two days."
QUESTIONS = {
    "en": {"a": "When did she cross?", "b": "How long did it take?", "c": "Who crossed?"},
    "es": {"b": "¿Cuánto tardó?", "a": "¿Cuándo cruzó?"},
    "zh": {"a": "她什么时候过河？"},
}
ANSWERS = {"a": ["1815", "in 1815"], "b": ["two days"], "c": ["Ada Bell"]}


def squad(language: str) -> dict[str, Any]:
    """A file of MLQA: an article, its paragraphs, their questions."""
    answers = {key: [{"text": text, "answer_start": 0} for text in texts] for key, texts in ANSWERS.items()}
    asked = QUESTIONS[language].items()
    questions = [{"id": key, "question": question, "answers": answers[key]} for key, question in asked]
    paragraphs = [{"context": CONTEXT, "qas": [question]} for question in questions]
    return {"version": "1.0", "data": [{"title": "Ada", "paragraphs": paragraphs}]}


def write_mlqa(folder: Path, language: str, content: Any = None, packed: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"test-context-en-question-{language}.json{'.gz' if packed else ''}"
    opener: Any = gzip.open if packed else open
    with opener(path, "wt", encoding="utf-8") as file:
        json.dump(content or squad(language), file, ensure_ascii=False)
    return path


@pytest.mark.parametrize(
    ("folder", "packed"), [("mlqa", False), ("mlqa/test", True), ("MLQA_V1/test", False)]
)
def test_mlqa_in_its_published_layout(tmp_path: Path, folder: str, packed: bool) -> None:
    write_mlqa(tmp_path / folder, "es", packed=packed)
    made = task("mlqa_es", data_dir=str(tmp_path))
    found = [dict(row) for row in made.test_docs()]
    assert found == [
        {"id": "b", "context": CONTEXT, "question": "¿Cuánto tardó?", "answers": ["two days"]},
        {"id": "a", "context": CONTEXT, "question": "¿Cuándo cruzó?", "answers": ["1815", "in 1815"]},
    ]
    assert made.doc_to_text(found[0]) == (
        f"Your task is to answer a question based on the following paragraph: {CONTEXT} "
        "Now answer the following question in English: ¿Cuánto tardó?"
    )
    for words, score in ((8, 100.0), (9, 0.0)):
        assert made.process_results(found[0], ["w " * words + "two days"]) == {"score": score}


def test_the_all_english_variant(tmp_path: Path) -> None:
    for language in ("en", "es"):
        write_mlqa(tmp_path / "mlqa", language)
    every = documents("mlqa_en", data_dir=str(tmp_path))
    assert [row["question"] for row in every] == list(QUESTIONS["en"].values())
    column = documents("mlqa_all_en_es", data_dir=str(tmp_path))
    spanish = documents("mlqa_es", data_dir=str(tmp_path))
    assert [row["id"] for row in column] == [row["id"] for row in spanish] == ["b", "a"]
    assert [row["question"] for row in column] == ["How long did it take?", "When did she cross?"]


def test_a_seeded_subset_takes_the_same_questions_in_both_languages(tmp_path: Path) -> None:
    paragraphs = [
        {"context": CONTEXT, "qas": [{"id": str(n), "question": str(n), "answers": [{"text": "Ada", "answer_start": 0}]}]}
        for n in range(40)
    ]  # fmt: skip
    write_mlqa(tmp_path / "mlqa", "es", {"data": [{"title": "t", "paragraphs": paragraphs}]})
    write_mlqa(tmp_path / "mlqa", "en", {"data": [{"title": "t", "paragraphs": paragraphs[::-1]}]})
    chosen = [
        documents(name, data_dir=str(tmp_path), subset=7, seed=3) for name in ("mlqa_es", "mlqa_all_en_es")
    ]
    assert [row["id"] for row in chosen[0]] == [row["id"] for row in chosen[1]]


def hub_rows(language: str, context: str = CONTEXT) -> list[dict[str, Any]]:
    return [
        {"context": context, "question": question, "answers": {"answer_start": [0] * len(ANSWERS[key]), "text": ANSWERS[key]}, "id": key}
        for key, question in QUESTIONS[language].items()
    ]  # fmt: skip


def test_mlqa_from_the_hub(hub: Hub) -> None:
    for language in QUESTIONS:
        hub.add("google/xtreme", "test", hub_rows(language), f"MLQA.en.{language}")
    assert [row["answers"] for row in documents("mlqa_es")] == [["two days"], ["1815", "in 1815"]]
    assert [row["question"] for row in documents("mlqa_all_en_zh")] == ["When did she cross?"]
    assert {asked["name"] for asked in hub.asked} == {"MLQA.en.es", "MLQA.en.en", "MLQA.en.zh"}
    assert all(len(asked["revision"]) == 40 for asked in hub.asked)


def test_xquad_has_the_english_context_and_answers(hub: Hub) -> None:
    hub.add("google/xquad", "validation", hub_rows("en"), "xquad.en")
    hub.add("google/xquad", "validation", hub_rows("es", "Ada cruzó el río."), "xquad.es")
    found = documents("xquad_es")
    assert found[0] == {"id": "b", "context": CONTEXT, "question": "¿Cuánto tardó?", "answers": ["two days"]}
    assert [row["question"] for row in documents("xquad_en")] == list(QUESTIONS["en"].values())
    assert all(len(asked["revision"]) == 40 for asked in hub.asked)


def test_xquad_of_a_data_folder_is_joined_by_id(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def rows(language: str) -> list[dict[str, Any]]:
        english = language == "en"
        context, answers = (CONTEXT, ANSWERS) if english else ("别的", dict.fromkeys(ANSWERS, ["别的"]))
        found = {key: [{"text": text} for text in texts] for key, texts in answers.items()}
        asked = QUESTIONS[language].items()
        return [{"id": k, "context": context, "question": q, "answers": found[k]} for k, q in asked]

    write(tmp_path, "xquad/en", rows("en"))
    write(tmp_path, "xquad/zh", [*rows("zh"), {**rows("zh")[0], "id": "unknown"}])
    with caplog.at_level("INFO", "benchmarks"):
        [found] = documents("xquad_zh", data_dir=str(tmp_path))
    expected = {"id": "a", "context": CONTEXT, "question": "她什么时候过河？", "answers": ["1815", "in 1815"]}
    assert found == expected
    assert "xquad_zh: 2 rows read, 1 kept, dropped: {'no English row of this id': 1}" in caplog.messages


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "not a JSON object"),
        ({"rows": []}, r"\.json: no list of objects in field `data` \(the row has rows\)"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, "article 1, paragraph 1: no text in field `context`"),
        ({"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "1", "question": "b"}]}]}]},
         r"paragraph 1, question 1: no field `answers` \(the row has id, question, context\)"),
    ],
)  # fmt: skip
def test_files_of_another_layout_are_named(tmp_path: Path, content: Any, message: str) -> None:
    write_mlqa(tmp_path / "mlqa", "de", content)
    with pytest.raises(UserError, match=message):
        documents("mlqa_de", data_dir=str(tmp_path))
