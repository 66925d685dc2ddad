"""Batch sizes that fill a GPU, from its free memory and the size of a model's cache; and smaller ones when it is full.

Sizes are powers of two, so that a little more or less free memory does not change them: batch sizes round differently.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from toolformer.lm.batching import TOKENS_PER_BATCH, cached_per_batch
from toolformer.lm.loading import release_memory

log = logging.getLogger(__name__)

SHARE = 0.6
"""Share of the free memory to plan with; activations, masks and the tools' models need some too."""
LOGIT_BYTES = 10
"""Of an entry of the vocabulary: a logit in 16 bits, and two copies in float32."""
CACHES = 3
"""Caches that decoding may hold at once: of its rows, of as many prompts read ahead, and a copy while rows are joined."""
LARGEST_TOKENS = 65_536
ROWS, LARGEST_ROWS = 32, 256

T = TypeVar("T")


def free_bytes(device: torch.device) -> int | None:
    """Memory of a GPU that this process may still use; None on other devices."""
    if device.type != "cuda":
        return None
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def cache_bytes(model: Any) -> int:
    """Bytes of the keys and values of one token."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_attention_heads", None) or 1
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    return int(2 * config.num_hidden_layers * groups * size * model.dtype.itemsize)


def batch_tokens(model: Any, free: int | None) -> int:
    """Tokens per batch of annotation in `free` bytes; the default where None."""
    logits = model.config.get_text_config().vocab_size * LOGIT_BYTES // 2  # of every other token
    needed = cached_per_batch(1) * cache_bytes(model) + logits
    return _fitting(free, needed, TOKENS_PER_BATCH, LARGEST_TOKENS)


def batch_rows(model: Any, free: int | None, tokens: int) -> int:
    """Rows decoded together in `free` bytes, each of at most `tokens` tokens; the default where None."""
    logits = model.config.get_text_config().vocab_size * LOGIT_BYTES
    return _fitting(free, CACHES * tokens * cache_bytes(model) + logits, ROWS, LARGEST_ROWS)


def _fitting(free: int | None, needed: int, least: int, most: int) -> int:
    """The largest power of two that fits, within bounds that are powers of two."""
    if free is None:
        return least
    count = min(max(int(SHARE * free) // needed, least), most)
    return 1 << count.bit_length() - 1


def with_smaller_batches(work: Callable[[], T], halve: Callable[[], str]) -> T:
    """Does the work; if the GPU's memory does not suffice, a second time after `halve`, which returns the new setting."""
    try:
        return work()
    except torch.OutOfMemoryError:
        pass  # its traceback holds on to tensors, so the memory is released after this block
    release_memory()
    log.warning("the GPU's memory is full; going on with %s", halve())
    return work()
