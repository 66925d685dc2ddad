"""Finetuning a causal LM on texts with the Hugging Face Trainer (paper, section 4.1 and appendix B)."""

import hashlib
import json
import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers import TrainingArguments, set_seed

from toolformer.errors import UserError
from toolformer.lm import devices, loading
from toolformer.training import checkpoints, lora, losses
from toolformer.training.data import PackedTexts, one_per_sequence, whole
from toolformer.training.distributed import deepspeed_configuration, processes, rank
from toolformer.training.document_masks import Isolation, Probe, collator
from toolformer.training.loop import PackedTrainer
from toolformer.training.objective import LanguageModelling, Objective
from toolformer.training.progress import OnLog
from toolformer.training.settings import AUTO_BATCHES, TrainingResult, TrainingSettings
from toolformer.training.tokens import AnnotatedText, TokenizedTexts, tokenize

log = logging.getLogger(__name__)

PAPER_RATE, PAPER_PARAMETERS = 1e-5, loading.PARAMETERS["EleutherAI/gpt-j-6b"]
"""The paper's learning rate, and the parameters of GPT-J."""
MAX_RATE = 1e-4
"""The highest learning rate that a small model is given."""
LORA_FACTOR = 10
"""How much higher that of adapters is."""
EVALUATIONS = 10
"""Held-out perplexities of a training whose `eval_every` is null."""
AUTO_STEPS = 50
"""Steps that `batch_size=auto` leaves at least, if the texts suffice."""
FEW_STEPS = 20
"""Steps below which that is advised against."""


def train(
    model_path: str | Path,
    texts: Sequence[str | AnnotatedText],
    heldout: Sequence[str],
    settings: TrainingSettings,
    output_dir: Path,
    on_log: OnLog | None = None,
    progress: bool = True,
    objective: Callable[[torch.device], Objective] = LanguageModelling,
) -> TrainingResult:
    """Finetunes a model on texts and keeps the checkpoint with the lowest held-out perplexity.

    Called again with the same arguments, it resumes from the last intact checkpoint, or returns the result if the training
    is finished; `training/checkpoints.py` has the folders. One command at a time may train in a folder.

    Args:
        model_path: hub name or folder of a causal LM.
        texts: C* (texts with calls) or C (plain ones).
        heldout: plain texts whose perplexity chooses the checkpoint.
        output_dir: of one model, texts and settings: others need another folder.
        on_log: called with metrics and the step, in the main process: `loss` (nats per token), the objective's metrics,
            `learning_rate`, `grad_norm`, `tokens_per_second`, `memory_gib`, `heldout_perplexity`.
        progress: whether to draw progress bars on stderr.
        objective: makes what is minimised, on a device.

    UserError if model, settings, texts and folder do not fit together, for a full disk, or a loss that is not finite.
    """
    started = time.monotonic()
    output_dir = Path(output_dir)
    folder = output_dir / checkpoints.CHECKPOINTS
    settings.accumulation(processes())
    if finished := checkpoints.trained(output_dir / checkpoints.MODEL):
        if rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)  # of a process that ended between the last two steps
        return finished
    settings = with_batch_size(settings, texts, str(model_path))
    accumulation = settings.accumulation(processes())
    rate = _learning_rate(settings, str(model_path))
    arguments = _arguments(settings, rate, folder, accumulation)
    resume = None
    if rank() == 0:
        content = json.dumps([list(texts), list(heldout)], default=asdict)
        digest = hashlib.sha256(content.encode()).hexdigest()
        dtype = devices.dtype_name(settings.dtype, settings.device)
        owner = {
            "texts": digest[:16],
            "processes": processes(),
            "dtype": dtype,
            "deepspeed": settings.deepspeed,
        }
        checkpoints.check_owner(folder, owner)
        resume = checkpoints.latest_intact(folder)
    resume = broadcast_object_list([resume])[0]
    arguments.eval_on_start = resume is None
    trainer = _trainer(str(model_path), texts, heldout, settings, arguments, output_dir, started, objective)
    return trainer.run_to_end(resume, on_log, progress)


def _trainer(
    model_path: str,
    texts: Sequence[str | AnnotatedText],
    heldout: Sequence[str],
    settings: TrainingSettings,
    arguments: TrainingArguments,
    output_dir: Path,
    started: float,
    make_objective: Callable[[torch.device], Objective],
) -> PackedTrainer:
    """Loads the model, packs the texts, and makes the Trainer."""
    set_seed(settings.seed)  # for weights missing in the folder
    # bfloat16 weights would lose updates of 1e-5; only products, and weights that are not trained, are in lower precision.
    dtype = torch.bfloat16 if settings.lora_rank and arguments.bf16 else torch.float32
    has_calls = any(isinstance(text, AnnotatedText) and text.calls for text in texts)
    model, tokenizer = loading.load_causal(model_path, dtype, has_calls)
    vocabulary = model.config.get_text_config().vocab_size
    start_token = loading.start_token(tokenizer, vocabulary, model_path) if has_calls else None
    check_context(model, settings)
    trained = model
    if settings.lora_rank:
        set_seed(settings.seed)  # adapters begin at random; the Trainer seeds only what comes after it
        trained = lora.with_adapters(model, settings.lora_rank, settings.lora_alpha)
        if settings.gradient_checkpointing:
            trained.enable_input_require_grads()
    if not settings.deepspeed:  # which moves its parts itself
        model.to(arguments.device)
    by_document = not settings.compile and (
        arguments.device.type == "cpu" or (arguments.bf16 and not _drops_attention(model))
    )
    products = torch.bfloat16 if arguments.bf16 else torch.float32
    probe = Probe(model, settings.sequence_length, settings.micro_batch_size)
    isolation = probe.isolation(by_document, products)
    chunks = losses.chunks(model, settings.micro_batch_size * settings.sequence_length)
    if chunks > 1 and not probe.has_separate_head():
        chunks = 1
    losses.return_losses(model, chunks, start_token)
    objective = make_objective(arguments.device)
    # Otherwise processes would get some sequences twice to fill their last micro batch.
    together = settings.micro_batch_size * processes()
    training = objective.examples(texts, tokenizer, isolation, settings, together)
    evaluation = _pack_heldout(heldout, tokenizer, isolation, settings, together)
    if not training.targets or not evaluation.targets:
        raise UserError("training: the texts have no token to predict; give longer texts")
    check_embedding(model, tokenizer, training.documents, evaluation.documents)
    _plan(arguments, training, settings)
    # A compiled model is compiled again for every shape.
    length = settings.sequence_length if settings.compile else None
    return PackedTrainer(
        settings=settings,
        objective=objective,
        started=started,
        output_dir=output_dir,
        start_token=start_token,
        model=trained,
        args=arguments,
        data_collator=collator(model, tokenizer, isolation, length),
        train_dataset=training,
        eval_dataset=evaluation,
        processing_class=tokenizer,
    )


def _plan(arguments: TrainingArguments, training: PackedTexts, settings: TrainingSettings) -> None:
    """Sets the number of steps and the steps between evaluations, and logs them."""
    steps = math.ceil(len(training) / settings.batch_size)
    every = settings.eval_every or math.ceil(steps / EVALUATIONS)
    arguments.max_steps, arguments.eval_steps, arguments.save_steps = steps, every, every
    if rank() == 0:
        log.info(
            "train: %d steps of %d sequence%s, %d tokens in all; held-out perplexity every %s",
            *(steps, settings.batch_size, "s" * (settings.batch_size > 1), training.tokens),
            "step" if every == 1 else f"{every} steps",
        )


def with_batch_size(
    settings: TrainingSettings, texts: Sequence[str | AnnotatedText], model_path: str
) -> TrainingSettings:
    """The settings, with a number of sequences per step where that is auto, which is logged; a micro batch has at most as many.

    It is by the texts without their calls, so that C* and C have the same.
    """
    if settings.batch_size != "auto":
        return settings
    epochs = settings.epochs
    if epochs is None:  # then max_steps is the number of steps
        return replace(settings, batch_size=settings.most_sequences)
    plain = [text if isinstance(text, str) else text.plain for text in texts]
    tokens = epochs * len(tokenize(plain, loading.load_tokenizer(model_path)).ids)
    sequences = math.ceil(tokens / settings.sequence_length)
    size = next((size for size in AUTO_BATCHES if sequences >= size * AUTO_STEPS), AUTO_BATCHES[-1])
    if rank() == 0:
        log.info(
            "train: trainer.batch_size=auto is %d, because the texts without calls fill %d sequences of %d tokens (trainer.epochs=%d)",
            *(size, sequences, settings.sequence_length, epochs),
        )
        if sequences < FEW_STEPS:
            log.warning(
                "train: these are few steps; if the model learns too little, give more texts, or trainer.epochs=%d",
                math.ceil(epochs * FEW_STEPS / sequences),
            )
    return replace(settings, batch_size=size, micro_batch_size=min(settings.micro_batch_size, size))


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
            f"model: its tokenizer gives {token!r} the id {max(used)}, but its embedding has only {rows} rows; remove the token "
            "from the tokenizer's files (a pad token is not needed), or enlarge the embedding"
        )


def _pack_heldout(
    heldout: Sequence[str], tokenizer: Any, isolation: Isolation, settings: TrainingSettings, multiple: int
) -> PackedTexts:
    """The sequences to evaluate on: every held-out text, or every window of a long one, once."""
    documents, size = tokenize(heldout, tokenizer, heldout=True), settings.sequence_length
    in_order = range(len(documents))
    layout = (
        one_per_sequence(documents.lengths, in_order, size)
        if isolation == "single"
        else whole(documents.lengths, size)
    )
    return PackedTexts(documents, layout, multiple=multiple)


def _drops_attention(model: Any) -> bool:
    """Whether training drops attention weights at random, which the kernel of variable lengths cannot do."""
    return any(getattr(model.config, name, 0) for name in ("attention_dropout", "attn_pdrop"))


def scaled_learning_rate(parameters: int, is_lora: bool = False) -> float:
    """The paper's learning rate for a model of another size than GPT-J: smaller models need a higher one, adapters too."""
    rate = min(PAPER_RATE * math.sqrt(PAPER_PARAMETERS / parameters), MAX_RATE)
    return float(f"{rate * (LORA_FACTOR if is_lora else 1):.1e}")


def _learning_rate(settings: TrainingSettings, model_path: str) -> float:
    """The configured learning rate, else one for the model's size; logs the latter."""
    if settings.learning_rate is not None:
        return settings.learning_rate
    parameters = loading.count_parameters(model_path)
    rate = scaled_learning_rate(parameters, bool(settings.lora_rank))
    if rank() == 0:
        log.info("train: learning rate %g, for %.3g million parameters", rate, parameters / 1e6)
    return rate


def _arguments(
    settings: TrainingSettings, learning_rate: float, folder: Path, accumulation: int
) -> TrainingArguments:
    device = devices.choose_device(settings.device)
    # Accelerate imports DeepSpeed if it is installed, which warns on machines without a GPU.
    os.environ.setdefault("DS_ACCELERATOR", "cpu" if device == "cpu" else "cuda")
    arguments = TrainingArguments(
        output_dir=str(folder),
        deepspeed=deepspeed_configuration(settings.deepspeed, device) if settings.deepspeed else None,
        use_cpu=device == "cpu",
        bf16=devices.choose_dtype(settings.dtype, device) is torch.bfloat16,
        per_device_train_batch_size=settings.micro_batch_size,
        per_device_eval_batch_size=settings.micro_batch_size,
        gradient_accumulation_steps=accumulation,
        activation_checkpointing=settings.gradient_checkpointing,
        torch_compile=settings.compile,
        optim="adamw_torch" if settings.deepspeed else "adamw_torch_fused",
        learning_rate=learning_rate,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        seed=settings.seed,
        data_seed=settings.seed,
        # Texts are shuffled before packing, so that C* and C have the same order.
        train_sampling_strategy="sequential",
        num_train_epochs=1,
        # `_plan` sets the steps; until then the Trainer would compare its own with `logging_steps`.
        eval_steps=1,
        save_steps=1,
        eval_strategy="steps",
        save_strategy="steps",  # at evaluations; `Progress` adds those of trainer.save_every
        # DeepSpeed cannot load a best model from its weights alone.
        save_only_model=settings.save_every == 0 and not settings.deepspeed,
        load_best_model_at_end=True,
        metric_for_best_model="perplexity",
        greater_is_better=False,
        restore_callback_states_from_checkpoint=True,
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
