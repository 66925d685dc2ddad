"""Training on preferences with TRL's KTOTrainer and DPOTrainer (Ethayarajh et al., 2024; Rafailov et al., 2023).

TRL's trainers get tokens, not texts: they would split calls otherwise than decoding writes them, count results, which decoding
inserts, and end each completion with EOS.
"""

import warnings
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from transformers import PrinterCallback, TrainingArguments
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer

from toolformer.errors import UserError
from toolformer.lm import loading
from toolformer.training.data import document_order
from toolformer.training.document_masks import choose_isolation, collator
from toolformer.training.loop import HeldOutTrainer
from toolformer.training.preferences import Encoder, Preference, tokens_by_document, unpaired
from toolformer.training.progress import OnLog
from toolformer.training.settings import PreferenceRecipe, TrainingResult, TrainingSettings
from toolformer.training.tokens import TokenizedTexts
from toolformer.training.trainer import check_context, check_embedding, pack_heldout, run_training


class _PreferenceTrainer(HeldOutTrainer):
    """What both trainers of TRL must do otherwise."""

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        return dataset  # tokens already

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Writes none: a checkpoint is not published."""

    def _send_telemetry(self) -> None:
        """Sends nothing."""


class _KTOTrainer(_PreferenceTrainer, KTOTrainer):
    pass


class _DPOTrainer(_PreferenceTrainer, DPOTrainer):
    pass


def train_preferences(
    model_path: str | Path,
    preferences: Sequence[Preference],
    heldout: Sequence[str],
    objective: str,
    settings: TrainingSettings,
    recipe: PreferenceRecipe,
    output_dir: Path,
    on_log: OnLog | None = None,
    progress: bool = True,
) -> TrainingResult:
    """Trains a model on preferences, held to its own beginning, and keeps the last model.

    Called again with the same arguments, it resumes from the last whole checkpoint, or returns the result if the training
    is done.

    Args:
        model_path: hub name or folder of a causal LM, the reference too.
        heldout: plain texts whose perplexity is logged.
        objective: `kto` or `dpo`.
        settings: the recipe's keys replace theirs.
        on_log: as of `trainer.train`, with `rewards/chosen`, `rewards/rejected`, `rewards/margins`, `rewards/accuracies` (dpo)
            and `kl` (kto) instead of perplexities by kind of token.

    UserError if model, settings and preferences do not fit together.
    """
    recipe.check(objective)
    settings = recipe.applied(settings)

    def build(arguments: TrainingArguments, started: float) -> HeldOutTrainer:
        return _trainer(
            str(model_path), preferences, heldout, objective, settings, arguments, Path(output_dir), started
        )

    config = KTOConfig if objective == "kto" else DPOConfig
    make = partial(config, beta=recipe.beta, max_length=None)
    content = [objective, [asdict(preference) for preference in preferences], list(heldout)]
    return run_training(build, content, settings, Path(output_dir), on_log, progress, make)


def _trainer(
    model_path: str,
    preferences: Sequence[Preference],
    heldout: Sequence[str],
    objective: str,
    settings: TrainingSettings,
    arguments: TrainingArguments,
    output_dir: Path,
    started: float,
) -> HeldOutTrainer:
    """Loads the model and its reference, encodes the preferences, and makes TRL's Trainer."""
    model, tokenizer = loading.load_causal(model_path, torch.float32)
    reference, _ = loading.load_causal(model_path, torch.float32)
    check_context(model, settings)
    model.to(arguments.device)
    # TRL pads batches and masks the padding, which attention by document does not support.
    isolation = choose_isolation(model, settings.sequence_length, settings.micro_batch_size, False)
    evaluation = pack_heldout(heldout, tokenizer, isolation, settings)
    examples = _Examples(_encoded(preferences, tokenizer, objective, settings), settings)
    check_embedding(model, tokenizer, evaluation.documents, examples.documents)
    # TRL asks Transformers for an attribute by its old name.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
    arguments.max_steps = len(examples.rows) // settings.batch_size
    pack, pad = collator(model, tokenizer, isolation, None), tokenizer.pad_token_id or 0

    def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        if "prompt_ids" not in rows[0]:
            return pack(rows)
        return (_unpaired_batch if objective == "kto" else _paired_batch)(rows, pad)

    make = _KTOTrainer if objective == "kto" else _DPOTrainer
    trainer = make(
        settings=settings,
        started=started,
        output_dir=output_dir,
        examples=examples,
        keep_last=True,  # plain texts do not say which model calls best
        model=model,
        ref_model=reference,
        args=arguments,
        data_collator=collate,
        train_dataset=Dataset.from_list(examples.rows),
        eval_dataset=evaluation,
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _encoded(
    preferences: Sequence[Preference], tokenizer: Any, objective: str, settings: TrainingSettings
) -> list[dict[str, Any]]:
    documents = tokens_by_document(preferences, tokenizer)
    encoder = Encoder(tokenizer, documents, settings.sequence_length, settings.train_on_results)
    rows = [row for row in map(encoder.dpo, preferences) if row is not None]
    rows = unpaired(rows) if objective == "kto" else rows
    if len(rows) * (settings.epochs or 1) < settings.batch_size:
        raise UserError(
            f"dataset: {len(rows)} preferences are too few for trainer.preference.batch_size={settings.batch_size}; annotate "
            "more texts, or lower it"
        )
    return rows


class _Examples:
    """Rows in the order of training: whole batches, shuffled by the seed in every pass."""

    def __init__(self, rows: Sequence[dict[str, Any]], settings: TrainingSettings) -> None:
        size = settings.batch_size
        steps = min(settings.max_steps or 1, len(rows) * (settings.epochs or 1) // size)
        order = [*document_order(len(rows), settings.seed, settings.epochs)][: steps * size]
        self.rows = [rows[index] for index in order]
        lengths = [_length(row) for row in self.rows]
        self._before = np.cumsum([0, *lengths])

    @property
    def tokens(self) -> int:
        """Tokens of all rows."""
        return int(self._before[-1])

    def tokens_before(self, index: int) -> int:
        """Tokens of the rows before this one."""
        return int(self._before[min(index, len(self._before) - 1)])

    @property
    def documents(self) -> TokenizedTexts:
        """All tokens, as one document."""
        ids = [token for row in self.rows for name in row if name.endswith("_ids") for token in row[name]]
        return TokenizedTexts(
            np.array(ids, dtype=np.int32), np.array([0, len(ids)]), np.zeros(len(ids), dtype=np.int8)
        )


def _length(row: dict[str, Any]) -> int:
    """Tokens of all sequences of a row, each with the prompt."""
    sides = [name for name in row if name.endswith("_ids") and name != "prompt_ids"]
    return sum(len(row["prompt_ids"]) + len(row[side]) for side in sides)


def _paired_batch(rows: Sequence[dict[str, Any]], pad: int) -> dict[str, torch.Tensor]:
    """A batch of TRL's DPOTrainer: the chosen sequences, then the rejected ones."""
    return _padded(
        [
            (row["prompt_ids"], row[f"{side}_ids"], row[f"{side}_mask"])
            for side in ("chosen", "rejected")
            for row in rows
        ],
        pad,
    )


def _unpaired_batch(rows: Sequence[dict[str, Any]], pad: int) -> dict[str, torch.Tensor]:
    """A batch of TRL's KTOTrainer; for the estimate of the KL each prompt is followed by another row's completion."""
    others = [*rows[-1:], *rows[:-1]]
    batch = {"label": torch.tensor([row["label"] for row in rows])}
    for prefix, completions in (("", rows), ("KL_", others)):
        parts = [
            (row["prompt_ids"], other["completion_ids"], other["completion_mask"])
            for row, other in zip(rows, completions, strict=True)
        ]
        batch |= {f"{prefix}{name}": tensor for name, tensor in _padded(parts, pad).items()}
    return batch


def _padded(parts: Sequence[tuple[list[int], list[int], list[int]]], pad: int) -> dict[str, torch.Tensor]:
    """[sequences, tokens], padded on the right: ids, which are not padding, and which count."""
    ids = [torch.tensor([*prompt, *completion]) for prompt, completion, _ in parts]
    counted = [torch.tensor([*([0] * len(prompt)), *mask]) for prompt, _, mask in parts]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
        "completion_mask": pad_sequence(counted, batch_first=True),
    }
