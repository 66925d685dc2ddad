"""The size of a batch: by a GPU's memory, and halved when that is full."""

import re
from collections.abc import Sequence

import pytest
import torch

from tests.build import CALLING, DOCUMENTS, PROMPTS, Shout, full_gpu, tools
from tests.decoding.build import CALLING_SETTINGS, decoded
from toolformer.data import Document
from toolformer.decoding.decoder import Completion, Decoder
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.memory import Memory
from toolformer.tools.base import Result
from toolformer.tools.runtime import ToolRuntime


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
    assert re.findall(r"batch_size=(\d+)", caplog.text) == ["16", "8", "8"], "halved for good"
