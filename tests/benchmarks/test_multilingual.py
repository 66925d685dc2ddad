"""MLQA, and XQuAD joined by id: English contexts, questions in another language."""

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.build import Hub, documents, task
from tests.build import write
from toolformer.errors import UserError

CONTEXT = "Ada Bell crossed the river in 1815. It took her two days."
QUESTIONS = {
    "en": {"a": "When did she cross?", "b": "How long did it take?", "c": "Who crossed?"},
    "es": {"b": "¿Cuánto tardó?", "a": "¿Cuándo cruzó?"},
    "zh": {"a": "她什么时候过河？"},
}
ANSWERS = {"a": ["1815", "in 1815"], "b": ["two days"], "c": ["Ada Bell"]}
B = {"id": "b", "context": CONTEXT, "question": "¿Cuánto tardó?", "answers": ["two days"]}


def rows(
    language: str, context: str = CONTEXT, answers: dict[str, list[str]] = ANSWERS
) -> list[dict[str, Any]]:
    return [
        {"id": key, "context": context, "question": question, "answers": [{"text": text} for text in answers[key]]}
        for key, question in QUESTIONS[language].items()
    ]  # fmt: skip


def test_mlqa_of_a_data_folder(tmp_path: Path) -> None:
    write(tmp_path, "mlqa/es", rows("es"))
    made = task("mlqa_es", data_dir=str(tmp_path))
    found = [dict(row) for row in made.test_docs()]
    assert found == [B, {**B, "id": "a", "question": "¿Cuándo cruzó?", "answers": ["1815", "in 1815"]}]
    assert made.doc_to_text(found[0]) == (
        f"Your task is to answer a question based on the following paragraph: {CONTEXT} "
        "Now answer the following question in English: ¿Cuánto tardó?"
    )


def test_the_all_english_variant_asks_each_languages_questions(tmp_path: Path) -> None:
    for language in ("en", "es"):
        write(tmp_path, f"mlqa/{language}", rows(language))
    every = documents("mlqa_en", data_dir=str(tmp_path))
    assert [row["question"] for row in every] == list(QUESTIONS["en"].values())
    column = documents("mlqa_all_en_es", data_dir=str(tmp_path))
    assert [row["id"] for row in column] == ["b", "a"], "in the order of the language"
    assert [row["question"] for row in column] == ["How long did it take?", "When did she cross?"]
    many = [
        {"id": str(n), "context": CONTEXT, "question": str(n), "answers": [{"text": "Ada"}]}
        for n in range(40)
    ]
    write(tmp_path, "mlqa/es", many)
    write(tmp_path, "mlqa/en", many[::-1])
    names = ("mlqa_es", "mlqa_all_en_es")
    chosen = [documents(name, data_dir=str(tmp_path), subset=7, seed=3) for name in names]
    assert [row["id"] for row in chosen[0]] == [row["id"] for row in chosen[1]]


def test_both_from_the_hub(hub: Hub) -> None:
    for language in QUESTIONS:
        for path, split, config, context in (
            ("google/xtreme", "test", f"MLQA.en.{language}", CONTEXT),
            ("google/xquad", "validation", f"xquad.{language}", CONTEXT if language == "en" else "Cruzó."),
        ):
            of_hub = [{**row, "answers": {"text": ANSWERS[row["id"]]}} for row in rows(language, context)]
            hub.add(path, split, of_hub, config)
    assert documents("mlqa_es")[0] == documents("xquad_es")[0] == B
    assert [row["question"] for row in documents("mlqa_all_en_zh")] == ["When did she cross?"]
    assert [row["question"] for row in documents("xquad_en")] == list(QUESTIONS["en"].values())
    assert all(len(asked["revision"]) == 40 for asked in hub.asked)


def test_xquad_of_a_data_folder_is_joined_by_id(tmp_path: Path) -> None:
    other = rows("zh", "别的", dict.fromkeys(ANSWERS, ["别的"]))
    write(tmp_path, "xquad/en", rows("en"))
    write(tmp_path, "xquad/zh", [*other, {**other[0], "id": "unknown"}])
    found = documents("xquad_zh", data_dir=str(tmp_path))
    assert found == [{**B, "id": "a", "question": "她什么时候过河？", "answers": ["1815", "in 1815"]}]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1], "one JSON array"),
        ({"data": []}, r"line 1: no list of objects in field `answers` \(the row has data\)"),
        ({"id": "1", "question": "b", "answers": [{"text": "c"}]}, "line 1: no text in field `context`"),
    ],
)
def test_rows_of_another_layout_are_named(tmp_path: Path, row: Any, message: str) -> None:
    write(tmp_path, "mlqa/de", [row])
    with pytest.raises(UserError, match=message):
        documents("mlqa_de", data_dir=str(tmp_path))
