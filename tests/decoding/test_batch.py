"""The size of a batch: halved when a GPU's memory is full."""

from collections.abc import Sequence

import pytest
import torch

from tests.build import CALLING, DOCUMENTS, PROMPTS, Shout, full_gpu, tools
from tests.decoding.build import CALLING_SETTINGS, decoded, decoder_of
from toolformer.data import Document
from toolformer.decoding.completion import Request
from toolformer.decoding.decoder import Completion, Decoder
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result
from toolformer.tools.runtime import ToolRuntime

REQUESTS = [Request(prompt, document, 9) for prompt, document in zip(PROMPTS, DOCUMENTS, strict=True)]


def test_a_full_gpu_halves_the_batch_once(
    language_model: LanguageModel, caplog: pytest.LogCaptureFixture
) -> None:
    def complete() -> list[Completion]:
        finished.clear()
        return Decoder(language_model, tools(), batch_size=2).answers(
            REQUESTS, lambda some: finished.extend(some)
        )

    finished: list[int] = []
    expected = complete()
    with full_gpu(language_model, {12}):
        assert complete() == expected
    assert sorted(finished) == list(range(len(PROMPTS)))
    assert caplog.messages == ["the GPU's memory is full; going on with decoding.batch_size=1"]
    with full_gpu(language_model, {12, 20}), pytest.raises(UserError, match="full at decoding.batch_size=1;"):
        complete()


def test_a_gpu_that_a_tools_model_fills_halves_its_own_calls(
    calling_model: LanguageModel, caplog: pytest.LogCaptureFixture
) -> None:
    """And never the batch of the model that asks."""
    full = [True, False]

    class Filling(Shout):
        def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
            if full and full.pop(0):
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().run(inputs, documents)

    expected = decoded(calling_model, **CALLING_SETTINGS)
    filling, size = Filling("QA"), len(CALLING)
    others = {"calculator": Shout("Calculator"), "calendar": Shout("Calendar")}
    runtime = {"qa": ToolRuntime(filling, key="qa"), **others}
    decoder = decoder_of(calling_model, runtime, batch_size=size, **CALLING_SETTINGS)
    calls = ["ab"] * 4
    assert [one.text for one in runtime["qa"].run(calls, DOCUMENTS[:4])] == [
        f"AB {document.date}" for document in DOCUMENTS[:4]
    ]
    assert filling.batches == [["ab"] * 2] * 2
    assert caplog.messages == [
        "the GPU's memory is full in a tool's own model; going on with tool.qa.batch_size=2"
    ]
    assert decoder.complete(CALLING, DOCUMENTS, max_new_tokens=12) == expected and decoder.size.value == size
    full[:] = [True]
    with pytest.raises(UserError, match="own model, with 2 calls at once; .* lower tool.qa.batch_size"):
        runtime["qa"].run(calls, DOCUMENTS[:4])


def test_scoring_halves_its_passes_once_when_the_gpu_is_full(tiny_gpt2: LanguageModel) -> None:
    decoder = Decoder(LanguageModel(tiny_gpt2.model, tiny_gpt2.tokenizer))
    expected = decoder.score_texts(PROMPTS)
    with full_gpu(decoder.language_model, {1}):
        assert decoder.score_texts(PROMPTS) == expected
    assert decoder.language_model.batch_tokens == 1024
