"""What decides a training run, validated before a model is loaded (paper, section 4.1 and appendix B)."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from toolformer.errors import UserError
from toolformer.training import zero

DTYPES = ("auto", "float32", "bfloat16")
SCHEDULES = ("constant", "linear", "cosine")


@dataclass(frozen=True)
class TrainingSettings:
    """The paper's recipe by default.

    Raises:
        UserError: a value that is impossible, or two that do not go together.
    """

    learning_rate: float = 1e-5
    warmup_ratio: float = 0.1
    """Share of the steps in which the learning rate grows linearly up to its value."""
    schedule: str = "constant"
    """After the warm-up. The paper names a warm-up and nothing after it: constant."""
    max_steps: int | None = 2000
    """Optimizer steps at most; None: as many as `epochs` take."""
    epochs: int | None = None
    """Passes over the texts at most; None: as many as `max_steps` take. With both, what ends first."""
    batch_size: int = 128
    """Sequences of one optimizer step, over all processes."""
    micro_batch_size: int = 8
    """Sequences of one forward pass of one process."""
    sequence_length: int = 1024
    """Tokens of a sequence."""
    eval_every: int = 500
    """Steps between held-out perplexities; they are also taken before the first and after the last step."""
    save_every: int | None = None
    """Steps between checkpoints to resume from (12 bytes a parameter); None: as `eval_every`; 0: none."""
    keep_checkpoints: int = 1
    log_every: int = 10
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    gradient_checkpointing: bool = False
    """Recompute activations instead of keeping them: less memory, a third more time."""
    dtype: str = "auto"
    """Of the matrix products; weights and optimizer stay float32. auto: bfloat16 where it is native."""
    device: str = "auto"
    """auto, cpu or cuda."""
    compile: bool = False
    """torch.compile: faster steps after a minute or two; needs a C++ compiler on a CPU."""
    train_on_results: bool = True
    """Whether results, which decoding inserts, are targets too: the paper's loss is that of all tokens."""
    early_stopping: int | None = None
    """Held-out perplexities without a better one after which training ends."""
    max_hours: float | None = None
    """Training ends after this time, the hours before an interruption included, with the best model so far; given more, or
    None, it goes on from there."""
    lora_rank: int | None = None
    """Rank of LoRA adapters that are trained instead of all weights; they are merged into the saved model."""
    lora_alpha: int | None = None
    """Their scale is alpha / rank; None: twice the rank."""
    deepspeed: str | None = None
    """zero2, zero3, zero3_offload, or the path of a DeepSpeed configuration file (JSON)."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in (
            "learning_rate",
            "batch_size",
            "micro_batch_size",
            "eval_every",
            "keep_checkpoints",
            "log_every",
        ):
            _require(getattr(self, name) > 0, name, f"is {getattr(self, name)}; it must be above 0")
        for name in ("max_steps", "epochs", "early_stopping", "max_hours", "lora_rank", "lora_alpha"):
            _require(getattr(self, name) is None or getattr(self, name) > 0, name, "must be above 0, or null")
        _require(
            0 <= self.seed < 2**32, "seed", f"is {self.seed}; it must be from 0 to {2**32 - 1}"
        )  # numpy's
        for name in ("weight_decay", "max_grad_norm"):
            _require(getattr(self, name) >= 0, name, f"is {getattr(self, name)}; it must not be negative")
        _require(
            math.isfinite(self.learning_rate), "learning_rate", f"is {self.learning_rate}; it must be finite"
        )
        _require(
            0 <= self.warmup_ratio <= 1, "warmup_ratio", f"is {self.warmup_ratio}; it is a share from 0 to 1"
        )
        _require(
            self.sequence_length >= 2, "sequence_length", f"is {self.sequence_length}; it must be at least 2"
        )
        _require(self.save_every is None or self.save_every >= 0, "save_every", "must be 0 or more, or null")
        _require(
            bool(self.max_steps or self.epochs),
            "max_steps",
            "and trainer.epochs are both null; set one of them",
        )
        for name, allowed in (("schedule", SCHEDULES), ("dtype", DTYPES)):
            value = getattr(self, name)
            _require(value in allowed, name, f"is {value!r}; it is one of {', '.join(allowed)}")
        known = self.device in ("auto", "cpu") or self.device.startswith("cuda")
        _require(known, "device", f"is {self.device!r}; it is auto, cpu or cuda")
        if self.deepspeed is not None and self.deepspeed not in zero.NAMED:
            _require(
                Path(self.deepspeed).is_file(),
                "deepspeed",
                f"is {self.deepspeed}; it is one of {', '.join(zero.NAMED)}, or a file, and there is no such file",
            )
        _require(
            self.lora_rank is None or self.deepspeed is None or zero.stage(self.deepspeed) != 3,
            "lora_rank",
            "and ZeRO-3 do not go together, for no process holds the weights that adapters are merged into;"
            " choose deepspeed=zero2",
        )

    def accumulation(self, processes: int) -> int:
        """Micro batches of one optimizer step in each process.

        Raises:
            UserError: the batch does not divide into whole micro batches.
        """
        together = self.micro_batch_size * processes
        # The batch decides the result, the micro batch does not: it is kept where it divides at all.
        share = max(1, round(self.batch_size / processes))
        micro = next(size for size in range(self.micro_batch_size, 0, -1) if share % size == 0)
        mend = {"batch_size": share * processes, "micro_batch_size": micro}
        changes = [f"trainer.{name}={value}" for name, value in mend.items() if value != getattr(self, name)]
        _require(
            self.batch_size % together == 0,
            "batch_size",
            f"is {self.batch_size}, no multiple of trainer.micro_batch_size x processes ="
            f" {self.micro_batch_size} x {processes}; set {' '.join(changes)}",
        )
        return self.batch_size // together

    def check_context(self, context: int | None) -> None:
        """Raises UserError if a sequence is longer than what the model can read (`context` tokens)."""
        _require(
            context is None or self.sequence_length <= context,
            "sequence_length",
            f"is {self.sequence_length}, more than the model's context; choose at most {context}",
        )

    def learning_rate_factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied with in a step, counted from 0, of `steps`.

        The first step already learns: with w steps of warm-up it has 1/w of the learning rate, not 0.
        """
        warmup = math.ceil(self.warmup_ratio * steps)
        if step < warmup:
            return (step + 1) / warmup
        done = (step - warmup) / max(steps - warmup, 1)
        if self.schedule == "linear":
            return max(0.0, 1 - done)
        return (1 + math.cos(math.pi * min(done, 1.0))) / 2 if self.schedule == "cosine" else 1.0

    @property
    def checkpoint_interval(self) -> int:
        """Steps between checkpoints, 0 for none."""
        return self.eval_every if self.save_every is None else self.save_every

    def deciding(self) -> dict[str, Any]:
        """The values that tell a training from others; the rest may change while it is interrupted.

        Of that, `compile` rounds otherwise, and `max_hours` may end it before the other settings do.
        """
        left_out = {
            "save_every",
            "keep_checkpoints",
            "log_every",
            "micro_batch_size",
            "gradient_checkpointing",
            "compile",
            "max_hours",
        }
        values = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in left_out
        }
        if self.deepspeed is not None and self.deepspeed not in zero.NAMED:
            values["deepspeed"] = zero.read(self.deepspeed)  # what the file says, wherever it is
        return values


@dataclass(frozen=True)
class TrainingResult:
    """A finished training run."""

    model_path: Path
    """Folder of the best checkpoint: safetensors and tokenizer, for `from_pretrained`."""
    best_step: int
    """Step of that checkpoint."""
    heldout_perplexity: float
    """At that step: exp of the mean loss of the held-out tokens."""
    initial_heldout_perplexity: float
    """Before the first step."""
    steps: int
    """Optimizer steps taken."""
    tokens: int
    """Tokens trained on, padding not counted."""
    seconds: float
    """Time of training, evaluation and saving, over all its interruptions."""
    ended_by_max_hours: float | None = None
    """The `max_hours` that ended it; None if it came to its own end."""


def _require(condition: bool, name: str, complaint: str) -> None:
    if not condition:
        raise UserError(f"trainer.{name} {complaint}")
