"""Settings of a training (paper, section 4.1 and appendix B)."""

import importlib.util
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from toolformer.data.bounds import Count, OneOf
from toolformer.errors import UserError
from toolformer.training import distributed

DTYPES = ("auto", "float32", "bfloat16")


@dataclass
class Recipe:
    """How a model is finetuned, by default as in the paper: the keys of `trainer`.

    UserError for values that exclude each other; validation of the configuration checks the bounds.
    """

    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-5
    """After the warm-up."""
    warmup_ratio: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the steps in which the learning rate grows linearly up to its value."""
    schedule: Annotated[str, OneOf("constant", "linear", "cosine")] = "constant"
    """The learning rate after the warm-up: constant, linear or cosine. The paper names a warm-up and nothing after it."""
    max_steps: Count | None = 2000
    """Optimizer steps at most; null: as many as epochs take."""
    epochs: Count | None = None
    """Passes over the texts at most; null: as many as max_steps take. With both, whichever ends first."""
    batch_size: Count = 128
    """Sequences per optimizer step, over all processes."""
    micro_batch_size: Count = 8
    """Sequences per forward pass of one process."""
    sequence_length: Annotated[int, Field(ge=2)] = 1024
    """Tokens per packed sequence."""
    eval_every: Count = 500
    """Steps between held-out perplexities; they are also taken before the first and after the last step."""
    save_every: Annotated[int, Field(ge=0)] | None = None
    """Steps between checkpoints to resume from (12 bytes a parameter); null: as eval_every; 0: none."""
    keep_checkpoints: Count = 2
    """Checkpoints kept on disk: if the last one is damaged, training resumes from the one before it."""
    log_every: Count = 10
    """Steps between logged metrics."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's."""
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    """Gradients are clipped to this norm; 0: not at all."""
    gradient_checkpointing: bool = False
    """Recompute activations instead of keeping them: less memory, a third more time."""
    compile: bool = False
    """torch.compile: faster steps after a minute or two; needs a C++ compiler on a CPU."""
    train_on_results: bool = True
    """Whether results, which decoding inserts, are targets too (the paper's loss is that of all tokens)."""
    early_stopping: Count | None = None
    """Training ends after so many held-out perplexities without a better one; null: never."""
    max_hours: Annotated[float, Field(gt=0)] | None = None
    """Training ends after this time, the hours before an interruption included, with the best model so far; the same
    command with more hours, or null, continues."""
    lora_rank: Count | None = None
    """Rank of LoRA adapters that are trained instead of all weights; they are merged into the saved model."""
    lora_alpha: Count | None = None
    """The adapters' scale times their rank; null: twice the rank."""
    deepspeed: str | None = None
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
        zero = distributed.read(self.deepspeed)["zero_optimization"] if self.deepspeed is not None else {}
        if zero.get("stage") == 3 and self.lora_rank:
            raise UserError(
                "trainer.lora_rank and ZeRO-3 do not go together, for no process holds the weights that adapters are "
                "merged into; choose trainer.deepspeed=zero2"
            )

    def accumulation(self, processes: int) -> int:
        """Micro batches per optimizer step and process. UserError if the batch size is not a multiple."""
        together = self.micro_batch_size * processes
        if self.batch_size % together:
            raise UserError(
                f"trainer.batch_size is {self.batch_size}, not a multiple of trainer.micro_batch_size x processes ="
                f" {self.micro_batch_size} x {processes}; set trainer.batch_size to a multiple of {together}, or lower "
                "trainer.micro_batch_size"
            )
        return self.batch_size // together

    def learning_rate_factor(self, step: int, steps: int) -> float:
        """The factor of the learning rate in a step, counted from 0, of `steps`.

        With w steps of warm-up the first step has 1/w of the learning rate, not 0.
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
    """A recipe, and settings shared with other stages. UserError for those that training does not support."""

    dtype: str
    """Of the matrix products; weights and optimizer stay float32. auto: bfloat16 where it is native."""
    device: str
    """auto, cpu or cuda; CUDA_VISIBLE_DEVICES or the launcher chooses the GPU."""
    seed: int
    """For the order of texts, adapters and dropout."""

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

    def deciding(self) -> dict[str, Any]:
        """The values that identify a training; others may change while it is interrupted."""
        free = {"save_every", "keep_checkpoints", "log_every", "micro_batch_size", "gradient_checkpointing"}
        free |= {"compile", "max_hours"}
        values = {key.name: getattr(self, key.name) for key in fields(self) if key.name not in free}
        if self.deepspeed is not None and self.deepspeed not in distributed.NAMED:
            values["deepspeed"] = distributed.read(self.deepspeed)  # its content, wherever the file is
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
    """Time of training, evaluation and saving, without interruptions."""
    ended_by_max_hours: float | None = None
    """The `max_hours` that ended it, or None."""
    sha256: dict[str, str] = field(default_factory=dict, repr=False)
    """By name of the model's files."""
