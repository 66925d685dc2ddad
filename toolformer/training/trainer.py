"""Finetuning a causal LM on texts with the Hugging Face Trainer (paper, section 4.1 and appendix B)."""

import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers import PrinterCallback, TrainingArguments, set_seed

from toolformer.errors import UserError
from toolformer.lm import loading
from toolformer.training import attention, checkpoints, lora
from toolformer.training.data import PackedTexts, document_order, single, stream, whole
from toolformer.training.distributed import deepspeed_configuration, processes, rank
from toolformer.training.document_masks import Isolation, choose_isolation, collator
from toolformer.training.loop import HeldOutTrainer, PackedTrainer
from toolformer.training.progress import OnLog
from toolformer.training.settings import TrainingResult, TrainingSettings
from toolformer.training.tokens import AnnotatedText, TokenizedTexts, tokenize


def train(
    model_path: str | Path,
    texts: Sequence[str | AnnotatedText],
    heldout: Sequence[str],
    settings: TrainingSettings,
    output_dir: Path,
    on_log: OnLog | None = None,
    progress: bool = True,
) -> TrainingResult:
    """Finetunes a model on texts and keeps the checkpoint with the lowest held-out perplexity.

    Called again with the same arguments, it resumes from the last whole checkpoint, or returns the result if the training
    is done; `training/checkpoints.py` has the states.

    Args:
        model_path: hub name or folder of a causal LM.
        texts: C* (texts with calls) or C (plain ones).
        heldout: plain texts whose perplexity chooses the checkpoint.
        output_dir: of one model, texts and settings: others need another folder.
        on_log: called with metrics and the step, in the main process: `loss` (nats per token), `perplexity_texts`,
            `perplexity_calls` and `perplexity_results` (tokens of the texts, of calls up to the arrow, and after it, even
            where these are not targets), `learning_rate`, `grad_norm`, `tokens_per_second`, `memory_gib`,
            `heldout_perplexity`.
        progress: whether to draw progress bars on stderr.

    UserError if model, settings, texts and folder do not fit together, for a full disk, or a loss that is not finite.
    """
    written = [text if isinstance(text, str) else text.written for text in texts]

    def build(arguments: TrainingArguments, started: float) -> HeldOutTrainer:
        return _trainer(str(model_path), texts, heldout, settings, arguments, Path(output_dir), started)

    return run_training(build, [written, list(heldout)], settings, Path(output_dir), on_log, progress)


def run_training(
    build: Callable[[TrainingArguments, float], HeldOutTrainer],
    content: Any,
    settings: TrainingSettings,
    output_dir: Path,
    on_log: OnLog | None,
    progress: bool,
    arguments: Callable[..., TrainingArguments] = TrainingArguments,
) -> TrainingResult:
    """Trains in a folder, from its last whole checkpoint; returns the result if the training is done.

    Args:
        build: makes the Trainer from its arguments and the start of the command (time.monotonic, in seconds).
        content: what is trained and evaluated on, as JSON: a folder is continued with the same alone.
        arguments: the Trainer's class of arguments.
    """
    started = time.monotonic()
    folder = output_dir / checkpoints.FOLDER
    accumulation = settings.accumulation(processes())
    if done := checkpoints.finished(output_dir, settings.max_hours):
        if rank() == 0 and done.ended_by_max_hours is None:
            shutil.rmtree(folder, ignore_errors=True)  # of a process that ended between the last two steps
        return done
    chosen = _arguments(settings, folder, accumulation, arguments)
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    dtype = loading.number_format(settings.dtype, settings.device)
    with checkpoints.held(folder, {"texts": digest[:16], "processes": processes(), "dtype": dtype}):
        resume = checkpoints.to_resume(output_dir, settings.keep_checkpoints) if rank() == 0 else None
        resume = broadcast_object_list([resume])[0]
        chosen.eval_on_start = resume is None
        return build(chosen, started).run_to_end(resume, on_log, progress)


def _trainer(
    model_path: str,
    texts: Sequence[str | AnnotatedText],
    heldout: Sequence[str],
    settings: TrainingSettings,
    arguments: TrainingArguments,
    output_dir: Path,
    started: float,
) -> PackedTrainer:
    """Loads the model, packs the texts, and makes the Trainer."""
    set_seed(settings.seed)  # for weights missing in the folder
    # bfloat16 weights would lose updates of 1e-5; only products are in lower precision.
    has_calls = any(isinstance(text, AnnotatedText) and text.calls for text in texts)
    model, tokenizer = loading.load_causal(model_path, torch.float32, has_calls)
    check_context(model, settings)
    if not settings.deepspeed:  # which moves its parts itself
        model.to(arguments.device)
    by_document = not settings.compile and (
        arguments.device.type == "cpu"
        or (arguments.bf16 and not _drops_attention(model) and attention.runs_in_one_kernel(arguments.device))
    )
    isolation = choose_isolation(model, settings.sequence_length, settings.micro_batch_size, by_document)
    training, evaluation = _packed(texts, heldout, tokenizer, isolation, settings)
    check_embedding(model, tokenizer, training.documents, evaluation.documents)
    arguments.max_steps = math.ceil(len(training) / settings.batch_size)
    if settings.lora_rank:
        set_seed(settings.seed)  # adapters begin at random; the Trainer seeds only what comes after it
        model = lora.with_adapters(model, settings.lora_rank, settings.lora_alpha)
        if settings.gradient_checkpointing:
            model.enable_input_require_grads()
    # A compiled model is compiled again for every shape.
    length = settings.sequence_length if settings.compile else None
    trainer = PackedTrainer(
        settings=settings,
        started=started,
        output_dir=output_dir,
        model=model,
        args=arguments,
        data_collator=collator(model, tokenizer, isolation, length),
        train_dataset=training,
        eval_dataset=evaluation,
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def check_context(model: Any, settings: TrainingSettings) -> None:
    """UserError if sequences are longer than the model's context."""
    context, length = loading.context_length(model.config), settings.sequence_length
    if context is not None and length > context:
        raise UserError(
            f"trainer.sequence_length is {length}, more than the model's context; choose at most {context}"
        )


def check_embedding(model: Any, tokenizer: Any, *texts: TokenizedTexts) -> None:
    """UserError if the embedding has no row for a token to train on or to pad with."""
    rows = int(model.config.get_text_config().vocab_size)
    used = [tokenizer.pad_token_id or 0, *(int(tokenized.ids.max()) for tokenized in texts)]
    if max(used) >= rows:
        token = tokenizer.convert_ids_to_tokens(max(used))
        raise UserError(
            f"model: its tokenizer has {token!r} as token {max(used)}, and its embedding {rows} rows; take the token out "
            "of the tokenizer's files (a pad token is not needed), or enlarge the embedding"
        )


def _packed(
    texts: Sequence[str | AnnotatedText],
    heldout: Sequence[str],
    tokenizer: Any,
    isolation: Isolation,
    settings: TrainingSettings,
) -> tuple[PackedTexts, PackedTexts]:
    """The sequences to train and to evaluate on."""
    documents = tokenize(texts, tokenizer)
    order = document_order(len(documents), settings.seed, settings.epochs)
    limit = settings.max_steps * settings.batch_size if settings.max_steps else None
    size = settings.sequence_length
    if isolation == "single":
        train_layout = single(documents.lengths, order, size, limit)
    else:
        train_layout = stream(documents.lengths, order, size, limit)
    # Otherwise processes would get some sequences twice to fill their last micro batch.
    together = settings.micro_batch_size * processes()
    training = PackedTexts(documents, train_layout, settings.train_on_results, multiple=together)
    evaluation = pack_heldout(heldout, tokenizer, isolation, settings)
    if not training.targets or not evaluation.targets:
        raise UserError("training: the texts have no token to predict; give longer texts")
    return training, evaluation


def pack_heldout(
    heldout: Sequence[str], tokenizer: Any, isolation: Isolation, settings: TrainingSettings
) -> PackedTexts:
    """The sequences to evaluate on: every held-out text, or every window of a long one, once."""
    documents, size = tokenize(heldout, tokenizer), settings.sequence_length
    in_order = range(len(documents))
    layout = (
        single(documents.lengths, in_order, size) if isolation == "single" else whole(documents.lengths, size)
    )
    return PackedTexts(documents, layout, multiple=settings.micro_batch_size * processes())


def _drops_attention(model: Any) -> bool:
    """Whether training drops attention weights at random, which the kernel of variable lengths cannot do."""
    return any(getattr(model.config, name, 0) for name in ("attention_dropout", "attn_pdrop"))


def _arguments(
    settings: TrainingSettings, folder: Path, accumulation: int, make: Callable[..., TrainingArguments]
) -> TrainingArguments:
    device = loading.choose_device(settings.device)
    interval = settings.eval_every if settings.save_every is None else settings.save_every
    # Accelerate imports DeepSpeed if it is installed, which warns on machines without a GPU.
    os.environ.setdefault("DS_ACCELERATOR", "cpu" if device == "cpu" else "cuda")
    arguments = make(
        output_dir=str(folder),
        deepspeed=deepspeed_configuration(settings.deepspeed, device) if settings.deepspeed else None,
        use_cpu=device == "cpu",
        bf16=loading.choose_dtype(settings.dtype, device) is torch.bfloat16,
        per_device_train_batch_size=settings.micro_batch_size,
        per_device_eval_batch_size=settings.micro_batch_size,
        gradient_accumulation_steps=accumulation,
        activation_checkpointing=settings.gradient_checkpointing,
        torch_compile=settings.compile,
        optim="adamw_torch" if settings.deepspeed else "adamw_torch_fused",
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        seed=settings.seed,
        data_seed=settings.seed,
        # Texts are shuffled before packing, so that C* and C have the same order.
        train_sampling_strategy="sequential",
        num_train_epochs=1,
        eval_strategy="steps",
        eval_steps=settings.eval_every,
        save_strategy="steps" if interval else "no",
        save_steps=interval or 1,
        logging_steps=settings.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        label_names=["labels"],
        remove_unused_columns=False,
        dataloader_pin_memory=device != "cpu",
        report_to="none",
        disable_tqdm=True,
    )
    contradictions = getattr(getattr(arguments, "hf_deepspeed_config", None), "mismatches", [])
    if contradictions:
        # Each entry is "- ds KEY=VALUE vs hf ARGUMENT=VALUE".
        first = contradictions[0].removeprefix("- ds ").replace(" vs hf ", ", and by the settings ")
        raise UserError(
            f'trainer.deepspeed: {settings.deepspeed} has {first}; write "auto" there or leave it out'
        )
    # One process trains on one device; several devices are several processes, started by a launcher.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments
