"""Faster CPU linear layers for small batches: (W xᵀ)ᵀ instead of x Wᵀ, which differs by rounding alone.

A decoding step multiplies a few dozen rows with every weight. In float32 the library spends much of that time on copying
W into another layout; with swapped operands it copies the few rows instead, and a step takes a sixth less time.
"""

from typing import Any

import torch
from torch import nn
from transformers.integrations import sdpa_attention

STOCK_SHARING = sdpa_attention.use_gqa_in_sdpa
MAX_ROWS = 128
"""Maximum number of rows for which it is faster. A single row is a matrix-vector product, equally fast either way."""


class SmallBatchLinear(nn.Linear):
    """A linear layer that swaps the operands for small batches."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        count = rows.numel() // self.in_features
        if torch.is_grad_enabled() or not 1 < count <= MAX_ROWS:
            return super().forward(rows)
        product: Any = torch.mm(self.weight, rows.reshape(count, -1).t())
        if self.bias is not None:
            product += self.bias[:, None]
        return product.t().contiguous().view(*rows.shape[:-1], self.out_features)


def use_fast_linear(model: nn.Module) -> None:
    """Replaces the class of a model's float32 linear layers on a CPU, and stops copying shared keys on any CPU."""
    sdpa_attention.use_gqa_in_sdpa = shares_keys
    for module in model.modules():
        if type(module) is nn.Linear:
            if module.weight.device.type == "cpu" and module.weight.dtype is torch.float32:
                module.__class__ = SmallBatchLinear


def shares_keys(attention_mask: torch.Tensor | None, key: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether query heads that share keys read them without a copy for each, which is faster on a CPU.

    Not in a bfloat16 step of single tokens: Transformers packs the heads of one, and takes a quarter less time. By the
    device of each call, unlike TRANSFORMERS_SDPA_FORCE_GQA: on CUDA a mask then takes a slow kernel.
    """
    if key.device.type != "cpu":
        return bool(STOCK_SHARING(attention_mask, key, value))
    is_step = attention_mask is not None and attention_mask.shape[-2] == 1
    return key.dtype is torch.float32 or not is_step or bool(STOCK_SHARING(attention_mask, key, value))
