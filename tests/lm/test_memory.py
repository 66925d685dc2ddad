"""Batch sizes by the memory of GPUs that are not there."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GPT2Config, LlamaConfig, MambaConfig

from toolformer.lm.memory import batch_rows, batch_tokens, cache_bytes, free_bytes, with_smaller_batches

GIB = 2**30


def model(config: Any, dtype: torch.dtype = torch.bfloat16) -> Any:
    return SimpleNamespace(config=config, dtype=dtype)


LLAMA = model(
    LlamaConfig(
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, hidden_size=4096, vocab_size=128_256
    )
)  # fmt: skip
"""The shape of Llama 3.1 8B."""


def test_the_size_of_a_cache() -> None:
    assert cache_bytes(LLAMA) == 32 * 8 * 128 * 2 * 2
    assert cache_bytes(model(GPT2Config(), torch.float32)) == 12 * 768 * 2 * 4
    assert cache_bytes(model(MambaConfig())) > 0, "a model without attention heads"


@pytest.mark.parametrize(
    ("free", "tokens"), [(None, 2048), (1, 2048), (64 * GIB, 8192), (120 * GIB, 16_384), (2**50, 65_536)]
)
def test_tokens_per_batch_of_annotation(free: int | None, tokens: int) -> None:
    assert batch_tokens(LLAMA, free) == tokens


@pytest.mark.parametrize(
    ("free", "longest", "rows"),
    [(None, 500, 32), (1, 500, 32), (64 * GIB, 500, 128), (64 * GIB, 1000, 64), (2**50, 500, 256)],
)
def test_rows_decoded_together(free: int | None, longest: int, rows: int) -> None:
    assert batch_rows(LLAMA, free, longest) == rows


def test_a_cpu_has_the_defaults() -> None:
    assert free_bytes(torch.device("cpu")) is None


def test_a_second_lack_of_memory_is_raised() -> None:
    def work() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        with_smaller_batches(work, lambda: "half")
