"""Where a call begins and which tool it names: k, k per tool, tools that are off and their fallback."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.build import CALLING, DOCUMENTS, PIECES, taught_model, tiny_model, tiny_tokenizer, tools
from tests.decoding.build import CALLING_SETTINGS, CALLS, decode_both_ways, decoded, decoder_of, names
from toolformer.decoding.completion import Request
from toolformer.decoding.decoder import Decoder
from toolformer.lm.language_model import LanguageModel


@pytest.mark.parametrize("by_tool", [{}, {"qa": 1}, {"calendar": 2}, {"qa": 0, "calendar": 1}])
def test_a_separate_k_per_tool_is_the_reference(by_tool: dict[str, int]) -> None:
    model = taught_model("llama", *CALLS)
    found, expected = decode_both_ways(
        model, CALLING, **CALLING_SETTINGS, by_tool=by_tool, max_calls=3, min_new_tokens=6
    )
    assert found == expected


def test_a_separate_k_decides_which_tools_are_called() -> None:
    model = taught_model("llama", *CALLS)
    called = [
        set(names(decoded(model, **CALLING_SETTINGS, by_tool=by_tool)))
        for by_tool in ({}, {"qa": 0}, {"calendar": 0})
    ]
    assert called == [{"QA", "Calendar"}, {"Calendar"}, {"QA"}]


def test_a_tool_with_k_0_is_never_called(calling_model: LanguageModel) -> None:
    free: Any = {**CALLING_SETTINGS, "constrain_tool_name": False}
    assert names(decoded(calling_model, **free))
    assert not names(decoded(calling_model, by_tool={"qa": 0}, **free))


def test_a_fallback_is_called_for_a_tool_that_is_switched_off() -> None:
    model = taught_model("llama", *PIECES[:3], *CALLS[4:])

    def called(allowed: Sequence[str], instead: str | None = None) -> list[str]:
        fallback = {"calendar": instead} if instead else {}
        decoder = decoder_of(model, tools(), **CALLING_SETTINGS, fallback=fallback)
        return names(decoder.complete(CALLING, DOCUMENTS, max_new_tokens=12, allowed=allowed))

    for instead in ("qa", "calculator"):
        assert called([*tools()], instead) == called([*tools()])
        assert set(called(["qa", "calculator"], instead)) == {tools()[instead].name}
    assert set(called([*tools()])) == {"Calendar"}


@pytest.mark.parametrize("constrain", [True, False])
def test_a_model_that_names_a_tool_that_is_off_calls_another(constrain: bool) -> None:
    """As for LAMA, where search is off and question answering is not: with free names too, no call is rolled back for it."""
    model = taught_model("llama", *PIECES[:3], *CALLS[4:])
    settings: Any = {**CALLING_SETTINGS, "constrain_tool_name": constrain}
    assert set(names(decoded(model, **settings))) == {"Calendar"}
    decoder = decoder_of(model, tools(), **settings)
    found = decoder.complete(CALLING, DOCUMENTS, max_new_tokens=12, allowed=["qa"])
    assert set(names(found)) == {"QA"}
    both = decoder.complete(CALLING, DOCUMENTS, max_new_tokens=12, allowed=["calculator", "qa"])
    assert names(both) and set(names(both)) <= {"Calculator", "QA"}


@pytest.mark.parametrize("constrain", [True, False])
def test_requests_of_one_queue_keep_their_tools_stops_and_limits(constrain: bool) -> None:
    model = taught_model("llama", *CALLS)
    settings: Any = {**CALLING_SETTINGS, "constrain_tool_name": constrain, "batch_size": 3}
    requests = [
        Request(prompt, document, limit, stop, tools)
        for prompt, document in zip(CALLING, DOCUMENTS, strict=True)
        for limit, stop, tools in (
            (12, (), None), (5, ("people",), frozenset({"qa"})), (12, ("The",), frozenset({"calendar", "qa"})), (3, (), frozenset()),
        )
    ]  # fmt: skip
    decoder = decoder_of(model, tools(), **settings)
    alone = [decoder.answers([request])[0] for request in requests]
    assert decoder.answers(requests) == alone
    assert len({tuple(names([one])) for one in alone}) > 2


@pytest.mark.parametrize("distance", [-5, 5])
def test_a_tie_lets_no_forbidden_start_token_through(distance: int) -> None:
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
