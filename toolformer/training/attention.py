"""Attention within each document of a packed sequence, without a mask and without work between documents.

For CPUs. Transformers separates packed documents by a block-diagonal mask, with which attention still multiplies all pairs
of tokens; here a sequence is split where its position ids restart, and each document attends alone. GPUs keep their fused
kernels.
"""

from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

NAME = "by_document"
# Options of a model's attention that are not supported here.
_UNSUPPORTED = ("sliding_window", "softcap", "s_aux", "position_bias", "head_mask", "cache")


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_ids: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within documents; queries [batch, heads, tokens, size], output [batch, tokens, heads, size].

    ValueError for unsupported options, or without position ids.
    """
    unsupported = [name for name in _UNSUPPORTED if options.get(name) is not None]
    if attention_mask is not None or position_ids is None or query.shape[2] != key.shape[2] or unsupported:
        raise ValueError(
            f"attention by document cannot do this: {unsupported or 'a mask, a cache or no position ids'}"
        )
    shared = query.shape[1] != key.shape[1]
    rows = []
    # Split, not sliced, into rows and documents: the gradient of a slice is as large as the whole tensor.
    for row, tensors in enumerate(zip(query.split(1), key.split(1), value.split(1), strict=True)):
        starts = (position_ids[min(row, len(position_ids) - 1)] == 0).nonzero().flatten().tolist()
        bounds = [*dict.fromkeys([0, *starts]), query.shape[2]]
        lengths = [end - start for start, end in pairwise(bounds)]
        by_document = (tensor.split(lengths, dim=2) for tensor in tensors)
        parts = [
            scaled_dot_product_attention(
                q, k, v, dropout_p=dropout, scale=scaling, is_causal=True, enable_gqa=shared
            )
            for q, k, v in zip(*by_document, strict=True)
        ]
        rows.append(torch.cat(parts, dim=2))
    return torch.cat(rows).transpose(1, 2).contiguous(), None


def _no_mask(*_: Any, attention_mask: torch.Tensor | None = None, **__: Any) -> None:
    """Packed documents need no mask; a caller's mask would be lost."""
    if attention_mask is not None:
        raise ValueError("attention by document takes no mask")


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, _no_mask)
