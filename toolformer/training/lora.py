"""LoRA by peft: small adapters are trained, and merged into the saved weights."""

import copy
from typing import Any

import numpy as np
import torch

from toolformer.errors import UserError, one_line

# Share of the adapters' effect that merging may lose; rounding loses a thousandth.
_NOT_MERGED = 0.01


def with_adapters(model: Any, rank: int, alpha: int | None) -> Any:
    """The model with adapters on all linear layers but the output head, and on experts as peft maps them.

    UserError for a model without such layers, or whose output changes when they are merged.
    """
    from peft import LoraConfig, get_peft_model

    configuration = LoraConfig(
        r=rank,
        lora_alpha=alpha if alpha is not None else 2 * rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    try:
        adapted = get_peft_model(model, configuration)
        error = _merging_error(adapted)
    except (ValueError, TypeError, AttributeError, RuntimeError) as cause:
        raise UserError(
            f"trainer.lora_rank: this model takes no adapters ({one_line(cause, 120)}); leave trainer.lora_rank out"
        ) from cause
    if not error <= _NOT_MERGED:
        raise UserError(
            f"trainer.lora_rank: merging the adapters changes this model ({error:.0%} of their effect is "
            "lost); leave trainer.lora_rank out"
        )
    return adapted


def merged(model: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """A copy of the model with the adapters merged, and its weights."""
    inner = copy.deepcopy(model).merge_and_unload()
    return inner, inner.state_dict()


@torch.no_grad()
def _merging_error(model: Any) -> float:
    """How much merging changes logits, as a share of the adapters' effect; resets the adapters to zeros."""
    random = np.random.default_rng(0)
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    ids = torch.from_numpy(random.integers(0, vocabulary, (1, 16))).to(model.device)
    changed = [parameter for name, parameter in model.named_parameters() if ".lora_B." in name]
    training = model.training
    model.eval()
    plain = model(input_ids=ids, use_cache=False).logits
    for parameter in changed:  # they start as zeros, which have no effect
        values = random.normal(scale=0.05, size=parameter.shape)
        parameter.copy_(torch.from_numpy(values))
    apart = model(input_ids=ids, use_cache=False).logits
    together = merged(model)[0](input_ids=ids, use_cache=False).logits
    for parameter in changed:
        parameter.zero_()
    model.train(training)
    return float((together - apart).abs().mean() / (apart - plain).abs().mean())
