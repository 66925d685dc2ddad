"""Keeping documents of one packed sequence apart: which way a model does it, and batches made that way.

Three ways, the first that the model is seen to honour: position ids that restart at every document
(Transformers makes a block-diagonal mask of them), the masks that Transformers would make of them, one document a
sequence.
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
"""By `model_type`, for weights that cannot be tried because DeepSpeed has spread them over processes."""

# Documents that see each other move the logits by orders of magnitude more than rounding does.
_LEAK = 0.01
# Of each token: so many logits show a difference, and those of a whole vocabulary take gigabytes.
_COMPARED = 256


@dataclass(frozen=True)
class Collator:
    """Pads sequences on the right to one length; padding counts as one more document, which is no target.

    Gives `input_ids`, `labels`, `kinds` [batch, tokens]; `position_ids` [batch, tokens] unless isolation is `single`;
    `attention_mask` if isolation is `mask`: [batch, 1, tokens, tokens], or such a mask for each type of layer. A causal
    model's real tokens never see padding on their right, so that no mask is needed for it.
    """

    pad_id: int
    isolation: Isolation
    size: int | None = None
    """Length to pad to; None: the longest of the batch."""
    config: Any = None
    """The model's, which masks follow: windows, chunks, boolean or added to the scores."""

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
    """The collator of a model: `size` tokens a sequence, or the longest of a batch (also where documents stand alone)."""
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    return Collator(int(pad_id), isolation, None if isolation == "single" else size, model.config)


@torch.no_grad()
def choose_isolation(model: Any, size: int, rows: int, by_document: bool = False) -> Isolation:
    """The way this model keeps documents apart: a document's logits, packed with another, are those it has alone.

    Args:
        model: in evaluation mode.
        size: tokens of a sequence: documents are tried that are as long, for windows of attention and scaled positions.
        rows: sequences of a batch. UserError for a model that reads a text differently beside another row.
        by_document: whether a model, to be trained on a CPU, may attend to each document alone, without a mask.
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
    """Two documents that fill a sequence, where a batch has several also one that does, and a model's logits of each alone."""

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
        """Whether each document has the logits that it has alone."""
        try:
            distance = self._distance(way, self.apart if way == "single" else self.packed)
        except torch.OutOfMemoryError:
            raise
        except (TypeError, ValueError, RuntimeError, LookupError, AttributeError):
            return False  # It does not take such an input at all.
        return distance <= _LEAK * self.leak or math.isnan(
            self.leak
        )  # with broken weights training ends by itself

    def _distance(self, way: Isolation, layout: Layout) -> float:
        """How far logits are from those alone: the largest of each token, their mean in a document, of all the largest.

        The mean, since of experts that a token likes equally rounding may choose another.
        """
        logits = torch.cat(self._logits(way, layout)).split(self.documents.lengths)
        pairs = zip(logits, self.alone, strict=True)
        return float(torch.stack([(one - other).abs().amax(1).mean() for one, other in pairs]).max())

    def _logits(self, way: Isolation, layout: Layout) -> list[torch.Tensor]:
        """Of each sequence: [tokens, logits]."""
        texts = PackedTexts(self.documents, layout)
        sequences = [texts[n] for n in range(len(texts))]
        batch = Collator(0, way, config=self.model.config)(sequences)
        del batch["labels"], batch["kinds"]
        output = self.model(**send_to_device(batch, self.model.device), use_cache=False).logits
        rows = output[..., :_COMPARED].float()
        return [row[: len(one["input_ids"])] for row, one in zip(rows, sequences, strict=True)]
