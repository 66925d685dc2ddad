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
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    EvalPrediction,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)
from transformers import logging as transformers_logging

from toolformer.errors import UserError
from toolformer.language_model import choose_device, locate, native_bfloat16
from toolformer.training import checkpoints, lora
from toolformer.training.data import IGNORED, PackedTexts, document_order, single, stream, whole
from toolformer.training.distributed import deepspeed_configuration
from toolformer.training.isolation import attend_by_document, choose_isolation, collator
from toolformer.training.progress import Progress
from toolformer.training.settings import TrainingResult, TrainingSettings
from toolformer.training.tokens import TEXT, AnnotatedText, tokenize

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
    checkpoint, or returns the result if the model is there already.

    Args:
        model_path: hub name or folder of a causal LM.
        texts: what is trained on, C* (texts with calls) or C (plain ones).
        heldout: plain texts whose perplexity chooses the checkpoint.
        on_log: given metrics and the step: `loss` (nats per token), `perplexity_texts` and `perplexity_calls` (of
            the texts' own tokens and of the calls', as trained on), `learning_rate`, `grad_norm`,
            `tokens_per_second`, `memory_gib`, `heldout_perplexity`. Called in the main process only.
        progress: whether to draw progress bars on stderr.

    Raises:
        UserError: settings that do not fit the model or the number of processes, no texts, no such model, a
            folder of another run, or one that another command is training in, a full disk, a loss that is no number.
    """
    started = time.monotonic()
    output_dir = Path(output_dir)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    accumulation = settings.accumulation(processes)
    deciding = settings.deciding() | {"model": str(model_path), "processes": processes}
    written = [text if isinstance(text, str) else text.written for text in texts]
    run = checkpoints.fingerprint(deciding, written, heldout)
    folder = output_dir / "checkpoints"
    if finished := _finished(output_dir, run):
        if int(os.environ.get("RANK", "0")) == 0:
            shutil.rmtree(folder, ignore_errors=True)  # of a process that ended between the last two steps
        return finished
    checkpoints.claim(folder, run)
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
    model, tokenizer = _load(model_path)
    settings.check_context(_context(model.config))
    isolation = choose_isolation(model)
    if isolation == "positions" and not settings.compile:
        attend_by_document(model)
    documents = tokenize(texts, tokenizer)
    order = document_order(len(documents), settings.seed, settings.epochs)
    limit = settings.max_steps * settings.batch_size if settings.max_steps else None
    layout = single if isolation == "single" else stream
    training = PackedTexts(
        documents,
        layout(documents.lengths, order, settings.sequence_length, limit),
        settings.train_on_results,
    )
    evaluated = tokenize(heldout, tokenizer)
    size = settings.sequence_length
    one_each = isolation == "single"
    evaluation = PackedTexts(
        evaluated,
        single(evaluated.lengths, range(len(evaluated)), size)
        if one_each
        else whole(evaluated.lengths, size),
    )
    if not training.targets or not evaluation.targets:
        raise UserError("training: the texts have no token to predict; give longer texts")
    arguments.max_steps = math.ceil(len(training) / settings.batch_size)
    if settings.lora_rank:
        model = lora.with_adapters(model, settings.lora_rank, settings.lora_alpha)
        if settings.gradient_checkpointing:
            model.enable_input_require_grads()

    before = checkpoints.read_json(resume[0] / checkpoints.MARK) or {} if resume else {}
    trainer = _Trainer(
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
        compute_metrics=_perplexity,
    )
    trainer.remove_callback(PrinterCallback)
    deadline = trainer.started + 3600 * settings.max_hours if settings.max_hours else math.inf
    recorder = Progress(
        training, settings.batch_size, settings.micro_batch_size * processes, on_log, progress, deadline
    )
    trainer.add_callback(recorder)
    try:
        trainer.train(resume_from_checkpoint=str(resume[0]) if resume else None)
    finally:
        recorder.close()
    return trainer.finish(training.tokens_before(trainer.state.global_step * settings.batch_size))


class _Trainer(Trainer):
    """The Trainer, with whole checkpoints, the best model's weights kept apart, and perplexity by token."""

    def __init__(
        self,
        *,
        run: str,
        settings: TrainingSettings,
        started: float,
        output_dir: Path,
        **arguments: Any,
    ) -> None:
        self.model_config = arguments["model"].config
        self.model_use_cache = getattr(self.model_config, "use_cache", None)
        super().__init__(**arguments, compute_loss_func=self._mean_loss)
        self.run = run
        self.settings = settings
        self.started = started
        self.folder = output_dir
        self.checkpoints = output_dir / "checkpoints"
        # Read once: every process must decide alike whether a model is better.
        self.best = checkpoints.best_record(output_dir, run)
        # Summed loss in nats and number of targets since the last log, [texts or calls, 2].
        self.sums = torch.zeros(2, 2, dtype=torch.float64)

    def evaluate(self, *arguments: Any, **options: Any) -> dict[str, float]:
        """Held-out perplexity; a model that is better than those before it is kept."""
        metrics: dict[str, float] = super().evaluate(*arguments, **options)
        perplexity, step = metrics["eval_perplexity"], self.state.global_step
        if step > 0 and perplexity < self.best.get("heldout_perplexity", math.inf):
            self.best = {"run": self.run, "step": step, "heldout_perplexity": perplexity}
            self._keep_best()
        if self.settings.early_stopping:
            since = [
                e
                for e in self.state.log_history
                if "eval_perplexity" in e and e["step"] > self.best.get("step", 0)
            ]
            self.control.should_training_stop |= len(since) >= self.settings.early_stopping
        return metrics

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """The mean loss of all targets."""
        self._kinds = inputs.pop("kinds")
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def _mean_loss(
        self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Every token's loss is computed once: its sum is trained on, and what texts and calls each gave is kept."""
        losses, targets = _losses(outputs.logits, labels), labels[:, 1:] != IGNORED
        kinds = self._kinds[:, 1:]
        with torch.no_grad():
            for row, of_row in enumerate((kinds == TEXT, kinds != TEXT)):
                wanted = of_row & targets
                self.sums[row] += torch.stack([losses[wanted].double().sum(), wanted.sum().double()]).cpu()
        return losses.sum() / (targets.sum() if num_items_in_batch is None else num_items_in_batch)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds the perplexities of texts and of calls to the logs of a training step."""
        if "loss" in logs:
            sums = self.accelerator.reduce(self.sums.to(self.args.device), reduction="sum").cpu()
            self.sums.zero_()
            for name, (total, count) in zip(("texts", "calls"), sums.tolist(), strict=True):
                if count:
                    logs[f"perplexity_{name}"] = math.exp(min(total / count, 700.0))
        super().log(logs, start_time)

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> Any:
        """Linear warm-up and what the settings say comes after it."""
        if self.lr_scheduler is None:
            factor = partial(self.settings.learning_rate_factor, steps=num_training_steps)
            self.lr_scheduler = LambdaLR(cast(Optimizer, optimizer or self.optimizer), factor)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    @torch.no_grad()
    def prediction_step(
        self,
        model: Any,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Per sequence: summed loss in nats and number of targets, [sequences, 2]."""
        inputs = self._prepare_inputs(inputs)
        labels = inputs.pop("labels")
        inputs.pop("kinds")
        with self.compute_loss_context_manager():
            logits = model(**inputs).logits
        parts = zip(logits, labels, strict=True)  # in float32 one sequence at a time
        losses = torch.cat([_losses(of_one[None], wanted[None]) for of_one, wanted in parts])
        targets = labels[:, 1:] != IGNORED
        rows = torch.stack([losses.double().sum(1), targets.sum(1).double()], dim=1)
        return None, rows, labels

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        checkpoint = self.checkpoints / f"checkpoint-{self.state.global_step}"
        with checkpoints.saving(self.checkpoints, partial=checkpoint):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                checkpoints.mark_complete(checkpoint, {"seconds": time.monotonic() - self.started})
                checkpoints.remove_checkpoints(self.checkpoints, keep=self.settings.keep_checkpoints)

    def _keep_best(self) -> None:
        partial = self.folder / "best.partial"
        with checkpoints.saving(self.folder, partial):
            # The Trainer switched the cache off; a model that generates wants it.
            self.model_config.use_cache = self.model_use_cache
            if lora.is_adapted(self.model):
                if self.is_world_process_zero():
                    inner, weights = lora.merged(self.model)
                    inner.save_pretrained(str(partial), state_dict=weights)
                    cast(Any, self.processing_class).save_pretrained(str(partial))
            else:
                self.save_model(str(partial), _internal_call=True)
            self.model_config.use_cache = False
            if self.is_world_process_zero():
                (partial / "training_args.bin").unlink(missing_ok=True)
                checkpoints.write_json(partial / checkpoints.RECORD, self.best)
                checkpoints.replace_best(self.folder, partial, self.best["step"])
        self.accelerator.wait_for_everyone()

    def finish(self, tokens: int) -> TrainingResult:
        """Gives the best model its final name and removes what was only needed to get there."""
        if not self.best:
            raise UserError(
                "training: the held-out perplexity is no finite number; lower trainer.learning_rate"
            )
        if self.is_world_process_zero():
            initial = next(entry for entry in self.state.log_history if "eval_perplexity" in entry)
            best = self.folder / f"best-{self.best['step']}"
            record = self.best | {
                "initial_heldout_perplexity": initial["eval_perplexity"],
                "steps": self.state.global_step,
                "tokens": tokens,
                "seconds": time.monotonic() - self.started,
            }
            with checkpoints.saving(self.folder, partial=None):
                checkpoints.write_json(best / checkpoints.RECORD, record)
                best.rename(self.folder / "model")
            for left_over in (self.checkpoints, *self.folder.glob("best*")):
                shutil.rmtree(left_over, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        result = _finished(self.folder, self.best["run"])
        if result is None:
            raise UserError(f"training: {self.folder / 'model'} is gone already; run again")
        return result


def _losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """[sequences, tokens - 1]: the loss of each target in nats, in float32; 0 where there is none."""
    # The labels are moved, not the logits: those would be copied.
    following = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), following.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return losses.view(labels.shape)[:, :-1]


def _finished(output_dir: Path, run: str) -> TrainingResult | None:
    model = output_dir / "model"
    if not model.exists():
        return None
    record = checkpoints.read_json(model / checkpoints.RECORD) or {}
    if record.pop("run", None) != run:
        raise UserError(f"training: {model} is the model of another run; remove it or name another folder")
    return TrainingResult(model_path=model, best_step=record.pop("step"), **record)


def _perplexity(prediction: EvalPrediction) -> dict[str, float]:
    loss, targets = prediction.predictions.sum(axis=0)  # type: ignore[union-attr]
    # Beyond this a float overflows; the comparison with other checkpoints needs no more.
    return {"perplexity": math.exp(min(loss / targets, 700.0)) if math.isfinite(loss) else math.nan}


def _arguments(settings: TrainingSettings, folder: Path, accumulation: int, fresh: bool) -> TrainingArguments:
    device = choose_device(settings.device)
    bfloat16 = settings.dtype == "bfloat16" or (settings.dtype == "auto" and native_bfloat16(device))
    interval = settings.checkpoint_interval
    # Accelerate imports DeepSpeed wherever it is installed, and that warns of a machine without a GPU.
    os.environ.setdefault("DS_ACCELERATOR", "cpu" if device == "cpu" else "cuda")
    arguments = TrainingArguments(
        output_dir=str(folder),
        deepspeed=deepspeed_configuration(settings.deepspeed, device) if settings.deepspeed else None,
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


def _load(model_path: str) -> tuple[Any, Any]:
    location = locate(model_path)
    transformers_logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(location, use_fast=True, trust_remote_code=False)
        # Updates of 1e-5 are lost in bfloat16 weights; only the products are in lower precision.
        model = AutoModelForCausalLM.from_pretrained(
            location, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
        )
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise UserError(
            f"model: {model_path} cannot be loaded as a causal language model: {reason}"
        ) from error
    return model, tokenizer


def _context(config: Any) -> int | None:
    sizes = [getattr(config, name, None) for name in ("max_position_embeddings", "n_positions")]
    return min([size for size in sizes if isinstance(size, int) and size > 0], default=None)
