"""Progress of a training: a bar in tokens, and metrics for a callback."""

import math
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import reduce
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from toolformer.errors import UserError
from toolformer.lm import devices
from toolformer.progress import Bar
from toolformer.training import checkpoints
from toolformer.training.data import PackedTexts
from toolformer.training.distributed import processes, rank
from toolformer.training.objective import Objective
from toolformer.training.settings import TrainingSettings

OnLog = Callable[[dict[str, float], int], None]
"""Called with metrics and their step."""


class Progress(TrainerCallback):
    """Reports on a Trainer, with the objective's metrics.

    Also asks for the last step's metrics and for the checkpoints of `trainer.save_every`.
    """

    def __init__(
        self,
        training: PackedTexts,
        settings: TrainingSettings,
        objective: Objective,
        on_log: OnLog | None,
        show: bool,
    ) -> None:
        self.training = training
        self.settings = settings
        self.objective = objective
        self.report = on_log
        self.bar = Bar(
            total=training.tokens, desc="train", unit="tokens", unit_scale=True,
            disable=not show or rank() > 0, dynamic_ncols=True,
        )  # fmt: skip
        self.postfix: dict[str, str] = {}
        self.step_began = 0.0
        self.forward_passes = self.evaluated = self.tokens = 0
        self.seconds = 0.0

    def tokens_after(self, step: int) -> int:
        """Tokens trained on in the first `step` steps."""
        return self.training.tokens_before(step * self.settings.batch_size)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        """Continues an interrupted run, whose intervals and folder may have changed since."""
        state.compute_steps(args, state.max_steps)
        if state.best_global_step:
            best = checkpoints.checkpoint_folder(Path(str(args.output_dir)), state.best_global_step)
            state.best_model_checkpoint = str(best)
        self.bar.n = self.bar.initial = self.bar.last_print_n = self.tokens_after(state.global_step)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Starts the clock: only training steps count for the speed, not evaluation and saving."""
        if self.bar.n == self.bar.initial:
            self.bar.restart()  # the first held-out perplexity counts for no rate
        self.step_began = time.monotonic()
        self.forward_passes = 0

    def on_substep_end(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        """Moves the bar after each forward and backward pass."""
        self.forward_passes += 1
        sequences = state.global_step * self.settings.batch_size
        self._advance(sequences + self.forward_passes * self.settings.micro_batch_size * processes())

    def _advance(self, sequences: int) -> None:
        self.bar.update(self.training.tokens_before(sequences) - self.bar.n)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Moves the bar; logs the last step in any case."""
        step = state.global_step
        if args.device.type == "cuda":  # wait until the queued work is done
            torch.cuda.synchronize(args.device)
        self.seconds += time.monotonic() - self.step_began
        self.tokens += self.tokens_after(step) - self.tokens_after(step - 1)
        self._advance(step * self.settings.batch_size)
        control.should_log |= step >= state.max_steps
        control.should_save |= bool(self.settings.save_every) and step % (self.settings.save_every or 1) == 0
        if control.should_save:
            devices.release_memory()  # blocks of changing sizes leave gaps, a few megabytes each step

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Reports the metrics of a training step or an evaluation."""
        logs = logs or {}
        metrics: dict[str, float] = {}
        if "loss" in logs:
            logs |= self.objective.logs(partial(reduce, reduction="sum"))
            metrics = {key: float(value) for key, value in logs.items() if key != "epoch"}
            metrics["memory_gib"] = _memory(args.device) / 2**30
            metrics["tokens_per_second"] = self.tokens / max(self.seconds, 1e-9)
            self.seconds, self.tokens = 0.0, 0
            if not math.isfinite(metrics["loss"]):
                raise UserError(
                    f"training: the loss is {metrics['loss']} at step {state.global_step};"
                    " lower trainer.learning_rate"
                )
            self.postfix["loss"] = f"{metrics['loss']:.3f}"
        elif "eval_perplexity" in logs:
            metrics = {"heldout_perplexity": float(logs["eval_perplexity"])}
            self.postfix["heldout_perplexity"] = f"{metrics['heldout_perplexity']:.2f}"
        self.bar.set_postfix(self.postfix)
        if metrics and self.report is not None and state.is_world_process_zero:
            self.report(metrics, state.global_step)

    def on_prediction_step(self, *_: Any, eval_dataloader: Any = None, **__: Any) -> None:
        """Shows the progress of an evaluation."""
        self.evaluated += 1
        self.bar.set_postfix(self.postfix, heldout_batches=f"{self.evaluated}/{len(eval_dataloader)}")

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        """Resets the progress for the next evaluation."""
        self.evaluated = 0


def _memory(device: torch.device) -> float:
    """Peak memory in bytes: of the training GPU, or of the process."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    # Linux counts kilobytes, macOS bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
