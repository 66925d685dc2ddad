"""The Hugging Face Trainer for `PackedTexts`: verified checkpoints, held-out perplexity, and a model folder at the end.

The best model, limits on checkpoints, resumption and early stopping are the Trainer's own.
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
from transformers import (
    AutoModelForCausalLM,
    EarlyStoppingCallback,
    EvalPrediction,
    PrinterCallback,
    Trainer,
    TrainerState,
)
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import rotate_checkpoints

from toolformer.errors import UserError
from toolformer.lm import loading
from toolformer.storage import into_place
from toolformer.training import checkpoints, lora
from toolformer.training.data import IGNORED, PackedTexts
from toolformer.training.distributed import not_spread
from toolformer.training.losses import return_losses, token_losses
from toolformer.training.objective import Objective
from toolformer.training.progress import OnLog, Progress
from toolformer.training.settings import TrainingResult, TrainingSettings

# Nats per token by which rounding may make a saved model differ from the trained one.
_ROUNDING, _ROUNDING_BF16 = 5e-3, 0.1
# Relative difference of the best checkpoint's perplexity from the one measured in training, with other batch sizes.
_SAME_PERPLEXITY = 0.01


class PackedTrainer(Trainer):
    """A Trainer that minimises an objective, is evaluated on `PackedTexts`, and publishes the best model.

    Args:
        started: start of the command (time.monotonic, in seconds).
        output_dir: the folder of model and checkpoints.
        start_token: of calls, which held-out perplexity disables as the perplexity benchmarks do (paper, section 4.3); None
            for a model that is trained on texts without calls.
        arguments: the Trainer's; `train_dataset` and `eval_dataset` are `PackedTexts`.
    """

    def __init__(
        self,
        *,
        settings: TrainingSettings,
        objective: Objective,
        started: float,
        output_dir: Path,
        start_token: int | None,
        **arguments: Any,
    ) -> None:
        self.model_config = arguments["model"].config
        self.model_use_cache = getattr(self.model_config, "use_cache", None)
        return_losses(arguments["model"], settings.micro_batch_size * settings.sequence_length)
        super().__init__(
            **arguments,
            compute_loss_func=objective.loss,
            compute_metrics=_perplexity,
            callbacks=[EarlyStoppingCallback(settings.early_stopping)] if settings.early_stopping else [],
        )
        self.settings = settings
        self.training_objective = objective
        self.started = started
        self.start_token = start_token
        self.folder = output_dir
        self.checkpoints = output_dir / checkpoints.CHECKPOINTS
        # Of the last evaluation: tokens [1, tokens] and their losses in nats [tokens - 1].
        self.first_document: tuple[torch.Tensor, torch.Tensor] | None = None
        self.remove_callback(PrinterCallback)

    def run_to_end(self, checkpoint: Path | None, on_log: OnLog | None, progress: bool) -> TrainingResult:
        """Trains from the start or from a checkpoint, and publishes the best model."""
        if checkpoint:  # earlier time counts
            self.started -= float(checkpoints.read_json(checkpoint / checkpoints.MANIFEST)["seconds"])
        recorder = Progress(cast(PackedTexts, self.train_dataset), self.settings, on_log, progress)
        self.add_callback(recorder)
        try:
            if checkpoint and self._has_stopped(checkpoint):
                self._load_best_model()
            else:
                self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            return self._publish(recorder.tokens_after(self.state.global_step))
        finally:
            recorder.bar.close()

    def _has_stopped(self, checkpoint: Path) -> bool:
        """Whether early stopping ended the training at this checkpoint; if so, takes over its state."""
        state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        stored: Any = state.stateful_callbacks.get(EarlyStoppingCallback.__name__, {})
        count = stored.get("attributes", {}).get("early_stopping_patience_counter", 0)
        # DeepSpeed can load weights only at the beginning of a training, which then goes on.
        if not self.settings.early_stopping or count < self.settings.early_stopping or self.args.deepspeed:
            return False
        self.state = state
        self.state.best_model_checkpoint = str(
            checkpoints.checkpoint_folder(self.checkpoints, state.best_global_step or 0)
        )
        return True

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> Any:
        """Linear warm-up, then the schedule of the settings."""
        if self.lr_scheduler is None:
            factor = partial(self.settings.learning_rate_factor, steps=num_training_steps)
            self.lr_scheduler = LambdaLR(cast(Optimizer, optimizer or self.optimizer), factor)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def compute_loss(self, model: Any, inputs: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        """The objective's loss."""
        return super().compute_loss(model, self.training_objective.inputs(inputs), *arguments, **options)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds the objective's metrics to the logs of a training step."""
        if "loss" in logs:
            logs |= self.training_objective.logs(partial(self.accelerator.reduce, reduction="sum"))
        super().log(logs, start_time)

    def evaluation_loop(self, *arguments: Any, **options: Any) -> Any:
        """Held-out perplexity; also keeps the losses of one document."""
        self.first_document = None
        return super().evaluation_loop(*arguments, **options)

    @torch.no_grad()
    def prediction_step(
        self, model: Any, inputs: dict[str, Any], *_: Any, **__: Any
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Per sequence: summed loss in nats and number of targets, [sequences, 2]."""
        inputs = self._prepare_inputs(inputs)
        labels = inputs.pop("labels")
        inputs.pop("kinds")
        with self.compute_loss_context_manager():
            losses = model(**inputs, targets=labels, without=self.start_token)["losses"]
        targets = labels[:, 1:] != IGNORED
        if self.first_document is None:
            length = int(targets[0].cumprod(0).sum())
            self.first_document = inputs["input_ids"][:1, : length + 1].cpu(), losses[0, :length].cpu()
        rows = torch.stack([losses.double().sum(1), targets.sum(1).double()], dim=1)
        return None, rows, labels

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """The Trainer's checkpoint, with a manifest; only then earlier ones are removed."""
        checkpoint = checkpoints.checkpoint_folder(self.checkpoints, self.state.global_step)
        loading.release_memory()  # blocks of changing sizes leave gaps, a few megabytes each step
        with checkpoints.saving(checkpoint):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                seconds = time.monotonic() - self.started
                checkpoints.write_last(checkpoint, checkpoints.MANIFEST, {"seconds": seconds})
                best = self.state.best_model_checkpoint
                rotate_checkpoints(str(self.checkpoints), self.settings.keep_checkpoints, best)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """The Trainer reads files with the names that weights have in memory; from_pretrained converts them."""
        if self.settings.lora_rank:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        else:
            saved = loading.load_weights(
                AutoModelForCausalLM, "causal language", resume_from_checkpoint, torch.float32
            )
            cast(Any, self.model).load_state_dict(saved.state_dict())

    def _load_best_model(self) -> None:
        if self.settings.lora_rank or self.is_deepspeed_enabled:
            super()._load_best_model()
        else:
            self._load_from_checkpoint(str(self.state.best_model_checkpoint))

    def _publish(self, tokens: int) -> TrainingResult:
        """Writes the best model, which is loaded, to its folder, and removes the checkpoints."""
        perplexity = self.state.best_metric
        if perplexity is None or not math.isfinite(perplexity):
            raise UserError("training: the held-out perplexity is not finite; lower trainer.learning_rate")
        loaded = cast(Any, self.predict(cast(Any, self.eval_dataset))).metrics["test_perplexity"]
        if not math.isclose(loaded, perplexity, rel_tol=_SAME_PERPLEXITY):
            raise UserError(
                f"training: the checkpoint of step {self.state.best_global_step} has a held-out perplexity of {loaded:.5g}, "
                f"where {perplexity:.5g} was measured before it was saved; remove {self.checkpoints} and train again"
            )
        initial = next(entry for entry in self.state.log_history if "eval_perplexity" in entry)
        record = {
            "best_step": self.state.best_global_step,
            "heldout_perplexity": perplexity,
            "initial_heldout_perplexity": initial["eval_perplexity"],
            "steps": self.state.global_step,
            "tokens": tokens,
            "seconds": time.monotonic() - self.started,
        }
        partial, model = self.folder / f"{checkpoints.MODEL}.partial", self.folder / checkpoints.MODEL
        with checkpoints.saving(partial):
            self._save_weights(partial)
            if self.is_world_process_zero():
                (partial / "training_args.bin").unlink(missing_ok=True)
                self._compare(partial)
                checkpoints.write_last(partial, checkpoints.RECORD, record)
                shutil.rmtree(model, ignore_errors=True)  # damaged
                into_place(partial, model)
                shutil.rmtree(self.checkpoints, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        result = checkpoints.trained(model)
        if result is None:
            raise UserError(f"training: the model in {self.folder} is gone already; run again")
        return result

    def _save_weights(self, folder: Path) -> None:
        """Saves the model, adapters merged, and the tokenizer."""
        # The Trainer switched the cache off; generating needs it.
        self.model_config.use_cache = self.model_use_cache
        if not self.settings.lora_rank:
            self.save_model(str(folder), _internal_call=True)
        elif self.is_world_process_zero():
            lora.save_merged(self.model, folder)
            cast(Any, self.processing_class).save_pretrained(str(folder))
        self.model_config.use_cache = False

    @torch.no_grad()
    def _compare(self, folder: Path) -> None:
        """UserError unless the saved model gives one document the losses that the trained one gives it."""
        assert self.first_document is not None
        ids, expected = self.first_document
        loading.release_memory()  # a second model is loaded
        # In main memory, where it fit before training; not spread over the processes, which would wait for each other.
        with torch.random.fork_rng(devices=()), not_spread(self.args):
            saved = loading.load_weights(AutoModelForCausalLM, "causal language", str(folder), torch.float32)
        # In the precision of the evaluation: bfloat16 alone changes a loss by more than a tenth of a nat.
        with torch.autocast("cpu", torch.bfloat16, enabled=self.args.bf16):
            losses = token_losses(saved.eval()(ids, use_cache=False).logits, ids, self.start_token)[0]
        difference = float((losses - expected).abs().mean())
        if not difference <= (_ROUNDING_BF16 if self.args.bf16 else _ROUNDING):
            shutil.rmtree(folder, ignore_errors=True)
            raise UserError(
                f"training: the model saved in {folder} is not the trained one (a token's loss differs by "
                f"{difference:.2g} nats); {'leave trainer.lora_rank out' if self.settings.lora_rank else 'choose another model'}"
            )


def _perplexity(prediction: EvalPrediction) -> dict[str, float]:
    """Perplexity from the rows of `PackedTrainer.prediction_step`; infinite if a loss is not finite."""
    loss, targets = prediction.predictions.sum(axis=0)  # type: ignore[union-attr]
    # A float overflows beyond this, which is enough to compare checkpoints.
    return {"perplexity": math.exp(min(loss / targets, 700.0)) if math.isfinite(loss) else math.inf}
