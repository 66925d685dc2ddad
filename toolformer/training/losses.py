"""Losses of a causal LM's targets, computed in chunks: the logits of a micro batch never exist all at once.

Logits take 4 bytes x tokens x vocabulary several times over, often more than the model itself. Here the output head reads
the hidden states chunk by chunk, and reads them again in the backward pass.
"""

import copy
import functools
import math
from types import MethodType
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers.modeling_outputs import BaseModelOutputWithPast

from toolformer.training.data import IGNORED

CHUNK = 2**27
"""Logits of a chunk, at most; 0.5 GiB in float32. Smaller micro batches are computed at once, which is faster."""


def token_losses(logits: torch.Tensor, labels: torch.Tensor, without: int | None = None) -> torch.Tensor:
    """[sequences, tokens - 1]: the loss of each target in nats, in float32; 0 where there is none.

    The token `without` has probability 0 wherever it is not the target; only where no gradient is needed.
    """
    losses = _cross_entropy(logits.flatten(0, 1), _following(labels).flatten(), without)
    return losses.view(labels.shape)[:, :-1]


def chunks(model: Any, tokens: int) -> int:
    """The number of chunks in which the losses of a micro batch are computed, of `tokens` tokens at most.

    All processes must have it in common: with ZeRO-3 they gather the head's weights together.
    """
    return math.ceil(tokens * int(model.config.get_text_config().vocab_size) / CHUNK)


def return_losses(model: Any, chunks: int, without: int | None = None) -> None:
    """Lets `model(..., targets=labels, kinds=kinds)` return `{"losses": token_losses(logits, labels), "kinds": kinds}`.

    Labels and kinds are [sequences, tokens]. The model's forward is replaced, so that this also works once DeepSpeed, adapters or
    torch.compile wrap the model.

    Args:
        chunks: more than one only for a model whose head is separate (`document_masks.Probe`).
        without: in evaluation mode, `token_losses` without this token.
    """
    whole = type(model).forward

    @functools.wraps(whole)
    def forward(
        self: Any,
        *arguments: Any,
        targets: torch.Tensor | None = None,
        kinds: torch.Tensor | None = None,
        **options: Any,
    ) -> Any:
        if targets is None:
            return whole(self, *arguments, **options)
        options.pop("num_items_in_batch", None)
        disabled = None if self.training else without
        if chunks > 1:
            hidden = self.base_model(*arguments, **options).last_hidden_state
            return {"losses": _chunked_losses(self, hidden, targets, chunks, disabled), "kinds": kinds}
        logits = whole(self, *arguments, **options).logits
        sequences = zip(logits.split(1), targets.split(1), strict=True)  # in float32 one at a time
        losses = torch.cat([token_losses(*sequence, disabled) for sequence in sequences])
        return {"losses": losses, "kinds": kinds}

    model.forward = MethodType(forward, model)


class _Hidden(BaseModelOutputWithPast):
    """Hidden states alone; whatever else a body returns is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _Body:
    """In place of a model's body: returns the hidden states that it gets as embeddings."""

    def __init__(self, body: Any) -> None:
        self._body = body
        self.decoder = self  # OPT calls its body's decoder

    def __call__(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> _Hidden:
        return _Hidden(last_hidden_state=inputs_embeds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)


def head(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Logits [1, tokens, vocabulary] by the model's own forward, with scaling and softcapping, around another body."""
    around = copy.copy(model)
    around.__dict__[model.base_model_prefix] = _Body(model.base_model)  # found before modules
    logits: torch.Tensor = type(model).forward(around, inputs_embeds=hidden).logits
    return logits


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _chunked_losses(
    model: Any, hidden: torch.Tensor, labels: torch.Tensor, chunks: int, without: int | None
) -> torch.Tensor:
    """`token_losses` from hidden states [sequences, tokens, size]; positions without a target cost nothing."""
    following = _following(labels).flatten()
    positions = (following != IGNORED).nonzero().flatten()
    sizes = [len(chunk) for chunk in positions.tensor_split(chunks)]
    # Split, not sliced: the gradient of a slice is as large as the whole tensor.
    parts = zip(hidden.flatten(0, 1)[positions].split(sizes), following[positions].split(sizes), strict=True)

    def losses_of(hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return _cross_entropy(head(model, hidden[None])[0], targets, without)

    losses = [checkpoint(losses_of, *part, use_reentrant=False, preserve_rng_state=False) for part in parts]
    zeros = torch.zeros(following.shape, device=hidden.device)
    return zeros.index_put((positions,), torch.cat(losses)).view(labels.shape)[:, :-1]


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor, without: int | None) -> torch.Tensor:
    """[tokens]: loss of each target in nats, in float32; 0 for ignored ones."""
    if without is not None:
        logits = logits.clone()
        logits[targets != without, without] = -torch.inf
    return torch.nn.functional.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="none")


def _following(labels: torch.Tensor) -> torch.Tensor:
    """[sequences, tokens]: the label that each position predicts; the labels are shifted, not the logits, which would be copied."""
    return torch.nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
