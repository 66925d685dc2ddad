"""Up to three calls per input, among them a search that is browsed, batched against one token of one prompt at a time."""

import random
from collections.abc import Sequence
from dataclasses import asdict

import pytest

from tests import textbook
from tests.conftest import taught_model
from tests.tools.recorders import Recorder, answers
from toolformer.data import Document
from toolformer.decoding.completion import Task
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.settings import Decoding, cache_key_fields, policy_label
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result, Tool
from toolformer.tools.retrieval.passages import Passage
from toolformer.tools.search import BrowsedSearch

WORDS = ("The", "is", "people", "red", "number", "Joe", "first")
PIECES = (
    *WORDS,
    "[WikiSearch(red) -> (1) red]",
    "[WikiSearch(Joe) -> (1) Joe]",
    "[WikiSearch(next) -> (2) red]",
    "[Calculator(18) -> 19]",
)
LIMITS = {"k": 8, "max_calls": 3, "max_call_tokens": 14, "max_result_tokens": 12}


class Numbered:
    """Finds five made-up passages for every query."""

    def retrieve(self, queries: Sequence[str], k: int, documents: Sequence[Document]) -> list[list[Passage]]:
        return [[Passage(f"{n}", query, f"is {n}") for n in range(1, 6)][:k] for query in queries]


def tools() -> dict[str, Tool]:
    total = Recorder(lambda text: Result(f"{len(text)} {text}"), "Calculator")
    return {"calculator": total, "search": BrowsedSearch(Numbered(), max_tokens=3, results=2)}


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return taught_model("llama", *PIECES)


def tokens(model: LanguageModel, prompts: list[str], size: int) -> dict[int, list[int]]:
    """All tokens of each prompt, its continuation, calls and results."""
    decoder = Decoder(model, tools(), batch_size=size, **LIMITS)  # type: ignore[arg-type]
    documents = [Document(prompt, prompt) for prompt in prompts]
    task = Task(prompts, documents, 5)
    rows, writer = decoder.begin(task)
    ended = decoder.run(decoder.queue(rows, task), writer)
    return {row.index: row.context + row.written for some in ended for row in some}


@pytest.mark.parametrize("count", [20, pytest.param(500, marks=pytest.mark.real)])
def test_several_calls_are_decoded_alike_in_batches(model: LanguageModel, count: int) -> None:
    chance = random.Random(1)
    prompts = [" ".join(chance.choices(WORDS, k=chance.randint(1, 9))) for _ in range(count)]
    batched = tokens(model, prompts, 16)
    several = pages = 0
    for n, prompt in enumerate(prompts):
        expected, ids = textbook.decode(model, prompt, 5, tools(), Document(prompt, prompt), **LIMITS)  # type: ignore[arg-type]
        assert batched[n] == ids, prompt
        several += len(expected.calls) > 1
        pages += any(call.input == "next" and "(3)" in (call.result or "") for call in expected.calls)
    assert several > count / 10 and pages > 0


def test_evaluations_with_another_number_of_calls_have_another_policy() -> None:
    labels = [
        policy_label(cache_key_fields(asdict(Decoding(k=1, max_calls=calls)), ["search"])) for calls in (1, 3)
    ]
    assert labels == ["1", "1, 3 calls"]


def test_a_search_is_browsed() -> None:
    search = BrowsedSearch(Numbered(), max_tokens=3, results=2)
    earlier: list[str] = []
    shown = []
    for text in ("red", "next", "Next ", "next", "Joe", "next"):
        shown += answers(search, search.in_context(text, earlier))
        earlier.append(text)
    assert shown == [
        "(1) red > is 1 (2) red > is 2", "(3) red > is 3 (4) red > is 4", "(5) red > is 5", "no further results",
        "(1) Joe > is 1 (2) Joe > is 2", "(3) Joe > is 3 (4) Joe > is 4",
    ]  # fmt: skip


def test_next_without_a_search_has_no_result() -> None:
    search = BrowsedSearch(Numbered())
    assert answers(search, search.in_context("next", [])) == ["next without a search"]


def test_a_page_that_a_model_makes_up_does_not_make_a_search_large() -> None:
    asked = []

    class Noted(Numbered):
        def retrieve(
            self, queries: Sequence[str], k: int, documents: Sequence[Document]
        ) -> list[list[Passage]]:
            asked.append(k)
            return super().retrieve(queries, k, documents)

    answers(BrowsedSearch(Noted()), "red\nnext 999", "red\nnext 99999999999", "red\nnext ²")
    assert max(asked) <= 30
