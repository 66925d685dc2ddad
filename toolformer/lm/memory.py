"""Batch sizes that fit into a GPU's free memory, and half of one when the memory is full.

Sizes are powers of two, so that a little more or less free memory does not change them: batches of another shape round
differently.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from toolformer.errors import UserError
from toolformer.lm.batching import cached_per_batch
from toolformer.lm.loading import release_memory

log = logging.getLogger(__name__)

SHARE = 0.6
"""Share of the free memory to plan with. Activations, masks, few-shot prompts and the tools' models need some too."""
LOGIT_BYTES = 12
"""Per entry of a row of logits: itself in the model's dtype, a float32 copy, and one more while it is normalised."""
CACHES = 3
"""Caches that decoding may hold at once: its slots', that of as many prompts read ahead, and a copy while one grows. Static
steps add their buffers, to the one cache of a batch of annotation too."""
SPARE = 1.25
"""Growth of a cache's buffer beyond its tokens."""
LARGEST_TOKENS, LARGEST_ROWS = 16_384, 256
INDICES = 2**31
"""Some GPU kernels count the elements of a tensor, here of logits, in 32 bits."""

T = TypeVar("T")


@dataclass(frozen=True)
class Memory:
    """A GPU's free memory, and what a model needs of it, in bytes."""

    cache: int
    """Of the keys and values of one token."""
    vocabulary: int
    """Number of its tokens."""
    free: int
    has_buffers: bool = False
    """Whether steps run in buffers of their own (`StaticSteps`)."""

    def batch_tokens(self) -> int:
        """Tokens per batch of annotation. Up to as many branches have logits; half as many rows are normalised."""
        needed = (
            SPARE * (1 + self.has_buffers) * cached_per_batch(1) * self.cache + LOGIT_BYTES * self.vocabulary
        )
        return self._fitting(needed, min(LARGEST_TOKENS, INDICES // self.vocabulary))

    def batch_rows(self, tokens: int) -> int:
        """Rows that are decoded together, each of at most `tokens` tokens."""
        needed = SPARE * (CACHES + self.has_buffers) * tokens * self.cache + 2 * LOGIT_BYTES * self.vocabulary
        return self._fitting(needed, LARGEST_ROWS)

    def _fitting(self, needed: float, most: int) -> int:
        """The largest power of two that fits, at least one."""
        count = max(1, min(int(SHARE * self.free / needed), most))
        return 1 << count.bit_length() - 1


def free_bytes(device: torch.device) -> int:
    """Memory of a GPU that this process may use, once PyTorch has given back what it keeps unused.

    The memory of CUDA graphs is not given back, and is not free.
    """
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info(device)[0])


class BatchSize:
    """The value of a setting, halved once when the GPU's memory is full.

    Args:
        key: of the setting, such as `decoding.batch_size`.
    """

    def __init__(self, key: str, value: int) -> None:
        self.key, self.value = key, value
        self._most: int | None = None

    def choose(self, value: int) -> int:
        """Takes a new value, or half of it if the memory was full before; returns what it took."""
        self.value = max(1, min(value // 2, self._most)) if self._most else value
        return self.value

    def attempt(self, work: Callable[[], T]) -> T:
        """The result of `work`, which is begun again with half the size if the memory is full for the first time.

        UserError if it is full again.
        """
        try:
            return work()
        except torch.OutOfMemoryError as error:
            if self._most or self.value == 1:
                raise UserError(
                    f"the GPU's memory is full at {self.key}={self.value}; finished work is kept: set a lower number, or see "
                    "with nvidia-smi what else uses the GPU"
                ) from error
        release_memory()  # after the block, since the error's traceback holds tensors
        self.value = self._most = self.value // 2
        log.warning("the GPU's memory is full; going on with %s=%d", self.key, self.value)
        return self.attempt(work)
