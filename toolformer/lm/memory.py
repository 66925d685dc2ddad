"""Batch sizes by device, and half of one when the device's memory is full."""

import logging
from collections.abc import Callable
from typing import TypeVar

import torch

from toolformer.errors import UserError
from toolformer.lm.devices import release_memory

log = logging.getLogger(__name__)

TOKENS = {"cpu": 2048}
"""Maximum number of tokens in a forward pass, which bounds its memory: 1,024 rows of 50k logits in float32 are 200 MB."""
ROWS = {"cpu": 32}
"""Prompts that are decoded together."""
GPU_TOKENS, GPU_ROWS = 8192, 64

T = TypeVar("T")


def batch_tokens(device: torch.device | str) -> int:
    """Tokens of a forward pass on this device, unless configured."""
    return TOKENS.get(torch.device(device).type, GPU_TOKENS)


def batch_rows(device: torch.device | str) -> int:
    """Prompts that are decoded together on this device, unless configured."""
    return ROWS.get(torch.device(device).type, GPU_ROWS)


class BatchSize:
    """The value of a setting, halved once when the GPU's memory is full.

    Args:
        key: of the setting, such as `decoding.batch_size`.
        where: whose setting it is, in messages: " in smollm2, a tool's model".
    """

    def __init__(self, key: str, value: int, where: str = "") -> None:
        self.key, self.value, self._where = key, value, where
        self._is_halved = False

    def attempt(self, work: Callable[[], T]) -> T:
        """The result of `work`, which is begun again with half the size if the memory is full for the first time.

        UserError if it is full again.
        """
        try:
            return work()
        except torch.OutOfMemoryError as error:
            if self._is_halved or self.value == 1:
                raise UserError(
                    f"the GPU's memory is full{self._where} at {self.key}={self.value}; finished work is kept: set a lower number, or see "
                    "with nvidia-smi what else uses the GPU"
                ) from error
        release_memory()  # after the block, since the error's traceback holds tensors
        self.value, self._is_halved = self.value // 2, True
        log.warning("the GPU's memory is full%s; going on with %s=%d", self._where, self.key, self.value)
        return self.attempt(work)
