"""Batch sizes by the memory of GPUs that are not there."""

import pytest
import torch

from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.memory import BatchSize, Memory

GIB = 2**30
LLAMA = (32 * 8 * 128 * 2 * 2, 128_256)
"""Bytes of a token's keys and values, and vocabulary: Llama 3.1 8B in bfloat16."""
QWEN = (28 * 2 * 128 * 2 * 2, 151_936)
"""Qwen 2.5 1.5B: a small cache, and logits that take more."""
GEMMA = (26 * 256 * 2 * 2, 262_144)
"""Gemma 3 1B: 16,384 tokens have more logits than 32 bits count."""


@pytest.mark.parametrize(
    ("model", "free", "tokens"),
    [
        (LLAMA, 0, 1),
        (LLAMA, 8 * GIB, 1024),
        (LLAMA, 64 * GIB, 8192),
        (QWEN, 20 * GIB, 4096),
        (QWEN, 1000 * GIB, 8192),
        (GEMMA, 1000 * GIB, 8192),
        ((1000, 50_000), 1000 * GIB, 16_384),
    ],
)
def test_tokens_per_batch_of_annotation(model: tuple[int, int], free: int, tokens: int) -> None:
    assert Memory(*model, free).batch_tokens() == tokens


@pytest.mark.parametrize(
    ("free", "longest", "rows"),
    [(0, 500, 1), (8 * GIB, 500, 16), (64 * GIB, 500, 128), (64 * GIB, 1000, 64), (1000 * GIB, 500, 256)],
)
def test_rows_decoded_together(free: int, longest: int, rows: int) -> None:
    assert Memory(*LLAMA, free).batch_rows(longest) == rows


def test_static_steps_leave_room_for_their_buffers() -> None:
    assert Memory(*LLAMA, 64 * GIB, has_buffers=True).batch_tokens() == 4096
    assert Memory(*LLAMA, 64 * GIB, has_buffers=True).batch_rows(500) == 64


def test_a_little_memory_more_or_less_changes_no_batch() -> None:
    assert {Memory(*QWEN, 20 * GIB + part * GIB // 8).batch_tokens() for part in range(8)} == {4096}


def test_only_what_pytorch_gave_back_is_free(
    tiny_gpt2: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what CUDA graphs keep."""
    assert tiny_gpt2.gpu_memory() is None, "on a CPU"
    cache, vocabulary = tiny_gpt2.cache_bytes, tiny_gpt2.model.config.vocab_size
    free = [1000]
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: free.append(1200))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[-1], 5000))
    monkeypatch.setattr(tiny_gpt2, "device", torch.device("cuda"))
    assert tiny_gpt2.gpu_memory() == Memory(cache, vocabulary, 1200)


def test_a_cache_has_the_bytes_of_its_keys_and_values(tiny_gpt2: LanguageModel) -> None:
    config = tiny_gpt2.model.config
    assert tiny_gpt2.cache_bytes == 2 * config.n_layer * config.n_embd * tiny_gpt2.dtype.itemsize


def test_every_architecture_has_a_cache_size(language_model: LanguageModel) -> None:
    assert language_model.cache_bytes > 0


def test_a_size_is_halved_once(caplog: pytest.LogCaptureFixture) -> None:
    size = BatchSize("engine.batch_tokens", 2048)
    tried: list[int] = []

    def work() -> int:
        tried.append(size.value)
        if size.value > 1000:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return size.value

    with pytest.raises(UserError, match=r"full at engine.batch_tokens=1024; .* set a lower number"):
        size.attempt(work)
    assert tried == [2048, 1024]
    assert caplog.messages == ["the GPU's memory is full; going on with engine.batch_tokens=1024"]
    assert [size.choose(value) for value in (512, 4096)] == [256, 1024]
