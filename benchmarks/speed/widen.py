"""A model that computes the same function at the cost of a larger one: real calls and real gains, at a real model's price.

    python -m benchmarks.speed.widen FOLDER [model=smollm2] [factor=4] [layers=30] [dtype=float32]

Writes a Llama-like model of `factor` times the width (hidden size, heads and feed-forward, filled up with zeros) and with
`layers` layers, the further ones adding nothing. SmolLM2-135M, 576 wide, becomes one of 1.8 billion parameters. The
other scripts of this folder take FOLDER as `model`.
"""

import copy
import sys
from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import MISSING

from toolformer.benchmarks.speed.script import run_script
from toolformer.errors import UserError
from toolformer.lm.devices import choose_dtype
from toolformer.lm.loading import load_causal

KINDS = ("llama", "mistral")


@dataclass
class Options:
    """Options: the model, the factor, and the folder to write to."""

    folder: str = MISSING
    model: str = "smollm2"
    factor: int = 4
    layers: int = 30
    dtype: str = "float32"


@torch.no_grad()
def widened(model: Any, factor: int, layers: int) -> Any:
    """A model that computes what `model` does. UserError if it is of another kind, or would be smaller."""
    old = model.config
    if old.model_type not in KINDS or factor < 1 or layers < old.num_hidden_layers:
        raise UserError(
            f"widen needs a model of type {' or '.join(KINDS)} (this is {old.model_type}), factor=1 or more and "
            f"layers={old.num_hidden_layers} or more"
        )
    config = copy.deepcopy(old)
    config.head_dim = getattr(old, "head_dim", None) or old.hidden_size // old.num_attention_heads
    for size in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"):
        setattr(config, size, factor * getattr(old, size))
    config.num_hidden_layers = layers
    # With zeros beside it, a vector's mean square is a `factor`-th.
    config.rms_norm_eps = old.rms_norm_eps / factor
    wide, narrow = type(model)(config).to(model.dtype), model.state_dict()
    for name, weight in wide.state_dict().items():
        weight.zero_()
        if name in narrow:
            scale = factor**-0.5 if "norm" in name else 1.0
            weight[tuple(map(slice, narrow[name].shape))] = scale * narrow[name]
    return wide


def main(options: Options) -> None:
    model, tokenizer = load_causal(options.model, choose_dtype(options.dtype, "cpu"))
    wide = widened(model, options.factor, options.layers)
    wide.save_pretrained(options.folder)
    tokenizer.save_pretrained(options.folder)
    print(f"{options.folder}: {wide.num_parameters():,} parameters that compute what {options.model} does")


if __name__ == "__main__":
    sys.argv[1:] = [argument if "=" in argument else f"folder={argument}" for argument in sys.argv[1:]]
    run_script(Options, main)
