"""Decoding by the decoder and by the reference."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests import reference
from tests.build import CALLING, DOCUMENTS, PIECES, tools
from toolformer.decoding.decoder import Completion, Decoder
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Tool
from toolformer.tools.limits import Calling

LIMITS = ("max_call_tokens", "max_result_tokens")
Outcome = list[Completion]


def decoder_of(
    model: LanguageModel,
    tools: Mapping[str, Tool],
    kind: type[Decoder] = Decoder,
    by_tool: Mapping[str, int] | None = None,
    fallback: Mapping[str, str] | None = None,
    **settings: Any,
) -> Decoder:
    """A decoder whose tools all have the same limits; their k and fallback by key."""
    limits = {name: settings.pop(name) for name in LIMITS if name in settings}
    calling = {
        key: Calling(k=(by_tool or {}).get(key), fallback=(fallback or {}).get(key), **limits)
        for key in tools
    }
    return kind(model, tools, calling, **settings)


def decode_both_ways(
    model: LanguageModel,
    prompts: Sequence[str],
    new_tokens: int = 12,
    stop: Sequence[str] = (),
    **settings: Any,
) -> tuple[Outcome, Outcome]:
    """What the decoder makes of prompts, and what the reference does."""
    decoder = decoder_of(model, tools(), batch_size=3, **settings)
    completions = decoder.complete(prompts, DOCUMENTS, max_new_tokens=new_tokens, stop=stop)
    expected = [
        reference.decode(model, prompt, new_tokens, tools(), document, stop=stop, **settings)[0]
        for prompt, document in zip(prompts, DOCUMENTS, strict=True)
    ]
    return completions, expected


CALLS = (*PIECES[:4], "[Calendar(abcd) -> AB 2]", "people [Calendar(ab) -> AB 1]")


CALLING_SETTINGS = {"k": 20, "max_call_tokens": 20}


def decoded(model: LanguageModel, **settings: Any) -> list[Completion]:
    return decoder_of(model, tools(), **settings).complete(CALLING, DOCUMENTS, max_new_tokens=12)


def names(completions: Sequence[Completion]) -> list[str]:
    """The tools that were called."""
    return [call.tool for completion in completions for call in completion.calls]
