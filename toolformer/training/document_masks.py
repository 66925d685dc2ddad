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
from toolformer.training.losses import head
from toolformer.training.tokens import RESULT, TokenizedTexts

log = logging.getLogger(__name__)

Isolation = Literal["positions", "mask", "single"]

_BY_POSITIONS = "gpt2 gptj gpt_neo gpt_neox llama mistral qwen2 gemma3_text".split()
KNOWN: dict[str, Isolation] = {
    "opt": "mask",
    "gpt_oss": "mask",
    **dict.fromkeys(_BY_POSITIONS, "positions"),
}
"""By `model_type`, for weights that DeepSpeed has spread over processes, which cannot be tried; their heads are separate."""

# How far rounding may move logits, as a share of their standard deviation: in one of a thousand tokens it chooses another one
# of two equally good experts.
_ROUNDING = {torch.float32: 1e-3, torch.bfloat16: 0.1}
# How far another text before a document may move its first tokens, as a share of the same: more than float32's rounding.
_LEAK = 1e-3
_FIRST = 4
# Parts of the names of keys that are lengths: windows and chunks of attention, and where positions begin to be scaled.
_LENGTHS = ("window", "chunk", "original_max_position")
# Logits per token that are compared; a whole vocabulary takes gigabytes.
_COMPARED = 256


@dataclass(frozen=True)
class Collator:
    """Pads sequences on the right to one length; padding is one more document, which is not a target.

    Returns `input_ids`, `labels`, `kinds` [batch, tokens]; `targets` [batch, tokens], the tokens whose losses are computed: the
    labels, and results even where these are not trained on; `position_ids` [batch, tokens] unless isolation is `single`;
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
        batch["targets"] = batch["labels"].where(batch["kinds"] != RESULT, batch["input_ids"])
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


def _windows(config: Any, size: int) -> str:
    """The shortest length of texts that the configuration treats in its own way, for a message."""
    windows = {
        key: value
        for key, value in config.get_text_config().to_dict().items()
        if isinstance(value, int) and 1 < value < size and any(word in key for word in _LENGTHS)
    }
    key = min(windows, key=lambda key: windows[key], default="")
    return f" to at most {windows[key]}, {key} of its config.json" if key else ""


class Probe:
    """What training does otherwise than the model alone does, tried before training on documents of its length.

    Documents of several lengths have the logits that each has alone, but for rounding: packed, with attention by document, and
    with the output head applied after the body.

    Args:
        model: in evaluation mode.
        size: tokens per sequence: tried documents fill one, because of attention windows, chunks and scaled positions.
        rows: sequences per batch.
    """

    def __init__(self, model: Any, size: int, rows: int) -> None:
        self.model, self.size, self.rows = model, size, rows
        self.model_type = str(getattr(model.config, "model_type", ""))
        self.is_spread = any(parameter.numel() == 0 for parameter in model.parameters())
        if self.is_spread:
            return
        # A short and a long document, as scaled positions depend on the longest; and two of about the same length, neither of
        # which is a multiple of a chunk of attention.
        short, half = min(6, size // 2), max(1, size // 2 - 3)
        lengths = [short, size - short, half, size - half, size, half, size - half]
        vocabulary = int(model.get_input_embeddings().weight.shape[0])
        ids = np.random.default_rng(0).integers(0, vocabulary, sum(lengths)).astype(np.int32)
        starts = np.cumsum([0, *lengths])
        self.documents = TokenizedTexts(ids, starts, np.zeros(len(ids), dtype=np.int8))
        pieces = [(n, 0, length) for n, length in enumerate(lengths)]
        self.alone = [self._logits("single", [[piece]])[0] for piece in pieces[:5]]
        another_row: Layout = [[pieces[4]]] if rows > 1 else []
        self.packed: list[Layout] = [[pieces[:2], *another_row], [pieces[2:4]]]
        self.apart: list[Layout] = [[[pieces[0]], [pieces[1]], *another_row]]
        # The same two documents, another one before the second, another one after the first.
        self.changed: list[Layout] = [[[pieces[n], pieces[m]]] for n, m in ((2, 3), (5, 3), (2, 6))]
        self.deviation = float(torch.cat(self.alone).std(1).mean())
        self.tolerance = _ROUNDING.get(model.dtype, _ROUNDING[torch.bfloat16]) * self.deviation

    def isolation(self, by_document: bool = False, dtype: torch.dtype = torch.float32) -> Isolation:
        """The way this model keeps documents apart.

        Args:
            by_document: whether to attend within each document without a mask, where the model allows it.
            dtype: of training's matrix products.

        UserError if the model reads a text differently beside another row.
        """
        if self.is_spread:
            return KNOWN.get(self.model_type, "single")
        if self._passes("positions"):
            before = getattr(self.model.config, "_attn_implementation", None)
            if by_document and before == "sdpa":
                self.model.set_attn_implementation(attention.NAME)
                if not self._passes("positions") or not attention.kernel_works(self.model, dtype):
                    self.model.set_attn_implementation(before)
            return "positions"
        if self._passes("mask"):
            return "mask"
        log.warning(
            "%s cannot keep packed documents apart: one document per sequence instead", self.model_type
        )
        if self.rows > 1 and not self._passes("single"):
            raise UserError(
                f"model: {self.model_type} reads a short text differently in one batch with a text of {self.size} tokens; set "
                f"trainer.micro_batch_size=1, or lower trainer.sequence_length{_windows(self.model.config, self.size)}"
            )
        return "single"

    @torch.no_grad()
    def has_separate_head(self) -> bool:
        """Whether body and head, one after the other, give the logits of the whole model; logs if they do not."""
        if self.is_spread:
            is_separate = self.model_type in KNOWN
        else:
            is_separate = self.model.base_model is not self.model and self._head_agrees()
        if not is_separate:
            log.warning(
                "%s: its output head cannot be applied in chunks; training takes more memory", self.model_type
            )
        return is_separate

    def _head_agrees(self) -> bool:
        document = self.documents.ids[: self.documents.starts[1]]
        ids = torch.from_numpy(document).long()[None].to(self.model.device)
        try:
            hidden = self.model.base_model(ids, use_cache=False).last_hidden_state
            logits = head(self.model, hidden)[0, :, :_COMPARED].float()
            return self._is_rounding(logits, self.alone[0])
        except torch.OutOfMemoryError:
            raise
        except (TypeError, ValueError, RuntimeError, LookupError, AttributeError):
            return False

    def _passes(self, way: Isolation) -> bool:
        """Whether each document has the same logits as alone, and none depends on the one before it."""
        for layout in self.apart if way == "single" else self.packed:
            numbers = [piece[0] for sequence in layout for piece in sequence]
            try:
                logits = torch.cat(self._logits(way, layout))
            except torch.OutOfMemoryError:
                raise
            except (TypeError, ValueError, RuntimeError, LookupError, AttributeError):
                return False  # it does not accept such inputs
            alone = [self.alone[number] for number in numbers]
            parts = logits.split([len(document) for document in alone])
            if not all(self._is_rounding(*pair) for pair in zip(parts, alone, strict=True)):
                return False
        return way == "single" or self._is_hidden(way)

    def _is_hidden(self, way: Isolation) -> bool:
        """Whether another text before a document changes its first tokens no more than rounding does.

        A leak of a few tokens, as a convolution's, is less than bfloat16's rounding where it is averaged over a document. Rounding is
        measured: what comes later changes a causal model's tokens by nothing else, for example by how many tokens an expert gets.
        """
        same, before, after = (self._logits(way, layout)[0] for layout in self.changed)
        start = len(self.alone[2])
        leak = _distances(same[start:], before[start:])[:_FIRST].mean()
        rounding = _distances(same[:start], after[:start]).mean()
        return not leak > max(_LEAK * self.deviation, 3 * float(rounding))

    def _is_rounding(self, logits: torch.Tensor, alone: torch.Tensor) -> bool:
        """Whether logits [tokens, logits] differ by rounding: the largest of each token, averaged over the tokens.

        Averaged, since rounding may choose another one of two equally good experts for a token.
        """
        distance = float(_distances(logits, alone).mean())
        # With broken weights (NaN) training ends by itself.
        return distance <= self.tolerance or math.isnan(distance)

    @torch.no_grad()
    def _logits(self, way: Isolation, layout: Layout) -> list[torch.Tensor]:
        """[tokens, logits] of each sequence."""
        texts = PackedTexts(self.documents, layout)
        sequences = [texts[n] for n in range(len(texts))]
        batch = Collator(0, way, config=self.model.config)(sequences)
        del batch["labels"], batch["targets"], batch["kinds"]
        output = self.model(**send_to_device(batch, self.model.device), use_cache=False).logits
        rows = output[..., :_COMPARED].float()
        return [row[: len(sequence["input_ids"])] for row, sequence in zip(rows, sequences, strict=True)]


def _distances(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Largest difference of logits [tokens, logits], by token."""
    return (first - second).abs().amax(1)
