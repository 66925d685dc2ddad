"""Question answering: all aliases, the first twenty words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.conftest import Hub, documents, task
from tests.benchmarks.test_loaders import write
from toolformer.errors import UserError

FILES = {"webqs": "webquestions/test", "nq": "nq_open/dev", "triviaqa": "triviaqa/unfiltered_dev"}
ROW = {"id": "q1", "question": "who wrote it", "answers": ["Ada Bell", "Bell", "Ada Bell"]}


@pytest.mark.parametrize("name", FILES)
def test_questions_of_a_data_folder(tmp_path: Path, name: str) -> None:
    write(tmp_path, FILES[name], [ROW, {**ROW, "id": "q2", "answers": [" "]}, {**ROW, "id": "q1"}])
    made = task(name, data_dir=str(tmp_path))
    found = [dict(row) for row in made.test_docs()]
    assert found == [
        {"id": "q1", "question": "who wrote it", "answers": ["Ada Bell", "Bell"]},
        {"id": "q1#2", "question": "who wrote it", "answers": ["Ada Bell", "Bell"]},
    ]
    assert made.doc_to_text(found[0]) == "Answer the following question: who wrote it?"
    for words, score in ((18, 100.0), (19, 100.0), (20, 0.0)):
        completion = " ".join(["word"] * words + ["Bell"])
        assert made.process_results(found[0], [completion]) == {"score": score}


def test_questions_from_the_hub(hub: Hub) -> None:
    hub.add("stanfordnlp/web_questions", "test", [{"url": "u", "question": "a?", "answers": ["A", "B"]}])
    hub.add("google-research-datasets/nq_open", "validation", [{"question": "b", "answer": ["C"]}], "nq_open")
    names = {"aliases": ["The Beetles", "Beetle"], "normalized_aliases": ["beetles", "beetle"]}
    trivia = {"question": "c?", "question_id": "tc_1", "answer": {**names, "value": "Beetles"}}
    hub.add("mandarjoshi/trivia_qa", "validation", [trivia], "unfiltered.nocontext")
    assert documents("webqs") == [{"id": "1", "question": "a?", "answers": ["A", "B"]}]
    assert documents("nq") == [{"id": "1", "question": "b", "answers": ["C"]}]
    assert documents("triviaqa") == [
        {"id": "tc_1", "question": "c?", "answers": ["Beetles", "The Beetles", "Beetle", "beetles", "beetle"]}
    ]
    assert all(len(asked["revision"]) == 40 for asked in hub.asked)


def test_a_row_of_another_schema_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, FILES["webqs"], [ROW, {"question": "a", "answer": "b"}])
    message = r"no list of texts in field `answers` \(the row has question, answer\)"
    with pytest.raises(UserError, match=f"^{path}, line 2: {message}"):
        documents("webqs", data_dir=str(tmp_path))
