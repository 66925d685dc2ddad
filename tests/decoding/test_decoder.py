"""Batched top-k decoding against one prompt at a time."""

import copy
import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests import reference
from tests.build import CALLING, DOCUMENTS, PIECES, PROMPTS, Shout, tools
from tests.conftest import ARCHITECTURES, full_gpu, taught_model, tiny_model, tiny_tokenizer
from toolformer.data import Document
from toolformer.decoding.decoder import Completion, Decoder
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.memory import Memory
from toolformer.tools.base import Result
from toolformer.tools.runtime import ToolRuntime

Outcome = list[Completion]


def both(
    model: LanguageModel,
    prompts: Sequence[str],
    new_tokens: int = 12,
    stop: Sequence[str] = (),
    **settings: Any,
) -> tuple[Outcome, Outcome]:
    """What the decoder makes of prompts, and what the reference does."""
    decoder = Decoder(model, tools(), batch_size=3, **settings)
    completions = decoder.complete(prompts, DOCUMENTS, max_new_tokens=new_tokens, stop=stop)
    expected = [
        reference.decode(model, prompt, new_tokens, tools(), document, stop=stop, **settings)[0]
        for prompt, document in zip(prompts, DOCUMENTS, strict=True)
    ]
    return completions, expected


@pytest.mark.parametrize(("k", "constrain"), [(0, True), (400, True), (400, False)])
def test_batches_decode_like_one_prompt_at_a_time(
    language_model: LanguageModel, k: int, constrain: bool
) -> None:
    settings = {"k": k, "max_call_tokens": 14, "constrain_tool_name": constrain}
    found, expected = both(language_model, PROMPTS, 9, **settings)
    assert found == expected


def test_a_full_gpu_halves_the_batch_once(
    language_model: LanguageModel, caplog: pytest.LogCaptureFixture
) -> None:
    def complete() -> list[Completion]:
        finished.clear()
        return Decoder(language_model, tools(), batch_size=2).complete(
            PROMPTS, DOCUMENTS, max_new_tokens=9, on_batch=lambda numbers, _: finished.extend(numbers)
        )

    finished: list[int] = []
    expected = complete()
    with full_gpu(language_model, {12}):
        assert complete() == expected
    assert sorted(finished) == list(range(len(PROMPTS)))
    assert caplog.messages == ["the GPU's memory is full; going on with decoding.batch_size=1"]
    with full_gpu(language_model, {12, 20}), pytest.raises(UserError, match="full at decoding.batch_size=1;"):
        complete()


def test_a_gpu_that_a_tools_model_fills_halves_the_batch(
    calling_model: LanguageModel, caplog: pytest.LogCaptureFixture
) -> None:
    full = iter([True])

    class Filling(Shout):
        def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
            if next(full, False):
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().run(inputs, documents)

    expected = decoded(calling_model, **USUAL)
    filling = {
        "qa": ToolRuntime(Filling("QA")),
        "calculator": Shout("Calculator"),
        "calendar": Shout("Calendar"),
    }
    decoder = Decoder(calling_model, filling, batch_size=4, **USUAL)  # type: ignore[arg-type]
    assert decoder.complete(CALLING, DOCUMENTS, max_new_tokens=12) == expected
    assert caplog.messages == ["the GPU's memory is full; going on with decoding.batch_size=2"]


def test_scoring_halves_its_passes_once_when_the_gpu_is_full(tiny_gpt2: LanguageModel) -> None:
    decoder = Decoder(LanguageModel(tiny_gpt2.model, tiny_gpt2.tokenizer))
    expected = decoder.score_texts(PROMPTS)
    with full_gpu(decoder.language_model, {1}):
        assert decoder.score_texts(PROMPTS) == expected
    assert decoder.language_model.batch_tokens == 1024


def test_an_automatic_batch_is_sized_by_a_gpus_memory(
    language_model: LanguageModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "toolformer")
    expected = Decoder(language_model, tools()).complete(PROMPTS, DOCUMENTS, max_new_tokens=9)
    assert caplog.messages == []
    monkeypatch.setattr(LanguageModel, "gpu_memory", lambda self: Memory(1000, 256, 16 * 10**6))
    decoder = Decoder(language_model, tools())
    with full_gpu(language_model, {3}):
        assert decoder.complete(PROMPTS, DOCUMENTS, max_new_tokens=9) == expected
    assert re.findall(r"batch_size=(\d+)", caplog.text) == ["8", "4", "4"], "halved for good"


CALLS = (*PIECES[:4], "[Calendar(abcd) -> AB 2]", "people [Calendar(ab) -> AB 1]")
USUAL = {"k": 20, "max_call_tokens": 20}


@pytest.fixture(scope="module")
def calling_model() -> LanguageModel:
    """A tiny model that writes calls up to their arrow."""
    return taught_model("llama", *PIECES)


def decoded(model: LanguageModel, **settings: Any) -> list[Completion]:
    return Decoder(model, tools(), **settings).complete(CALLING, DOCUMENTS, max_new_tokens=12)


def names(completions: Sequence[Completion]) -> list[str]:
    """The tools that were called."""
    return [call.tool for completion in completions for call in completion.calls]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_executed_calls_are_the_reference(architecture: str) -> None:
    model = taught_model(architecture, *PIECES)
    for k, max_calls, constrain in ((3, 1, False), (20, 3, True), (20, 3, False)):
        settings = {"k": k, "max_call_tokens": 20, "max_calls": max_calls, "constrain_tool_name": constrain}
        found, expected = both(model, CALLING, **settings)
        assert found == expected
        assert k < 20 or max(len(completion.calls) for completion in found) == max_calls


@pytest.mark.parametrize("by_tool", [{}, {"qa": 1}, {"calendar": 2}, {"qa": 0, "calendar": 1}])
def test_a_separate_k_per_tool_is_the_reference(by_tool: dict[str, float]) -> None:
    model = taught_model("llama", *CALLS)
    found, expected = both(model, CALLING, **USUAL, by_tool=by_tool, max_calls=3, min_new_tokens=6)
    assert found == expected


def test_a_separate_k_decides_which_tools_are_called() -> None:
    model = taught_model("llama", *CALLS)
    called = [
        set(names(decoded(model, **USUAL, by_tool=by_tool))) for by_tool in ({}, {"qa": 0}, {"calendar": 0})
    ]
    assert called == [{"QA", "Calendar"}, {"Calendar"}, {"QA"}]


def test_a_tool_with_k_0_is_not_called_without_a_constraint_either(calling_model: LanguageModel) -> None:
    free: Any = {**USUAL, "constrain_tool_name": False}
    assert names(decoded(calling_model, **free))
    assert not names(decoded(calling_model, by_tool={"qa": 0}, **free))


def test_a_stand_in_is_called_where_the_model_would_call_a_tool_that_is_switched_off() -> None:
    model = taught_model("llama", *PIECES[:3], *CALLS[4:])

    def called(allowed: Sequence[str], instead: str | None = None) -> list[str]:
        decoder = Decoder(model, tools(), **USUAL, stand_in={"calendar": instead} if instead else {})  # type: ignore[arg-type]
        return names(decoder.complete(CALLING, DOCUMENTS, max_new_tokens=12, allowed=allowed))

    for instead in ("qa", "calculator"):
        assert called([*tools()], instead) == called([*tools()])
        assert set(called(["qa", "calculator"], instead)) == {tools()[instead].name}
    assert set(called([*tools()])) == {"Calendar"}


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        (["[ZZ(ab) -> AB 1]"], "tool not allowed"),
        (["[QAZZ(ab) -> AB 1]", "people ab) -> AB 1]"], "tool not allowed"),
        (["[QA(ab [QA(ab [QA(ab [QA(ab [QA(ab", "people ab) -> AB 1]"], "call not ended"),
    ],
)
def test_a_constrained_call_has_a_tools_whole_name_and_no_other_call_within(
    pieces: list[str], reason: str
) -> None:
    model = taught_model("llama", *PIECES[:3], *pieces)
    free, expected = both(model, CALLING, **USUAL, constrain_tool_name=False)
    assert free == expected
    constrained, expected = both(model, CALLING, **USUAL)
    assert constrained == expected
    few, many = ([one.failed for one in found].count(reason) for found in (constrained, free))
    assert few < many


@pytest.mark.parametrize(
    ("stop", "settings"),
    [
        (["people", "The The"], {"max_calls": 1}),
        (["e The", "le p", "s p", "e is"], {}),
        ([], {"min_new_tokens": 12, "max_calls": 1}),
        (["is people", "le"], {"min_new_tokens": 4, "max_result_tokens": 2}),
    ],
)
def test_stop_texts_limits_of_results_and_the_least_tokens_are_the_reference(
    calling_model: LanguageModel, stop: list[str], settings: dict[str, int]
) -> None:
    model = copy.deepcopy(calling_model.model)
    if "min_new_tokens" in settings:  # there is an end to forbid: a word of what the model was taught
        model.generation_config.eos_token_id = [0, calling_model.encode("a The")[-1]]
    ending = LanguageModel(model, calling_model.tokenizer)
    usual = {**USUAL, "max_calls": settings.get("max_calls", 3)}
    found, expected = both(ending, CALLING, stop=stop, **usual | settings)
    assert found == expected != decoded(ending, **usual)


@pytest.mark.parametrize("distance", [-5, 5])
def test_a_tie_at_the_top_does_not_let_a_forbidden_start_token_through(distance: int) -> None:
    """A model that always finds the start token and another one the best, and equally good."""
    tokenizer = tiny_tokenizer()
    model = tiny_model("gpt2", len(tokenizer))
    start = LanguageModel(model, tokenizer).start_id
    with torch.no_grad():
        tokens, last = model.transformer.wte.weight, model.transformer.ln_f
        tokens[start] = tokens[start + distance] = 10 * tokens[start].sign()
        last.weight.zero_()
        last.bias.copy_(tokens[start])
    tied = LanguageModel(model, tokenizer)
    (completion,) = Decoder(tied, {}, k=0).complete(["red"], max_new_tokens=3)
    assert completion.text == completion.plain == tied.decode([start + distance] * 3)


def test_every_end_of_text_of_the_model_ends_it() -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model("llama", len(tokenizer))
    single, prompts = LanguageModel(model, tokenizer), PROMPTS[:3]
    third = {reference.stock(single, prompt, 8)[2] for prompt in prompts}
    assert single.end_ids == {0}
    model.generation_config.eos_token_id = [0, *sorted(third)]
    several = LanguageModel(model, tokenizer)
    assert several.end_ids == {0, *third}
    found = Decoder(several, mode="plain").complete(prompts, max_new_tokens=8)
    for prompt, completion, text in zip(prompts, found, several.generate(prompts, 8), strict=True):
        expected = reference.stock(several, prompt, 8)
        assert len(expected) <= 3 and expected[-1] in third
        assert completion.text == text == several.decode(expected[:-1])
    for completion in Decoder(several, mode="plain", min_new_tokens=5).complete(prompts, max_new_tokens=8):
        assert completion.tokens >= 5


@pytest.mark.parametrize(
    ("written", "counts"),
    [
        ("[QA(ab -> AB 1]", (1, 0)),
        ("[QA(ab [QA(ab -> AB 1]", (1, 1)),
    ],
)
def test_results_that_the_model_begins_and_calls_in_calls_are_counted_in_batches(
    written: str, counts: tuple[int, int]
) -> None:
    model = taught_model("llama", *PIECES[:3], written)
    found, expected = both(model, CALLING, **USUAL, constrain_tool_name=False)
    assert found == expected
    called = [(one.results_begun, one.calls_in_calls) for one in found if one.calls or one.failed]
    assert max(called) == counts
