"""Attention within each document of a packed sequence, without a mask and without work between documents.

Transformers separates packed documents by a block-diagonal mask, with which attention still multiplies all pairs of
tokens. Here a sequence is split where its position ids restart, and each document attends alone: one by one on a CPU, in
one flash kernel of variable lengths on a GPU, which needs bfloat16 or float16.
"""

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from toolformer.errors import one_line

log = logging.getLogger(__name__)

NAME = "by_document"
# Share of the largest value by which 16-bit products may be off.
_KERNEL_ROUNDING = 0.03
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
    module.attended = query.shape[1], key.shape[1], query.shape[3]  # type: ignore[assignment]
    if query.is_cuda and not dropout and (dtype := _half(query)):
        of_all_rows = document_bounds(position_ids, len(query))
        return _in_one_kernel(query.to(dtype), key.to(dtype), value.to(dtype), of_all_rows, scaling), None
    return _one_by_one(query, key, value, position_ids, dropout, scaling), None


def _one_by_one(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    position_ids: torch.Tensor,
    dropout: float,
    scaling: float | None,
) -> torch.Tensor:
    """As `attend`, one document after another."""
    rows = []
    # Split, not sliced, into rows and documents: the gradient of a slice is as large as the whole tensor.
    for row, tensors in enumerate(zip(query.split(1), key.split(1), value.split(1), strict=True)):
        starts = (position_ids[min(row, len(position_ids) - 1)] == 0).nonzero().flatten().tolist()
        bounds = [*dict.fromkeys([0, *starts]), query.shape[2]]
        lengths = [end - start for start, end in pairwise(bounds)]
        by_document = (tensor.split(lengths, dim=2) for tensor in tensors)
        parts = [
            scaled_dot_product_attention(
                q,
                k,
                v,
                dropout_p=dropout,
                scale=scaling,
                is_causal=True,
                enable_gqa=query.shape[1] != key.shape[1],
            )
            for q, k, v in zip(*by_document, strict=True)
        ]
        rows.append(torch.cat(parts, dim=2))
    return torch.cat(rows).transpose(1, 2).contiguous()


def kernel_works(model: Any, dtype: torch.dtype) -> bool:
    """Whether attention by document is right on the model's device, in the dtype of its products; if not, logs why.

    Tries the kernel of variable lengths forward and backward, in every shape that the model's attention had in a forward pass
    before. A CPU has no such kernel.
    """
    device = next(model.parameters()).device
    if not _has_kernel(device):
        return True
    shapes = {module.attended for module in model.modules() if hasattr(module, "attended")}
    for heads, shared, size in sorted(shapes):
        if (problem := _kernel_problem(heads, shared, size, dtype, device)) is not None:
            log.warning("training: attention with masks, not in one kernel: %s", problem)
            return False
    return bool(shapes)


def _has_kernel(device: torch.device) -> bool:
    return device.type == "cuda"


@torch.enable_grad()
def _kernel_problem(
    heads: int, shared: int, size: int, dtype: torch.dtype, device: torch.device
) -> str | None:
    """Problem of the kernel with so many heads of queries and of keys, of this size; None without any."""
    generator = torch.Generator(device).manual_seed(0)
    inputs = [
        torch.randn(1, count, 24, size, generator=generator, device=device).to(dtype)
        for count in (heads, shared, shared)
    ]
    positions = torch.cat([torch.arange(10), torch.arange(14)])[None].to(device)
    bounds = document_bounds(positions, 1)

    def kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return _in_one_kernel(query, key, value, bounds, None)

    def exact(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return _one_by_one(query, key, value, positions, 0.0, None)

    try:
        fused = _with_gradients(kernel, inputs)
    except (RuntimeError, TypeError) as error:  # a GPU without this kernel, or another version of it
        return f"{dtype} with heads of {size}: {one_line(error, 120)}"
    expected = _with_gradients(exact, [tensor.float() for tensor in inputs])
    for name, result, right in zip(("output", "gradient"), fused, expected, strict=True):
        difference = float((result - right).abs().max() / right.abs().max())
        if not difference <= _KERNEL_ROUNDING:
            return f"{dtype} with heads of {size}: its {name} differs by {difference:.0%}"
    return None


def _with_gradients(
    attention: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
    inputs: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, and all gradients of the sum of its squares; float32."""
    query, key, value = (tensor.clone().requires_grad_() for tensor in inputs)
    output = attention(query, key, value).float()
    gradients = torch.autograd.grad(output.square().sum(), (query, key, value))
    return output.detach(), torch.cat([gradient.float().flatten() for gradient in gradients])


def _half(query: torch.Tensor) -> torch.dtype | None:
    """The 16-bit type in which attention runs, or None."""
    autocast = torch.is_autocast_enabled("cuda")
    dtype = torch.get_autocast_dtype("cuda") if autocast else query.dtype
    return dtype if dtype in (torch.bfloat16, torch.float16) else None


def document_bounds(position_ids: torch.Tensor, rows: int) -> torch.Tensor:
    """Where documents begin in the rows one after the other, and the number of all tokens; int32 [documents + 1]."""
    bounds: torch.Tensor | None = getattr(position_ids, "document_bounds", None)
    if bounds is None:
        starts = (position_ids == 0).expand(rows, -1).clone()
        starts[:, 0] = True
        end = torch.tensor([starts.numel()], device=starts.device)
        bounds = torch.cat([starts.flatten().nonzero().flatten(), end]).int()
        # Waits for the GPU, hence once per batch and not in every layer.
        position_ids.document_bounds = bounds  # type: ignore[attr-defined]
    return bounds


def _in_one_kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    rows, heads, size, _ = query.shape
    # All rows one after the other: [tokens, heads, size].
    queries, keys, values = (tensor.transpose(1, 2).flatten(0, 1) for tensor in (query, key, value))
    output: Any = varlen_attn(
        queries, keys, values, bounds, bounds, size, size,
        scale=scaling, window_size=(-1, 0), enable_gqa=heads != key.shape[1],
    )  # fmt: skip
    return output.view(rows, size, heads, -1)


def _no_mask(*_: Any, attention_mask: torch.Tensor | None = None, **__: Any) -> None:
    """Packed documents need no mask; a caller's mask would be lost."""
    if attention_mask is not None:
        raise ValueError("attention by document takes no mask")


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, _no_mask)
