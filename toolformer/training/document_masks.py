"""Keeping the documents of a packed sequence apart, in the first way that is seen to work for a model.

The ways are: position ids that restart at every document (Transformers derives a block-diagonal mask), explicit masks as
Transformers would derive them, one document per sequence.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from accelerate.utils import send_to_device
from transformers.masking_utils import create_masks_for_generate

from toolformer.errors import UserError
from toolformer.training import attention
from toolformer.training.data import IGNORED, Layout, PackedTexts
from toolformer.training.tokens import TokenizedTexts

log = logging.getLogger(__name__)

Isolation = Literal["positions", "mask", "single"]

_BY_POSITIONS = "gpt2 gptj gpt_neo gpt_neox llama mistral qwen2 gemma3_text".split()
KNOWN: dict[str, Isolation] = {
    "opt": "mask",
    "gpt_oss": "mask",
    **dict.fromkeys(_BY_POSITIONS, "positions"),
}
"""By `model_type`, for weights that DeepSpeed has spread over processes, which cannot be tried."""

# Documents that attend to each other change logits by orders of magnitude more than rounding.
_LEAK = 0.01
# Logits per token that are compared; a whole vocabulary takes gigabytes.
_COMPARED = 256


@dataclass(frozen=True)
class Collator:
    """Pads sequences on the right to one length; padding is one more document, which is not a target.

    Returns `input_ids`, `labels`, `kinds` [batch, tokens]; `position_ids` [batch, tokens] unless isolation is `single`;
    `attention_mask` if isolation is `mask`: [batch, 1, tokens, tokens], or such a mask for each type of layer. A causal
    model's real tokens never see padding on their right, so that no mask is needed for it.
    """

    pad_id: int
    isolation: Isolation
    size: int | None = None
    """Length to pad to; None: the longest of the batch."""
    config: Any = None
    """The model's configuration, which decides its masks."""

    def __call__(self, sequences: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, Any]:
        size = self.size or max(len(sequence["input_ids"]) for sequence in sequences)
        shape = (len(sequences), size)
        batch: dict[str, Any] = {
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
            like = torch.empty(*shape, 0)
            batch["attention_mask"] = create_masks_for_generate(
                self.config, like, None, None, batch["position_ids"]
            )
        if self.isolation == "single":
            del batch["position_ids"]
        return batch


def collator(model: Any, tokenizer: Any, isolation: Isolation, size: int | None = None) -> Collator:
    """A model's collator: `size` tokens per sequence, or the longest of a batch (also for single documents)."""
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    return Collator(int(pad_id), isolation, None if isolation == "single" else size, model.config)


@torch.no_grad()
def choose_isolation(model: Any, size: int, rows: int, by_document: bool = False) -> Isolation:
    """The way this model keeps documents apart: packed documents have the logits that they have alone.

    Args:
        model: in evaluation mode.
        size: tokens per sequence: tried documents are as long, because of attention windows and scaled positions.
        rows: sequences per batch. UserError if another row changes how the model reads a text.
        by_document: whether to attend within each document without a mask, where the model allows it.
    """
    model_type = str(getattr(model.config, "model_type", ""))
    if any(parameter.numel() == 0 for parameter in model.parameters()):
        return KNOWN.get(model_type, "single")
    probe = _Probe(model, size, rows)
    if probe.passes("positions"):
        before = getattr(model.config, "_attn_implementation", None)
        if by_document and before == "sdpa":
            model.set_attn_implementation(attention.NAME)
            if not probe.passes("positions"):
                model.set_attn_implementation(before)
        return "positions"
    if probe.passes("mask"):
        return "mask"
    log.warning("%s cannot keep packed documents apart: one document per sequence instead", model_type)
    if rows > 1 and not probe.passes("single"):
        raise UserError(
            f"model: {model_type} reads a short text differently in one batch with a text of {size} tokens; set "
            "trainer.micro_batch_size=1, or trainer.sequence_length to at most original_max_position_embeddings of its "
            "config.json"
        )
    return "single"


class _Probe:
    """Two documents that fill a sequence, and if a batch has several rows one that fills another, with their logits alone."""

    def __init__(self, model: Any, size: int, rows: int) -> None:
        self.model = model
        first = min(6, size // 2)
        lengths = [first, size - first, size][: 2 if rows == 1 else 3]
        vocabulary = int(model.get_input_embeddings().weight.shape[0])
        ids = np.random.default_rng(0).integers(0, vocabulary, sum(lengths)).astype(np.int32)
        starts = np.cumsum([0, *lengths])
        self.documents = TokenizedTexts(ids, starts, np.zeros(len(ids), dtype=np.int8))
        self.apart: Layout = [[(n, 0, length)] for n, length in enumerate(lengths)]
        self.packed: Layout = [self.apart[0] + self.apart[1], *self.apart[2:]]
        self.alone = [self._logits("single", [sequence])[0] for sequence in self.apart]
        self.leak = self._distance("single", self.packed)

    def passes(self, way: Isolation) -> bool:
        """Whether each document has the same logits as alone."""
        try:
            distance = self._distance(way, self.apart if way == "single" else self.packed)
        except torch.OutOfMemoryError:
            raise
        except (TypeError, ValueError, RuntimeError, LookupError, AttributeError):
            return False  # it does not accept such inputs
        # With broken weights (NaN) training ends by itself.
        return distance <= _LEAK * self.leak or math.isnan(self.leak)

    def _distance(self, way: Isolation, layout: Layout) -> float:
        """Distance of logits from those alone: the largest per token, averaged per document, the largest of all documents.

        Averaged, since rounding may choose another one of two equally good experts for a token.
        """
        logits = torch.cat(self._logits(way, layout)).split(self.documents.lengths)
        pairs = zip(logits, self.alone, strict=True)
        return float(torch.stack([(packed - alone).abs().amax(1).mean() for packed, alone in pairs]).max())

    def _logits(self, way: Isolation, layout: Layout) -> list[torch.Tensor]:
        """[tokens, logits] of each sequence."""
        texts = PackedTexts(self.documents, layout)
        sequences = [texts[n] for n in range(len(texts))]
        batch = Collator(0, way, config=self.model.config)(sequences)
        del batch["labels"], batch["kinds"]
        output = self.model(**send_to_device(batch, self.model.device), use_cache=False).logits
        rows = output[..., :_COMPARED].float()
        return [row[: len(sequence["input_ids"])] for row, sequence in zip(rows, sequences, strict=True)]
