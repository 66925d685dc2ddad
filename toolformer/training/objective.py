"""Objectives of training: examples, the loss of a batch, and logged values. To add an objective, add a class here.

`train(..., objective=...)` takes one; the Trainer, checkpoints and held-out perplexity are the same for all.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from toolformer.training.data import IGNORED, PackedTexts, document_order, one_per_sequence, stream
from toolformer.training.document_masks import Isolation
from toolformer.training.settings import TrainingSettings
from toolformer.training.tokens import CALL, RESULT, TEXT, AnnotatedText, tokenize


class Objective(Protocol):
    """An objective of training."""

    def examples(
        self,
        texts: Sequence[str | AnnotatedText],
        tokenizer: Any,
        isolation: Isolation,
        settings: TrainingSettings,
        multiple: int,
    ) -> PackedTexts:
        """The sequences to train on, in order; their number is a multiple of `multiple`."""

    def loss(
        self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """The loss of a micro batch, scalar; its share of that of the `num_items_in_batch` targets of the step.

        Args:
            outputs: `losses` in nats [batch, tokens - 1] and `kinds` [batch, tokens] of the tokens (`losses.py`).
            labels: [batch, tokens], `IGNORED` where a token is not a target.
        """

    def logs(self, reduce: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, float]:
        """Metrics since the last call; `reduce` sums a tensor over the processes."""


class LanguageModelling:
    """The mean loss of all tokens of the texts, calls and results included (paper, section 2).

    Logs the perplexity of texts, of calls up to the arrow, and of results, even where these are not targets.
    """

    def __init__(self, device: torch.device) -> None:
        # Summed loss in nats and number of tokens since the last log, [texts, calls or results; 2].
        self._sums = torch.zeros(3, 2, dtype=torch.float64, device=device)

    def examples(
        self,
        texts: Sequence[str | AnnotatedText],
        tokenizer: Any,
        isolation: Isolation,
        settings: TrainingSettings,
        multiple: int,
    ) -> PackedTexts:
        """As `Objective.examples`: shuffled texts, packed and cut at the sequence length."""
        documents = tokenize(texts, tokenizer)
        order = document_order(len(documents), settings.seed, settings.epochs)
        limit = settings.max_steps * settings.batch_size if settings.max_steps else None
        pack = one_per_sequence if isolation == "single" else stream
        layout = pack(documents.lengths, order, settings.sequence_length, limit)
        return PackedTexts(documents, layout, settings.train_on_results, multiple)

    def loss(
        self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """As `Objective.loss`."""
        losses = outputs["losses"]
        targets = labels[:, 1:] != IGNORED
        if torch.is_grad_enabled():  # held-out texts are not logged here
            self._count(losses.detach(), targets, outputs["kinds"][:, 1:])
        total = losses.where(targets, 0).sum()
        return total / (targets.sum() if num_items_in_batch is None else num_items_in_batch)

    def _count(self, losses: torch.Tensor, targets: torch.Tensor, kinds: torch.Tensor) -> None:
        for row, kind in enumerate((TEXT, CALL, RESULT)):  # on the device, without waiting
            counted = (kinds == kind) & (targets | (kinds == RESULT))
            self._sums[row, 0] += losses.where(counted, 0).double().sum()
            self._sums[row, 1] += counted.sum()

    def logs(self, reduce: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, float]:
        """As `Objective.logs`."""
        sums = reduce(self._sums.clone()).tolist()
        self._sums.zero_()
        return {
            f"perplexity_{name}": math.exp(min(total / count, 700.0))
            for name, (total, count) in zip(("texts", "calls", "results"), sums, strict=True)
            if count
        }
