"""Settings that decide a training run (paper, section 4.1 and appendix B)."""

import importlib.util
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from toolformer.data.bounds import Count, CountOrAuto, OneOf
from toolformer.errors import UserError
from toolformer.step import NOTHING, Private
from toolformer.training import distributed

DTYPES = ("auto", "float32", "bfloat16")
AUTO_BATCHES = (4, 2, 1)
"""Sequences per step that `batch_size=auto` chooses from."""


@dataclass
class Recipe:
    """How a model is finetuned; by default as in the paper. These are the keys of `trainer`, with their bounds.

    UserError for two values that do not go together; the configuration's validation checks the bounds.
    """

    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 1e-5
    """Learning rate after the warm-up; null scales the paper's to the model's size: 1e-5 √(6.05e9 / its parameters), at most
    1e-4; for LoRA ten times as much."""
    warmup_ratio: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the steps in which the learning rate grows linearly up to its value."""
    schedule: Annotated[str, OneOf("constant", "linear", "cosine")] = "constant"
    """The learning rate after the warm-up: constant, linear or cosine. The paper names a warm-up and nothing after it."""
    max_steps: Count | None = 2000
    """Maximum number of optimizer steps; null: as many as the epochs take."""
    epochs: Count | None = None
    """Maximum number of passes over the texts; null: as many as max_steps take. With both, whichever ends first."""
    batch_size: CountOrAuto = 128
    """Sequences per optimizer step, over all processes. auto: 4, or 2 or 1 where the texts without their calls would fill fewer
    than 50 steps."""
    micro_batch_size: Annotated[Count, NOTHING] = 8
    """Sequences per forward pass of one process."""
    sequence_length: Annotated[int, Field(ge=2)] = 1024
    """Tokens per packed sequence."""
    eval_every: Count | None = 500
    """Steps between measurements of held-out perplexity, which choose the checkpoint. It is also measured before the first and
    after the last step. null: ten times per training."""
    save_every: Annotated[Annotated[int, Field(ge=0)] | None, NOTHING] = None
    """Steps between checkpoints to resume from (12 bytes per parameter), in addition to those at each held-out perplexity.
    null: only those. 0: those store weights alone (4 bytes per parameter), and an interrupted training starts over."""
    keep_checkpoints: Annotated[Count, NOTHING] = 2
    """Number of checkpoints to keep, always including the best and the last. If the last one is damaged, training resumes from
    the one before it."""
    log_every: Annotated[Count, NOTHING] = 10
    """Steps between logged metrics."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Weight decay of AdamW."""
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    """Clip gradients to this norm; 0 turns clipping off."""
    gradient_checkpointing: Annotated[bool, NOTHING] = False
    """Recompute activations instead of keeping them: less memory, a third more time."""
    compile: Annotated[bool, NOTHING] = False
    """torch.compile: faster steps after a minute or two; needs a C++ compiler on a CPU."""
    train_on_results: bool = True
    """Whether results of calls are targets too, as in the paper, whose loss is over all tokens. At inference, decoding inserts
    results."""
    early_stopping: Count | None = None
    """Stop training after this many held-out perplexities without improvement; null: never."""
    lora_rank: Count | None = None
    """Rank of LoRA adapters to train instead of all weights; they are merged into the saved model. null trains all weights."""
    lora_alpha: Count | None = None
    """LoRA's alpha (scale times rank); null: twice the rank."""
    processes: Annotated[CountOrAuto, NOTHING] = 1
    """Processes that train together on this machine, one per GPU; auto: all GPUs. Under a launcher (`torchrun`), its own
    number takes precedence."""
    deepspeed: Annotated[str | None, NOTHING, Private(only_paths=True)] = (
        None  # the content of a file is an input
    )
    """zero2, zero3, zero3_offload, or the path of a DeepSpeed configuration file (JSON)."""

    def __post_init__(self) -> None:
        if self.max_steps is None and self.epochs is None:
            raise UserError("trainer.max_steps and trainer.epochs are both null; set one of them")
        for key, package in (("lora_rank", "peft"), ("deepspeed", "deepspeed")):
            if getattr(self, key) is not None and importlib.util.find_spec(package) is None:
                extra = key.removesuffix("_rank")
                raise UserError(
                    f"trainer.{key} needs {package}, which is not installed: make setup EXTRA={extra}"
                )
        zero = (
            distributed.read_config(self.deepspeed)["zero_optimization"] if self.deepspeed is not None else {}
        )
        if zero.get("stage") == 3 and self.lora_rank:
            raise UserError(
                "trainer.lora_rank cannot be combined with ZeRO-3, because no process holds all the weights that adapters "
                "are merged into; choose trainer.deepspeed=zero2"
            )

    def accumulation(self, processes: int) -> int:
        """Micro batches of one optimizer step in each process. UserError if the batch does not divide into them."""
        together = self.micro_batch_size * processes
        if self.most_sequences % together:
            raise UserError(
                f"trainer.batch_size is {self.most_sequences}, not a multiple of trainer.micro_batch_size x processes ="
                f" {self.micro_batch_size} x {processes}; set trainer.batch_size to a multiple of {together}, or lower "
                "trainer.micro_batch_size"
            )
        return self.most_sequences // together

    @property
    def most_sequences(self) -> int:
        """Sequences per optimizer step; of auto, at most."""
        return AUTO_BATCHES[0] if self.batch_size == "auto" else int(self.batch_size)

    def learning_rate_factor(self, step: int, steps: int) -> float:
        """Factor of the learning rate in a step, counted from 0, of `steps`.

        The first step already learns: with w steps of warm-up it has 1/w of the learning rate, not 0.
        """
        warmup = math.ceil(self.warmup_ratio * steps)
        if step < warmup:
            return (step + 1) / warmup
        done = (step - warmup) / max(steps - warmup, 1)
        if self.schedule == "linear":
            return max(0.0, 1 - done)
        return (1 + math.cos(math.pi * min(done, 1.0))) / 2 if self.schedule == "cosine" else 1.0


@dataclass(kw_only=True)
class TrainingSettings(Recipe):
    """A recipe, and what a run shares with the other stages. UserError for what cannot be trained with."""

    dtype: str
    """Dtype of the matrix products; weights and optimizer stay float32. auto: bfloat16 where it is native."""
    device: str
    """auto, cpu or cuda; which GPU, CUDA_VISIBLE_DEVICES or the launcher says."""
    seed: int
    """Seed of the texts' order, of adapters and of dropout."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype not in DTYPES:
            raise UserError(f"lm.dtype is {self.dtype!r}; to train it must be one of {', '.join(DTYPES)}")
        number = self.device.removeprefix("cuda:")
        if number not in (self.device, "0"):
            raise UserError(
                f"lm.device is {self.device}; training takes the first GPU that it sees: set lm.device=cuda and, in the "
                f"environment, CUDA_VISIBLE_DEVICES={number}"
            )


@dataclass(frozen=True)
class TrainingResult:
    """A finished training run."""

    model_path: Path
    """Folder of the best checkpoint: safetensors and tokenizer, for `from_pretrained`."""
    best_step: int
    """Step of that checkpoint."""
    heldout_perplexity: float
    """At that step: exp of the mean loss of the held-out tokens, as the benchmark `heldout_perplexity` has it."""
    initial_heldout_perplexity: float
    """Before the first step."""
    steps: int
    """Optimizer steps taken."""
    tokens: int
    """Tokens trained on, padding not counted."""
    seconds: float
    """Time of training, evaluation and saving, over all its interruptions."""
    sha256: dict[str, str] = field(default_factory=dict, repr=False)
    """SHA-256 of the model's files, by name; of large ones of a sample (`storage.sample_digest`)."""
