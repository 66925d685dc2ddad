"""Batched top-k API decoding against one prompt at a time, and the rules around a call."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import pytest
import torch

from tests import textbook
from tests.conftest import ARCHITECTURES, taught_model, tiny_model, tiny_tokenizer
from toolformer.decoding.decoder import Completion, Decoder
from toolformer.decoding.rows import Row
from toolformer.decoding.writing import Writer
from toolformer.documents import Document
from toolformer.language_model import LanguageModel
from toolformer.tools.base import Result

PROMPTS = [
    "The number in the next term is",
    "Joe Biden was born in",
    "Today is the first Monday of the year, and the population is 658,893 people. This is",
    "red",
    "Where was the average of the term",
]
DOCUMENTS = [
    Document(f"p{n}", prompt, date=datetime.date(2021, 3, n + 1)) for n, prompt in enumerate(PROMPTS)
]


Decoded = tuple[Completion, list[int]]


class Shout:
    """Answers in capitals, and with the document's day; an odd number of letters gets no answer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: list[list[str]] = []

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        self.batches.append(list(inputs))
        return [
            Result(f"{text.upper()} {document.date}") if len(text) % 2 == 0 else Result(reason="odd")
            for text, document in zip(inputs, documents, strict=True)
        ]


def tools() -> dict[str, Shout]:
    return {"qa": Shout("QA"), "calculator": Shout("Calculator"), "calendar": Shout("Calendar")}


def both(
    monkeypatch: pytest.MonkeyPatch,
    model: LanguageModel,
    prompts: Sequence[str],
    new_tokens: int,
    stop: Sequence[str] = (),
    **settings: int,
) -> tuple[list[Decoded], list[Decoded]]:
    """What the decoder and the textbook make of prompts: completions, and the tokens of prompts, texts, calls and results."""
    ids: dict[int, list[int]] = {}
    real = Writer.completion

    def completion(self: Writer, row: Row) -> Completion:
        ids[row.index] = row.context + row.written
        return real(self, row)

    monkeypatch.setattr(Writer, "completion", completion)
    decoder = Decoder(model, tools(), batch_size=3, **settings)  # type: ignore[arg-type]
    found = decoder.complete(prompts, DOCUMENTS, max_new_tokens=new_tokens, stop=stop)
    expected = [
        textbook.decode(model, prompt, new_tokens, tools(), document, stop=stop, **settings)  # type: ignore[arg-type]
        for prompt, document in zip(prompts, DOCUMENTS, strict=True)
    ]
    return [(one, ids[n]) for n, one in enumerate(found)], expected


@pytest.mark.parametrize("k", [0, 1, 3, 10, 400])
def test_batches_decode_like_one_prompt_at_a_time(
    monkeypatch: pytest.MonkeyPatch, language_model: LanguageModel, k: int
) -> None:
    found, expected = both(monkeypatch, language_model, PROMPTS, 9, k=k, max_call_tokens=14)
    assert found == expected


@pytest.fixture(scope="module", params=ARCHITECTURES)
def calling_model(request: pytest.FixtureRequest) -> LanguageModel:
    """A tiny model of each architecture that writes calls up to their arrow."""
    return taught_model(request.param, ["The", "is", "people", "[QA(ab) -> AB 1]", "[QA(abcd) -> AB 2]"])


CALLING = [f"{prompt} people is" for prompt in PROMPTS]


@pytest.mark.parametrize("k", [1, 3, 20])
def test_executed_calls_are_the_textbooks(
    monkeypatch: pytest.MonkeyPatch, calling_model: LanguageModel, k: int
) -> None:
    found, expected = both(monkeypatch, calling_model, CALLING, 12, k=k, max_call_tokens=20)
    assert found == expected
    assert k < 20 or any(completion.call for completion, _ in found)


def test_several_calls_are_the_textbooks(
    monkeypatch: pytest.MonkeyPatch, calling_model: LanguageModel
) -> None:
    found, expected = both(monkeypatch, calling_model, CALLING, 12, k=20, max_call_tokens=20, max_calls=3)
    assert found == expected
    assert max(len(completion.calls) for completion, _ in found) == 3


@pytest.mark.parametrize("max_calls", [1, 3])
@pytest.mark.parametrize(
    ("stop", "settings"),
    [
        (["people", "The The"], {}),
        (["e The", "le p", "s p", "e is"], {}),
        ([], {"min_new_tokens": 5}),
        ([], {"min_new_tokens": 12}),
        ([], {"max_result_tokens": 3}),
        (["is people", "le"], {"min_new_tokens": 4, "max_result_tokens": 2}),
    ],
)
def test_stop_texts_limits_of_results_and_the_least_tokens_are_the_textbooks(
    monkeypatch: pytest.MonkeyPatch,
    calling_model: LanguageModel,
    stop: list[str],
    settings: dict[str, int],
    max_calls: int,
) -> None:
    # Where an end is to be forbidden, a word of what the model was taught ends its texts.
    ends = [0, calling_model.encode("a The")[-1]] if "min_new_tokens" in settings else [0]
    monkeypatch.setattr(calling_model.model.generation_config, "eos_token_id", ends)
    ending = LanguageModel(calling_model.model, calling_model.tokenizer)
    usual = {"k": 20, "max_call_tokens": 20, "max_calls": max_calls}
    found, expected = both(monkeypatch, ending, CALLING, 12, stop, **usual, **settings)
    assert found == expected
    assert found != both(monkeypatch, ending, CALLING, 12, **usual)[1]


def test_a_tie_at_the_top_does_not_let_a_forbidden_start_token_through(tiny_gpt2: LanguageModel) -> None:
    start = tiny_gpt2.start_id
    other = start + 5
    logits = torch.zeros(1, tiny_gpt2.model.config.vocab_size)
    logits[0, [start, other]] = 7.0
    row = Row(0, DOCUMENTS[0], [1], [1], may_call=False)
    assert Decoder(tiny_gpt2, {}, k=0)._next(logits, [row], []) == [other]
    logits[0, start - 5] = 7.0
    assert Decoder(tiny_gpt2, {}, k=0)._next(logits, [row], []) == [start - 5]


def test_plain_mode_is_stock_greedy_generation(language_model: LanguageModel) -> None:
    found = Decoder(language_model, tools(), mode="plain").complete(PROMPTS, max_new_tokens=8)
    for completion, prompt in zip(found, PROMPTS, strict=True):
        ids = torch.tensor([language_model.encode(prompt)])
        stock = language_model.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False, pad_token_id=0
        )
        assert completion.text == language_model.decode(stock[0, ids.shape[1] :].tolist())
        assert completion.call is None


def test_every_end_of_text_of_the_model_ends_it() -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model("llama", len(tokenizer))

    def stock(prompt: str) -> list[int]:
        ids = torch.tensor([tokenizer(prompt).input_ids])
        written = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False, pad_token_id=0
        )
        return list(written[0, ids.shape[1] :].tolist())

    prompts = PROMPTS[:3]
    third = {stock(prompt)[2] for prompt in prompts}
    assert LanguageModel(model, tokenizer).end_ids == {0}
    model.generation_config.eos_token_id = [0, *sorted(third)]
    several = LanguageModel(model, tokenizer)
    assert several.end_ids == {0, *third}
    found = Decoder(several, mode="plain").complete(prompts, max_new_tokens=8)
    for prompt, completion, text in zip(prompts, found, several.generate(prompts, 8), strict=True):
        expected = stock(prompt)
        assert len(expected) <= 3 and expected[-1] in third
        assert completion.text == text == several.decode(expected[:-1])
    for completion in Decoder(several, mode="plain", min_new_tokens=5).complete(prompts, max_new_tokens=8):
        assert completion.tokens >= 5
