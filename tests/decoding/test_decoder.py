"""Batched top-k decoding against one prompt at a time."""

import copy

import pytest

from tests import reference
from tests.build import ARCHITECTURES, CALLING, PIECES, PROMPTS, taught_model, tiny_model, tiny_tokenizer
from tests.decoding.build import CALLING_SETTINGS, decode_both_ways, decoded
from toolformer.decoding.decoder import Decoder
from toolformer.lm.language_model import LanguageModel


@pytest.mark.parametrize(("k", "constrain"), [(0, True), (400, True), (400, False)])
def test_batches_decode_like_one_prompt_at_a_time(
    language_model: LanguageModel, k: int, constrain: bool
) -> None:
    settings = {"k": k, "max_call_tokens": 14, "constrain_tool_name": constrain}
    found, expected = decode_both_ways(language_model, PROMPTS, 9, **settings)
    assert found == expected


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_executed_calls_are_the_reference(architecture: str) -> None:
    model = taught_model(architecture, *PIECES)
    for k, max_calls, constrain in ((3, 1, False), (20, 3, True), (20, 3, False)):
        settings = {"k": k, "max_call_tokens": 20, "max_calls": max_calls, "constrain_tool_name": constrain}
        found, expected = decode_both_ways(model, CALLING, **settings)
        assert found == expected
        assert k < 20 or max(len(completion.calls) for completion in found) == max_calls


def test_a_constrained_call_has_no_inner_call() -> None:
    model = taught_model("llama", *PIECES[:3], "[QA(ab [QA(ab [QA(ab [QA(ab [QA(ab", "people ab) -> AB 1]")
    free, expected = decode_both_ways(model, CALLING, **CALLING_SETTINGS, constrain_tool_name=False)
    assert free == expected
    constrained, expected = decode_both_ways(model, CALLING, **CALLING_SETTINGS)
    assert constrained == expected
    few, many = (
        [one.failed for one in found].count("call longer than its limit") for found in (constrained, free)
    )
    assert few < many


@pytest.mark.parametrize("constrain", [True, False])
@pytest.mark.parametrize("pieces", [["[ZZ(ab) -> AB 1]"], ["[QAZZ(ab) -> AB 1]", "people ab) -> AB 1]"]])
def test_a_call_has_the_name_of_a_tool(pieces: list[str], constrain: bool) -> None:
    """Whatever the model would name: with free names the tokens that spell it are free."""
    model = taught_model("llama", *PIECES[:3], *pieces)
    found, expected = decode_both_ways(model, CALLING, **CALLING_SETTINGS, constrain_tool_name=constrain)
    assert found == expected
    assert any(one.calls or one.failed for one in found)
    assert {call.tool for one in found for call in one.calls} <= {"QA", "Calculator", "Calendar"}


@pytest.mark.parametrize(
    ("stop", "settings"),
    [
        (["people", "The The"], {"max_calls": 1}),
        (["e The", "le p", "s p", "e is"], {}),
        ([], {"min_new_tokens": 12, "max_calls": 1}),
        (["is people", "le"], {"min_new_tokens": 4, "max_result_tokens": 2}),
    ],
)
def test_stop_texts_and_limits_are_the_reference(
    calling_model: LanguageModel, stop: list[str], settings: dict[str, int]
) -> None:
    model = copy.deepcopy(calling_model.model)
    if "min_new_tokens" in settings:  # there is an end to forbid: a word of what the model was taught
        model.generation_config.eos_token_id = [0, calling_model.encode("a The")[-1]]
    ending = LanguageModel(model, calling_model.tokenizer)
    usual = {**CALLING_SETTINGS, "max_calls": settings.get("max_calls", 3)}
    found, expected = decode_both_ways(ending, CALLING, stop=stop, **usual | settings)
    assert found == expected != decoded(ending, **usual)


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
def test_begun_results_and_nested_calls_are_counted(written: str, counts: tuple[int, int]) -> None:
    model = taught_model("llama", *PIECES[:3], written)
    found, expected = decode_both_ways(model, CALLING, **CALLING_SETTINGS, constrain_tool_name=False)
    assert found == expected
    called = [(one.results_begun, one.calls_in_calls) for one in found if one.calls or one.failed]
    assert max(called) == counts
