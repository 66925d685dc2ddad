"""Question answering: what the reader is shown, and what counts as an answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from toolformer.data import Document
from toolformer.tools.question_answering import QuestionAnswering, prompt, short_answer
from toolformer.tools.search import BM25, Passage

ELSEWHERE = Document("d", "An unrelated text.")


class Reader:
    """Answers each prompt with the title of the passage nearest to the question, and remembers what it was asked."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()) -> list[str]:
        for text in prompts:
            text.encode("utf-8")  # as strict as a tokenizer
        self.batches.append(list(prompts))
        return [f" {one.rsplit('Question:', 1)[0].rsplit(' > ', 1)[0].split()[-1]}." for one in prompts]


def test_the_best_passage_stands_next_to_the_question() -> None:
    passages = [Passage("a", "Best", "one two three four"), Passage("b", "Second", "five six seven")]
    text = prompt("Why?", passages, 2)
    assert text.endswith("\n\nText: Second > five six Best > one two\nQuestion: Why?\nAnswer:")


def test_it_reads_the_passages_found_and_equal_questions_once(retriever: BM25) -> None:
    reader = Reader()
    questions = ["Who takes wax from hives?", "What shows\nnorth?", "What  shows north?"]
    results = QuestionAnswering(retriever, reader).run(questions, [ELSEWHERE] * 3)
    assert [one.text for one in results] == ["Beekeeping", "Compass", "Compass"]
    (batch,) = reader.batches
    assert len(batch) == 2 and any("Question: What shows north?" in text for text in batch)


def test_a_documents_own_article_is_not_read(retriever: BM25) -> None:
    documents = [ELSEWHERE, Document("d", "", source_id="Lighthouse")]
    results = QuestionAnswering(retriever, Reader(), passages=1).run(["What is a lighthouse?"] * 2, documents)
    assert [one.text for one in results] == ["Lighthouse", "Harbour"]


def test_reasons(retriever: BM25) -> None:
    reader = Reader()
    results = QuestionAnswering(retriever, reader).run(["", " ?! ", "w" * 301, "Zzyzx?"], [ELSEWHERE] * 4)
    assert [one.reason for one in results] == [
        "empty question", "empty question", "question too long", "no passage found",
    ]  # fmt: skip
    assert reader.batches == [], "nothing to read, nothing asked of the model"


def test_the_answer_is_one_line_without_its_full_stop() -> None:
    written = [" Accra.", "Accra\nQuestion: x", "\n\n Accra . ", "the U.S.", "3.5", "nobody knows."]
    answers = ["Accra", "Accra", "Accra", "the U.S.", "3.5", "nobody knows"]
    assert [short_answer(text).text for text in written] == answers
    for text in ("", " \n", ".", "unknown", "Unknown.", "I don't know.", "I don’t know", "None", "N/A"):
        assert short_answer(text).reason == "no answer"


@pytest.mark.real
def test_the_embedded_reader_knows_what_stands_in_its_passages() -> None:
    from toolformer.lm.text_generator import ModelGenerator

    asked = {
        "Who painted the Mona Lisa?": "Leonardo",
        "In which country is Mount Kilimanjaro?": "Tanzania",
        "Who composed The Magic Flute?": "Mozart",
        "What does a thermometer measure?": "temperature",
        "What is the currency of Japan?": "yen",
    }
    results = QuestionAnswering(BM25(), ModelGenerator("smollm2")).run(list(asked), [ELSEWHERE] * len(asked))
    right = [
        bool(one.text) and word in str(one.text) for one, word in zip(results, asked.values(), strict=True)
    ]
    assert sum(right) >= 4, [one.text for one in results]
