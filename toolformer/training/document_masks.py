"""Keeping documents of one packed sequence apart: which way a model does it, and batches made that way.

Three ways, the first that the model is seen to honour: position ids that restart at every document
(Transformers makes a block-diagonal mask of them), an explicit block-diagonal mask, one document a sequence.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from toolformer.training import attention
from toolformer.training.data import IGNORED, PackedTexts
from toolformer.training.tokens import TokenizedTexts

log = logging.getLogger(__name__)

Isolation = Literal["positions", "mask", "single"]

_BY_POSITIONS = "gpt2 gptj gpt_neo gpt_neox llama mistral qwen2 gemma3_text".split()
KNOWN: dict[str, Isolation] = {"opt": "mask", **dict.fromkeys(_BY_POSITIONS, "positions")}
"""By `model_type`, for weights that cannot be tried because DeepSpeed has spread them over processes."""

# Documents that see each other move the logits by orders of magnitude more than rounding does.
_LEAK = 0.01


@dataclass(frozen=True)
class Collator:
    """Pads sequences on the right to one length; padding counts as one more document, which is no target.

    Gives `input_ids`, `labels`, `kinds` [batch, tokens]; `position_ids` [batch, tokens] unless isolation is `single`;
    `attention_mask` [batch, 1, tokens, tokens] if isolation is `mask`. A causal model's real tokens never see
    padding on their right, so that no mask is needed for it.
    """

    pad_id: int
    isolation: Isolation
    size: int | None = None
    """Length to pad to; None: the longest of the batch."""
    additive: bool = False
    """Whether a mask is added to the attention scores (eager attention) rather than boolean (SDPA)."""

    def __call__(self, sequences: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        size = self.size or max(len(sequence["input_ids"]) for sequence in sequences)
        shape = (len(sequences), size)
        batch = {
            "input_ids": torch.full(shape, self.pad_id),
            "labels": torch.full(shape, IGNORED),
            "position_ids": torch.zeros(shape, dtype=torch.long),
            "kinds": torch.zeros(shape, dtype=torch.long),
        }
        for row, sequence in enumerate(sequences):
            length = len(sequence["input_ids"])
            for key, tensor in batch.items():
                tensor[row, :length] = sequence[key]
            batch["position_ids"][row, length:] = torch.arange(size - length)
        if self.isolation == "mask":
            batch["attention_mask"] = self._block_diagonal(batch["position_ids"])
        if self.isolation == "single":
            del batch["position_ids"]
        return batch

    def _block_diagonal(self, position_ids: torch.Tensor) -> torch.Tensor:
        document = (position_ids == 0).cumsum(1)
        visible = (document[:, :, None] == document[:, None, :]).tril()[:, None]
        if not self.additive:
            return visible
        return torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)


def collator(model: Any, tokenizer: Any, isolation: Isolation, size: int | None = None) -> Collator:
    """The collator of a model: `size` tokens a sequence, or the longest of a batch (also where documents stand alone)."""
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    return Collator(int(pad_id), isolation, None if isolation == "single" else size, _is_additive(model))


def _is_additive(model: Any) -> bool:
    return getattr(model.config, "_attn_implementation", "eager") == "eager"


def choose_isolation(model: Any) -> Isolation:
    """The way this model keeps documents apart: a document's logits, packed after another, are those it has alone."""
    model_type = str(getattr(model.config, "model_type", ""))
    if any(parameter.numel() == 0 for parameter in model.parameters()):
        return KNOWN.get(model_type, "single")
    ways: tuple[Isolation, ...] = ("positions", "mask")
    for way in ways:
        if _isolates(model, way):
            return way
    log.warning("%s cannot keep packed documents apart: one document per sequence instead", model_type)
    return "single"


def attend_by_document(model: Any, device: str) -> bool:
    """Lets a model, still in main memory, attend to each packed document alone, without a mask; returns whether it does.

    Only to be trained on a CPU (`device`), and only if its logits stay what they were.
    """
    before = getattr(model.config, "_attn_implementation", None)
    if device != "cpu" or before != "sdpa" or any(p.numel() == 0 for p in model.parameters()):
        return False
    model.set_attn_implementation(attention.NAME)
    if _isolates(model, "positions"):
        return True
    model.set_attn_implementation(before)
    return False


@torch.no_grad()
def _isolates(model: Any, isolation: Isolation) -> bool:
    first, second = 6, 5
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    ids = np.random.default_rng(0).integers(0, vocabulary, first + second).astype(np.int32)
    documents = TokenizedTexts(ids, np.array([0, first, first + second]), np.zeros(len(ids), dtype=np.int8))
    packed = PackedTexts(documents, [[(0, 0, first), (1, 0, second)]])[0]

    def logits(way: Isolation, sequence: Mapping[str, torch.Tensor]) -> torch.Tensor:
        batch = Collator(0, way, additive=_is_additive(model))([sequence])
        del batch["labels"], batch["kinds"]
        batch = {key: tensor.to(model.device) for key, tensor in batch.items()}
        output: torch.Tensor = model(**batch, use_cache=False).logits[0, -second:].float()
        return output

    training = model.training
    model.eval()
    try:
        alone = logits("single", PackedTexts(documents, [[(1, 0, second)]])[0])
        leak = (logits("single", packed) - alone).abs().max()
        return bool((logits(isolation, packed) - alone).abs().max() <= _LEAK * leak)
    except (TypeError, ValueError, RuntimeError, IndexError):
        return False  # It does not take such an input at all.
    finally:
        model.train(training)
