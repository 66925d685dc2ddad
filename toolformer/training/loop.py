"""The Hugging Face Trainer for `PackedTexts`: completed checkpoints, held-out perplexity, and a model folder at the end.

Steps, evaluation, the best model, resumption and early stopping are the Trainer's own. Four of its methods are not: the
learning rate's schedule begins above 0, a checkpoint is completed by a manifest, and weights are loaded by `from_pretrained`,
which knows their names in files.
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
from toolformer.lm import devices, loading
from toolformer.storage import into_place
from toolformer.training import checkpoints, lora
from toolformer.training.data import IGNORED, PackedTexts
from toolformer.training.distributed import not_spread
from toolformer.training.losses import token_losses
from toolformer.training.objective import Objective
from toolformer.training.progress import OnLog, Progress
from toolformer.training.settings import TrainingResult, TrainingSettings

# Nats per token by which rounding may make a saved model differ from the trained one.
_ROUNDING, _ROUNDING_BF16 = 5e-3, 0.1
# Positions of the first held-out sequence whose losses are logged with its perplexity.
_FIRST, _FIRST_LOSSES = 64, "first_losses"


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
        super().__init__(
            **arguments,
            compute_loss_func=objective.loss,
            preprocess_logits_for_metrics=_sums,
            compute_metrics=_perplexity,
            callbacks=[EarlyStoppingCallback(settings.early_stopping)] if settings.early_stopping else [],
        )
        self.settings = settings
        self.training_objective = objective
        self.started = started
        self.start_token = start_token
        self.folder = output_dir
        self.checkpoints = output_dir / checkpoints.CHECKPOINTS
        self.remove_callback(PrinterCallback)

    def run_to_end(self, checkpoint: Path | None, on_log: OnLog | None, progress: bool) -> TrainingResult:
        """Trains from the start or from a checkpoint, and publishes the best model."""
        if checkpoint:  # earlier time counts
            self.started -= float(checkpoints.read_json(checkpoint / checkpoints.MANIFEST)["seconds"])
        recorder = Progress(
            cast(PackedTexts, self.train_dataset),
            self.settings,
            self.training_objective,
            on_log,
            progress,
        )
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

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """The Trainer's checkpoint, with a manifest once all processes have written it; only then earlier ones are removed."""
        with checkpoints.saving(self.checkpoints, checkpoints.remove_incomplete):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                checkpoint = checkpoints.checkpoint_folder(self.checkpoints, self.state.global_step)
                checkpoints.write_last(checkpoint, checkpoints.MANIFEST, {"seconds": self._elapsed()})
                best = self.state.best_model_checkpoint
                rotate_checkpoints(str(self.checkpoints), self.settings.keep_checkpoints, best)

    def _elapsed(self) -> float:
        """Seconds of training so far, without its interruptions."""
        return time.monotonic() - self.started

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
        perplexity, best = self.state.best_metric, self.state.best_global_step
        if perplexity is None or not math.isfinite(perplexity):
            raise UserError("training: the held-out perplexity is not finite; lower trainer.learning_rate")
        measured = [entry for entry in self.state.log_history if "eval_perplexity" in entry]
        record = {
            "best_step": best,
            "heldout_perplexity": perplexity,
            "initial_heldout_perplexity": measured[0]["eval_perplexity"],
            "steps": self.state.global_step,
            "tokens": tokens,
            "seconds": self._elapsed(),
        }
        at_best: dict[str, Any] = next(entry for entry in measured if entry["step"] == best)
        partial, model = self.folder / f"{checkpoints.MODEL}.partial", self.folder / checkpoints.MODEL
        with checkpoints.saving(partial, lambda folder: shutil.rmtree(folder, ignore_errors=True)):
            self._save_weights(partial)
            if self.is_world_process_zero():
                (partial / "training_args.bin").unlink(missing_ok=True)
                self._compare(partial, at_best.get(f"eval_{_FIRST_LOSSES}"))
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
    def _compare(self, folder: Path, expected: list[float] | None) -> None:
        """UserError unless the saved model gives the first held-out tokens the losses that they had when the best step was taken.

        None: the training began with a release that did not log these losses.
        """
        if expected is None:
            return
        devices.release_memory()  # a second model is loaded
        # In main memory, where it fit before training; not spread over the processes, which would wait for each other.
        with torch.random.fork_rng(devices=()), not_spread(self.args):
            saved = loading.load_weights(AutoModelForCausalLM, "causal language", str(folder), torch.float32)
        sequence = cast(PackedTexts, self.eval_dataset)[0]
        starts = (sequence["position_ids"] == 0).nonzero().flatten().tolist()
        ids, labels = (sequence[name].tensor_split(starts[1:]) for name in ("input_ids", "labels"))
        # In the precision of the evaluation: bfloat16 alone changes a loss by more than a tenth of a nat.
        with torch.autocast("cpu", torch.bfloat16, enabled=self.args.bf16):
            losses = [
                token_losses(
                    saved.eval()(document[None], use_cache=False).logits, targets[None], self.start_token
                )
                for document, targets in zip(ids, labels, strict=True)
            ]
        # What follows a document's last token is not a target.
        computed = torch.cat([torch.nn.functional.pad(document[0], (0, 1)) for document in losses])[:_FIRST]
        count = int((sequence["labels"][1 : _FIRST + 1] != IGNORED).sum())
        logged = torch.tensor(expected[: len(computed)])
        difference = float((computed - logged).abs().sum()) / max(count, 1)
        if not difference <= (_ROUNDING_BF16 if self.args.bf16 else _ROUNDING):
            shutil.rmtree(folder, ignore_errors=True)
            raise UserError(
                f"training: the model saved in {folder} is not the trained one of step {self.state.best_global_step} (a token's loss "
                f"differs by {difference:.2g} nats); "
                f"{'leave trainer.lora_rank out' if self.settings.lora_rank else f'remove {self.checkpoints} and train again'}"
            )


def _sums(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    """Per held-out sequence: summed loss in nats, number of targets, and the losses of its first positions, 0 where there is none.

    [sequences, 2 + _FIRST]; outputs are losses and kinds.
    """
    targets = labels[:, 1:] != IGNORED
    losses = outputs[0].double().where(targets, 0)  # losses are padded to the longest of all processes
    first = torch.nn.functional.pad(losses[:, :_FIRST], (0, max(0, _FIRST - losses.shape[1])))
    return torch.cat([torch.stack([losses.sum(1), targets.sum(1).double()], dim=1), first], dim=1)


def _perplexity(prediction: EvalPrediction) -> dict[str, float]:
    """Perplexity from the rows of `_sums`, infinite if a loss is not finite; and the losses of the first one, in nats."""
    rows = cast(Any, prediction.predictions)
    loss, targets = rows[:, :2].sum(axis=0)
    # A float overflows beyond this, which is enough to compare checkpoints.
    perplexity = math.exp(min(loss / targets, 700.0)) if math.isfinite(loss) else math.inf
    return {"perplexity": perplexity, _FIRST_LOSSES: rows[0, 2:].tolist()}
