"""Finetuning a causal LM on texts with the Hugging Face Trainer (paper, section 4.1 and appendix B).

Texts and settings in, a folder with the best checkpoint out; interrupted at any moment and called again with
the same arguments, it goes on. Knows neither where texts come from nor who follows its logs.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    PrinterCallback,
    TrainingArguments,
    set_seed,
)

from toolformer.calls import START
from toolformer.errors import UserError
from toolformer.loading import choose_device, load_causal, native_bfloat16, number_format, single_token
from toolformer.training import checkpoints, lora
from toolformer.training.data import PackedTexts, document_order, single, stream, whole
from toolformer.training.distributed import agreed_configuration, deepspeed_configuration
from toolformer.training.isolation import attend_by_document, choose_isolation, collator
from toolformer.training.loop import PackedTrainer, finished, perplexity_of
from toolformer.training.progress import Progress
from toolformer.training.settings import TrainingResult, TrainingSettings
from toolformer.training.tokens import AnnotatedText, tokenize

OnLog = Callable[[dict[str, float], int], None]


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

    The model is written to `output_dir/model`, which exists only whole. Checkpoints to resume from live in
    `output_dir/checkpoints` until then. Called again with the same arguments it goes on from the last whole
    checkpoint, or returns the result if the model is there already. Where `max_hours` ended it, the model is in
    `output_dir/model-after-STEPS` instead, and a call with more hours goes on.

    Args:
        model_path: hub name or folder of a causal LM.
        texts: what is trained on, C* (texts with calls) or C (plain ones).
        heldout: plain texts whose perplexity chooses the checkpoint.
        on_log: given metrics and the step: `loss` (nats per token), `perplexity_texts` and `perplexity_calls` (of
            the texts' own tokens and of the calls', as trained on), `learning_rate`, `grad_norm`,
            `tokens_per_second`, `memory_gib`, `heldout_perplexity`. Called in the main process only.
        progress: whether to draw progress bars on stderr.

    Raises:
        UserError: settings that do not fit the model or the number of processes, no texts, no such model or one whose
            tokenizer has no token to start calls with, a folder of another run, or one that another command is
            training in, a full disk, a loss that is no number.
    """
    started = time.monotonic()
    output_dir = Path(output_dir)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    accumulation = settings.accumulation(processes)
    agreed_configuration(settings)  # refused before a folder is claimed for it
    deciding = settings.deciding() | {"model": str(model_path), "processes": processes}
    written = [text if isinstance(text, str) else text.written for text in texts]
    run = checkpoints.fingerprint(deciding, written, heldout)
    folder = output_dir / "checkpoints"
    if done := finished(output_dir, run, settings.max_hours):
        if int(os.environ.get("RANK", "0")) == 0 and done.ended_by_max_hours is None:
            shutil.rmtree(folder, ignore_errors=True)  # of a process that ended between the last two steps
        return done
    checkpoints.claim(folder, run, processes, number_format(settings.dtype, settings.device))
    with checkpoints.alone(folder):
        return _train(
            str(model_path),
            texts,
            heldout,
            settings,
            output_dir,
            on_log,
            progress,
            run,
            started,
            accumulation,
        )


def _train(
    model_path: str,
    texts: Sequence[str | AnnotatedText],
    heldout: Sequence[str],
    settings: TrainingSettings,
    output_dir: Path,
    on_log: OnLog | None,
    progress: bool,
    run: str,
    started: float,
    accumulation: int,
) -> TrainingResult:
    """The training itself, by the one command that holds the folder of its checkpoints."""
    folder = output_dir / "checkpoints"
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if int(os.environ.get("RANK", "0")) == 0:
        checkpoints.remove_checkpoints(folder, keep=settings.keep_checkpoints)
    resume = checkpoints.complete_checkpoints(folder)[-1:]

    arguments = _arguments(settings, folder, accumulation, fresh=not resume)
    # Updates of 1e-5 are lost in bfloat16 weights; only the products are in lower precision.
    set_seed(settings.seed)  # for weights that the folder lacks
    model, tokenizer = load_causal(model_path, torch.float32)
    settings.check_context(_context(model.config))
    if any(isinstance(text, AnnotatedText) and text.calls for text in texts):
        single_token(tokenizer, START, model_path)  # what decoding will watch for
    isolation = choose_isolation(model)
    if isolation == "positions" and not settings.compile:
        attend_by_document(model, choose_device(settings.device))
    documents, evaluated = tokenize(texts, tokenizer), tokenize(heldout, tokenizer)
    order = document_order(len(documents), settings.seed, settings.epochs)
    limit = settings.max_steps * settings.batch_size if settings.max_steps else None
    size = settings.sequence_length
    if isolation == "single":
        train_layout = single(documents.lengths, order, size, limit)
        heldout_layout = single(evaluated.lengths, range(len(evaluated)), size)
    else:
        train_layout = stream(documents.lengths, order, size, limit)
        heldout_layout = whole(evaluated.lengths, size)
    # Several processes would be given some sequences twice to make their last micro batches full.
    together = settings.micro_batch_size * processes
    training = PackedTexts(documents, train_layout, settings.train_on_results, multiple=together)
    evaluation = PackedTexts(evaluated, heldout_layout, multiple=together)
    if not training.targets or not evaluation.targets:
        raise UserError("training: the texts have no token to predict; give longer texts")
    arguments.max_steps = math.ceil(len(training) / settings.batch_size)
    if settings.lora_rank:
        set_seed(settings.seed)  # adapters begin at random; the Trainer seeds only what comes after it
        model = lora.with_adapters(model, settings.lora_rank, settings.lora_alpha)
        if settings.gradient_checkpointing:
            model.enable_input_require_grads()

    before = checkpoints.read_json(resume[0] / checkpoints.MARK) or {} if resume else {}
    trainer = PackedTrainer(
        run=run,
        settings=settings,
        started=started - float(before.get("seconds", 0.0)),
        output_dir=output_dir,
        model=model,
        args=arguments,
        # A compiled model is compiled anew for every shape.
        data_collator=collator(model, tokenizer, isolation, size if settings.compile else None),
        train_dataset=training,
        eval_dataset=evaluation,
        processing_class=tokenizer,
        compute_metrics=perplexity_of,
    )
    trainer.remove_callback(PrinterCallback)
    deadline = trainer.started + 3600 * settings.max_hours if settings.max_hours else math.inf
    recorder = Progress(
        training, settings.batch_size, settings.micro_batch_size * processes, on_log, progress, deadline
    )
    trainer.add_callback(recorder)
    try:
        trainer.go_on(resume[0] if resume else None)
    finally:
        recorder.close()
    return trainer.finish(training.tokens_before(trainer.state.global_step * settings.batch_size))


def _arguments(settings: TrainingSettings, folder: Path, accumulation: int, fresh: bool) -> TrainingArguments:
    device = choose_device(settings.device)
    bfloat16 = settings.dtype == "bfloat16" or (settings.dtype == "auto" and native_bfloat16(device))
    interval = settings.checkpoint_interval
    # Accelerate imports DeepSpeed wherever it is installed, and that warns of a machine without a GPU.
    os.environ.setdefault("DS_ACCELERATOR", "cpu" if device == "cpu" else "cuda")
    arguments = TrainingArguments(
        output_dir=str(folder),
        deepspeed=deepspeed_configuration(settings, device) if settings.deepspeed else None,
        use_cpu=device == "cpu",
        bf16=bfloat16,
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
        # The texts are shuffled before they are packed, so that C* and C come in one order.
        train_sampling_strategy="sequential",
        num_train_epochs=1,
        eval_strategy="steps",
        eval_steps=settings.eval_every,
        eval_on_start=fresh,
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
    # One process trains on one device; several devices are several processes, started by a launcher.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def _context(config: Any) -> int | None:
    sizes = [getattr(config, name, None) for name in ("max_position_embeddings", "n_positions")]
    return min([size for size in sizes if isinstance(size, int) and size > 0], default=None)
