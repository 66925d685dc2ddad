"""The Hugging Face Trainer with atomic checkpoints, a separate best model, and perplexity per token.

`HeldOutTrainer` has what every objective needs; `PackedTrainer` minimises the loss of texts.
"""

import math
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import AutoModelForCausalLM, EvalPrediction, Trainer, TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from toolformer.errors import UserError
from toolformer.lm import loading
from toolformer.storage import into_place
from toolformer.training import checkpoints, lora
from toolformer.training.data import IGNORED
from toolformer.training.distributed import not_spread
from toolformer.training.losses import return_losses, token_losses
from toolformer.training.progress import Examples, OnLog, Progress
from toolformer.training.settings import TrainingResult, TrainingSettings
from toolformer.training.tokens import CALL, RESULT, TEXT

# Nats per token by which rounding may make a saved model differ from the trained one.
_ROUNDING, _ROUNDING_BF16 = 5e-3, 0.1


class HeldOutTrainer(Trainer):
    """A Trainer that is evaluated on `PackedTexts`, keeps a model, and resumes.

    Args:
        started: start of the command (time.monotonic, in seconds).
        output_dir: the folder for models.
        examples: what it is trained on, for the progress in tokens.
        keep_last: whether the last model is kept, whatever its held-out perplexity.
        arguments: the Trainer's.
    """

    def __init__(
        self,
        *,
        settings: TrainingSettings,
        started: float,
        output_dir: Path,
        examples: Examples,
        keep_last: bool = False,
        **arguments: Any,
    ) -> None:
        self.model_config = arguments["model"].config
        self.model_use_cache = getattr(self.model_config, "use_cache", None)
        return_losses(arguments["model"], settings.micro_batch_size * settings.sequence_length)
        super().__init__(**arguments)
        self.compute_metrics = perplexity_of
        self.settings = settings
        self.started = started
        self.folder = output_dir
        self.examples = examples
        self.keep_last = keep_last
        self.checkpoints = output_dir / checkpoints.FOLDER
        # Read once: all processes must agree on whether a model is better.
        self.best = checkpoints.best_record(output_dir)
        # Of the last evaluation: tokens [1, tokens] and their losses in nats [tokens - 1].
        self.first_document: tuple[torch.Tensor, torch.Tensor] | None = None

    def evaluate(self, *arguments: Any, **options: Any) -> dict[str, float]:
        """Held-out perplexity; the best model so far is kept, or the last one."""
        self.first_document = None
        metrics: dict[str, float] = super().evaluate(*arguments, **options)
        perplexity, step = metrics["eval_perplexity"], self.state.global_step
        is_best = perplexity < self.best.get("heldout_perplexity", math.inf)
        if step > 0 and (is_best or (self.keep_last and math.isfinite(perplexity))):
            self.best = {"step": step, "heldout_perplexity": perplexity}
            self._keep_best()
        self.control.should_training_stop |= self._is_enough(self.state)
        return metrics

    def _is_enough(self, state: TrainerState) -> bool:
        """Whether early stopping ends the training: too many evaluations without a better model."""
        best = self.best.get("step", 0)
        since = [entry for entry in state.log_history if "eval_perplexity" in entry and entry["step"] > best]
        return bool(self.settings.early_stopping) and len(since) >= (self.settings.early_stopping or 0)

    def run_to_end(self, checkpoint: Path | None, on_log: OnLog | None, progress: bool) -> TrainingResult:
        """Trains from the start or from a checkpoint, possibly one where early stopping ended the run."""
        if checkpoint:  # earlier time counts
            self.started -= float(checkpoints.read_json(checkpoint / checkpoints.MANIFEST)["seconds"])
        hours = self.settings.max_hours
        recorder = Progress(
            self.examples,
            self.settings,
            on_log,
            progress,
            deadline=self.started + 3600 * hours if hours else math.inf,
        )
        self.add_callback(recorder)
        state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME)) if checkpoint else None
        try:
            if state and self._is_enough(state):
                self.state = state
            else:
                self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        finally:
            recorder.bar.close()
        return self._finish(recorder.tokens_after(self.state.global_step))

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> Any:
        """Linear warm-up, then the schedule of the settings."""
        if self.lr_scheduler is None:
            factor = partial(self.settings.learning_rate_factor, steps=num_training_steps)
            self.lr_scheduler = LambdaLR(cast(Optimizer, optimizer or self.optimizer), factor)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    @torch.no_grad()
    def prediction_step(
        self, model: Any, inputs: dict[str, Any], *_: Any, **__: Any
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Per sequence: summed loss in nats and number of targets, [sequences, 2]."""
        inputs = self._prepare_inputs(inputs)
        labels = inputs.pop("labels")
        inputs.pop("kinds")
        with self.compute_loss_context_manager():
            losses = model(**inputs, targets=labels)["losses"]
        targets = labels[:, 1:] != IGNORED
        if self.first_document is None:
            length = int(targets[0].cumprod(0).sum())
            self.first_document = inputs["input_ids"][:1, : length + 1].cpu(), losses[0, :length].cpu()
        rows = torch.stack([losses.double().sum(1), targets.sum(1).double()], dim=1)
        return None, rows, labels

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        checkpoint = self.checkpoints / f"checkpoint-{self.state.global_step}"
        loading.release_memory()  # blocks of changing sizes leave gaps, a few megabytes each step
        with checkpoints.saving(checkpoint):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                so_far = {
                    "seconds": time.monotonic() - self.started,
                    "sha256": checkpoints.hashes(checkpoint),
                }
                checkpoints.write_last(checkpoint, checkpoints.MANIFEST, so_far)
                checkpoints.remove_checkpoints(self.checkpoints, keep=self.settings.keep_checkpoints)

    def _keep_best(self) -> None:
        """Saves the model as the best one; earlier ones are removed once it is whole."""
        best, is_first = self._best_folder, self.is_world_process_zero()
        with checkpoints.saving(best):
            if is_first:
                (best / checkpoints.RECORD).unlink(missing_ok=True)  # it counts again when it is whole
            self._save_weights(best)
            if is_first:
                (best / "training_args.bin").unlink(missing_ok=True)
                self._compare(best)
                self.best["sha256"] = checkpoints.hashes(best)
                checkpoints.write_last(best, checkpoints.RECORD, self.best)
                for path in self.folder.glob("best-*"):
                    if path != best:
                        shutil.rmtree(path, ignore_errors=True)
        self.accelerator.wait_for_everyone()

    def _save_weights(self, folder: Path) -> None:
        """Saves the model, adapters merged, and the tokenizer."""
        # The Trainer switched the cache off; generating needs it.
        self.model_config.use_cache = self.model_use_cache
        if not self.settings.lora_rank:
            self.save_model(str(folder), _internal_call=True)
        elif self.is_world_process_zero():
            inner, weights = lora.merged(self.model)
            inner.save_pretrained(str(folder), state_dict=weights)
            cast(Any, self.processing_class).save_pretrained(str(folder))
        self.model_config.use_cache = False

    @torch.no_grad()
    def _compare(self, folder: Path) -> None:
        """UserError unless the saved model gives one document the losses that were just evaluated."""
        assert self.first_document is not None
        ids, expected = self.first_document
        loading.release_memory()  # a second model is loaded
        # In main memory, where it fit before training; not spread over the processes, which would wait for each other.
        with torch.random.fork_rng(devices=()), not_spread(self.args):
            saved = loading.load_weights(AutoModelForCausalLM, "causal language", str(folder), torch.float32)
        # In the precision of the evaluation: bfloat16 alone changes a loss by more than a tenth of a nat.
        with torch.autocast("cpu", torch.bfloat16, enabled=self.args.bf16):
            losses = token_losses(saved.eval()(ids, use_cache=False).logits, ids)[0]
        difference = float((losses - expected).abs().mean())
        if not difference <= (_ROUNDING_BF16 if self.args.bf16 else _ROUNDING):
            raise UserError(
                f"training: the model saved in {folder} is not the trained one (a token's loss differs by "
                f"{difference:.2g} nats); {'leave trainer.lora_rank out' if self.settings.lora_rank else 'choose another model'}"
            )

    @property
    def _best_folder(self) -> Path:
        """Folder of the best model so far."""
        return self.folder / f"best-{self.best['step']}"

    def _finish(self, tokens: int) -> TrainingResult:
        """Publishes the best model and reads its record, as every later call does."""
        if not self.best:
            raise UserError("training: the held-out perplexity is not finite; lower trainer.learning_rate")
        if self.is_world_process_zero():
            self._publish(tokens)
        self.accelerator.wait_for_everyone()
        result = checkpoints.finished(self.folder, self.settings.max_hours)
        if result is None:
            raise UserError(f"training: the model in {self.folder} is gone already; run again")
        return result

    def _publish(self, tokens: int) -> None:
        """Gives the best model its final name and removes the rest; a copy where `max_hours` ended the training."""
        # The other reasons to end are the number of steps and early stopping.
        cut_short = self.state.global_step < self.state.max_steps and not self._is_enough(self.state)
        initial = next(entry for entry in self.state.log_history if "eval_perplexity" in entry)
        record = self.best | {
            "initial_heldout_perplexity": initial["eval_perplexity"],
            "steps": self.state.global_step,
            "tokens": tokens,
            "seconds": time.monotonic() - self.started,
            "ended_by_max_hours": self.settings.max_hours if cut_short else None,
        }
        model, name = self._best_folder, checkpoints.MODEL
        partial = self.folder / "copy.partial"
        with checkpoints.saving(partial):
            checkpoints.write_json(model / checkpoints.RECORD, record)
            if cut_short:  # the training itself stays as it is
                shutil.copytree(model, partial, dirs_exist_ok=True)
                model, name = partial, f"{checkpoints.CUT_SHORT}{self.state.global_step}"
            shutil.rmtree(self.folder / name, ignore_errors=True)
            into_place(model, self.folder / name)
        if not cut_short:
            for left_over in (self.checkpoints, *self.folder.glob("best*"), partial):
                shutil.rmtree(left_over, ignore_errors=True)


class PackedTrainer(HeldOutTrainer):
    """The Trainer for `PackedTexts`: the mean loss of their targets."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments, examples=arguments["train_dataset"], compute_loss_func=self._mean_loss)
        # Summed loss in nats and number of tokens since the last log, [texts, calls or results; 2].
        self.sums = torch.zeros(3, 2, dtype=torch.float64, device=self.args.device)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        """The mean loss of all targets."""
        self._kinds = inputs.pop("kinds")
        # Results are measured even where they are not targets.
        inputs["targets"] = inputs["labels"].where(self._kinds != RESULT, inputs["input_ids"])
        return super().compute_loss(model, inputs, *arguments, **options)

    def _mean_loss(
        self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """The mean loss of the targets; also sums the losses of texts, calls and results (even if not targets)."""
        losses = outputs["losses"]
        targets, kinds = labels[:, 1:] != IGNORED, self._kinds[:, 1:]
        with torch.no_grad():  # on the device, without waiting
            for row, kind in enumerate((TEXT, CALL, RESULT)):
                counted = (kinds == kind) & (targets | (kinds == RESULT))
                self.sums[row, 0] += losses.where(counted, 0).double().sum()
                self.sums[row, 1] += counted.sum()
        total = losses.where(targets, 0).sum()
        return total / (targets.sum() if num_items_in_batch is None else num_items_in_batch)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds the perplexities of texts, calls and results to the logs of a training step."""
        if "loss" in logs:
            sums = self.accelerator.reduce(self.sums.clone(), reduction="sum")
            self.sums.zero_()
            for name, (total, count) in zip(("texts", "calls", "results"), sums.tolist(), strict=True):
                if count:
                    logs[f"perplexity_{name}"] = math.exp(min(total / count, 700.0))
        super().log(logs, start_time)


def perplexity_of(prediction: EvalPrediction) -> dict[str, float]:
    """Held-out perplexity, from the rows of `PackedTrainer.prediction_step`."""
    loss, targets = prediction.predictions.sum(axis=0)  # type: ignore[union-attr]
    # A float overflows beyond this, which is enough to compare checkpoints.
    return {"perplexity": math.exp(min(loss / targets, 700.0)) if math.isfinite(loss) else math.nan}
