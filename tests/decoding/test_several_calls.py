"""Up to three calls per input, batched against one token of one prompt at a time."""

import random

import pytest

from tests import reference
from tests.build import Patch, Recorder, taught_model
from tests.decoding.build import decoder_of
from toolformer.data import Document
from toolformer.decoding.completion import Completion
from toolformer.decoding.row import Row, Writer
from toolformer.decoding.settings import Decoding, policy_label
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result, Tool
from toolformer.tools.limits import Calling

WORDS = ("The", "is", "people", "red", "number", "Joe", "first")
PIECES = (
    *WORDS,
    "[WikiSearch(red) -> red]",
    "[WikiSearch(Joe) -> Joe]",
    "[Calculator(18) -> 19]",
)
LIMITS = {"k": 8, "max_calls": 3, "max_call_tokens": 14, "max_result_tokens": 12}


def tools() -> dict[str, Tool]:
    total = Recorder(lambda text: Result(f"{len(text)} {text}"), "Calculator")
    return {"calculator": total, "search": Recorder(lambda text: Result(text[::-1]), "WikiSearch")}


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return taught_model("llama", *PIECES)


def tokens(monkeypatch: Patch, model: LanguageModel, prompts: list[str], size: int) -> dict[int, list[int]]:
    """All tokens of each prompt, its continuation, calls and results."""
    ids: dict[int, list[int]] = {}
    finish = Writer.finish

    def finished(self: Writer, row: Row) -> Completion:
        ids[row.number] = row.ids
        return finish(self, row)

    monkeypatch.setattr(Writer, "finish", finished)
    decoder = decoder_of(model, tools(), batch_size=size, **LIMITS)
    decoder.complete(prompts, [Document(prompt, prompt) for prompt in prompts], max_new_tokens=5)
    return ids


@pytest.mark.parametrize("count", [20, pytest.param(500, marks=pytest.mark.real)])
def test_several_calls_are_decoded_alike_in_batches(
    monkeypatch: Patch, model: LanguageModel, count: int
) -> None:
    chance = random.Random(1)
    prompts = [" ".join(chance.choices(WORDS, k=chance.randint(1, 9))) for _ in range(count)]
    batched = tokens(monkeypatch, model, prompts, 16)
    several = 0
    for n, prompt in enumerate(prompts):
        expected, ids = reference.decode(model, prompt, 5, tools(), Document(prompt, prompt), **LIMITS)  # type: ignore[arg-type]
        assert batched[n] == ids, prompt
        several += len(expected.calls) > 1
    assert several > count / 10


def test_another_number_of_calls_is_another_policy() -> None:
    labels = [policy_label(Decoding(k=1, max_calls=calls), {"search": Calling()}) for calls in (1, 3)]
    assert labels == ["1", "1, 3 calls"]
