"""What a training run shows while it runs: a progress bar in tokens, and metrics handed to a callback."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import SaveStrategy

from toolformer.bars import Bar
from toolformer.errors import UserError
from toolformer.training.data import PackedTexts


class Progress(TrainerCallback):
    """Follows a Trainer. `sequences` of a step are `batch_size`, those of a forward pass `together`."""

    def __init__(
        self,
        training: PackedTexts,
        batch_size: int,
        together: int,
        on_log: Callable[[dict[str, float], int], None] | None,
        show: bool,
        deadline: float = math.inf,
    ) -> None:
        self.training = training
        self.batch_size = batch_size
        self.together = together
        self.report = on_log
        self.show = show
        self.deadline = deadline
        """When training ends whatever is left, in seconds of time.monotonic."""
        self.bar: Bar | None = None
        self.evaluation_bar: Bar | None = None
        self.shown: dict[str, str] = {}
        self.step_began = 0.0
        self.forward_passes = 0
        self.seconds = 0.0
        self.tokens = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Draws the bar where an interrupted run had got to; its intervals may have been changed since."""
        state.compute_steps(args, state.max_steps)
        if state.is_local_process_zero:
            done = self.training.tokens_before(state.global_step * self.batch_size)
            self.bar = Bar(
                total=self.training.tokens,
                initial=done,
                desc="train",
                unit="tok",
                unit_scale=True,
                disable=not self.show,
                dynamic_ncols=True,
            )

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Starts the clock: speed counts training steps only, no evaluation and no saving."""
        self.step_began = time.monotonic()
        self.forward_passes = 0

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Moves the bar after each forward and backward pass."""
        self.forward_passes += 1
        self._advance(state.global_step * self.batch_size + self.forward_passes * self.together)

    def _is_over(self, device: torch.device) -> bool:
        """Whether the time is up in any process: all must end at the same step."""
        over = time.monotonic() > self.deadline
        if not math.isfinite(self.deadline) or not torch.distributed.is_initialized():
            return over
        said = torch.tensor([int(over)], device=device)
        torch.distributed.all_reduce(said, torch.distributed.ReduceOp.MAX)
        return bool(said)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Logs the last step whatever its number; it needs a checkpoint only where more time would let it go on."""
        sequences = state.global_step * self.batch_size
        self.seconds += time.monotonic() - self.step_began
        self.tokens += self.training.tokens_before(sequences) - self.training.tokens_before(
            sequences - self.batch_size
        )
        self._advance(sequences)
        done = state.global_step >= state.max_steps
        if done or self._is_over(args.device):
            control.should_log = True
            control.should_evaluate = True
            control.should_save = not done and args.save_strategy != SaveStrategy.NO
            control.should_training_stop = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Hands on the metrics of a training step or of an evaluation."""
        logs = logs or {}
        metrics: dict[str, float] = {}
        if "loss" in logs:
            names = ("loss", "learning_rate", "grad_norm", "perplexity_texts", "perplexity_calls")
            metrics = {key: float(logs[key]) for key in names if key in logs}
            metrics["memory_gib"] = _memory() / 2**30
            metrics["tokens_per_second"] = self.tokens / max(self.seconds, 1e-9)
            self.seconds, self.tokens = 0.0, 0
            if not math.isfinite(metrics["loss"]):
                raise UserError(
                    f"training: the loss is {metrics['loss']} at step {state.global_step};"
                    " lower trainer.learning_rate"
                )
            self.shown["loss"] = f"{metrics['loss']:.3f}"
        elif "eval_perplexity" in logs:
            metrics = {"heldout_perplexity": float(logs["eval_perplexity"])}
            self.shown["heldout_perplexity"] = f"{metrics['heldout_perplexity']:.2f}"
        if self.bar is not None:
            self.bar.set_postfix(self.shown)
        if metrics and self.report is not None and state.is_world_process_zero:
            self.report(metrics, state.global_step)

    def on_prediction_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        eval_dataloader: Any = None,
        **_: Any,
    ) -> None:
        """Moves the bar of an evaluation."""
        if state.is_local_process_zero:
            if self.evaluation_bar is None:
                self.evaluation_bar = Bar(
                    total=len(eval_dataloader),
                    desc="held-out perplexity",
                    unit="batch",
                    leave=False,
                    disable=not self.show,
                    dynamic_ncols=True,
                )
            self.evaluation_bar.update(1)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Takes the bar of an evaluation away."""
        if self.evaluation_bar is not None:
            self.evaluation_bar.close()
            self.evaluation_bar = None

    def close(self) -> None:
        """Ends the bars, also of a run that failed."""
        for bar in (self.evaluation_bar, self.bar):
            if bar is not None:
                bar.close()

    def _advance(self, sequences: int) -> None:
        if self.bar is not None:
            self.bar.update(self.training.tokens_before(sequences) - self.bar.n)


def _memory() -> float:
    """The most memory held so far, in bytes: of the GPU, or of the process."""
    if torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated())
    # Linux counts kilobytes, macOS bytes.
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (
        1 if sys.platform == "darwin" else 1024
    )
