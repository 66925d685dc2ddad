"""The size of a batch: halved when a GPU's memory is full."""

from collections.abc import Sequence

import pytest
import torch

from tests.build import CALLING, DOCUMENTS, PROMPTS, Shout, full_gpu, tools
from tests.decoding.build import CALLING_SETTINGS, decoded
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


def test_a_gpu_that_a_tools_model_fills_halves_the_batch(
    calling_model: LanguageModel, caplog: pytest.LogCaptureFixture
) -> None:
    full = iter([True])

    class Filling(Shout):
        def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
            if next(full, False):
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().run(inputs, documents)

    expected = decoded(calling_model, **CALLING_SETTINGS)
    filling = {
        "qa": ToolRuntime(Filling("QA")),
        "calculator": Shout("Calculator"),
        "calendar": Shout("Calendar"),
    }
    decoder = Decoder(calling_model, filling, batch_size=4, **CALLING_SETTINGS)  # type: ignore[arg-type]
    assert decoder.complete(CALLING, DOCUMENTS, max_new_tokens=12) == expected
    assert caplog.messages == ["the GPU's memory is full; going on with decoding.batch_size=2"]


def test_scoring_halves_its_passes_once_when_the_gpu_is_full(tiny_gpt2: LanguageModel) -> None:
    decoder = Decoder(LanguageModel(tiny_gpt2.model, tiny_gpt2.tokenizer))
    expected = decoder.score_texts(PROMPTS)
    with full_gpu(decoder.language_model, {1}):
        assert decoder.score_texts(PROMPTS) == expected
    assert decoder.language_model.batch_tokens == 1024
