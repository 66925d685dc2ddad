"""LoRA: small adapters are trained, and merged into the weights of the model that is kept. Knows peft."""

from typing import Any

import torch

from toolformer.errors import UserError


def with_adapters(model: Any, rank: int, alpha: int | None) -> Any:
    """The model with adapters on all linear layers but the output head; UserError without peft, or such layers."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise UserError(
            "trainer.lora_rank is set, and peft is not installed: make setup EXTRA=lora"
        ) from error
    configuration = LoraConfig(
        r=rank,
        lora_alpha=alpha if alpha is not None else 2 * rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(model, configuration)
    except ValueError as error:
        raise UserError(
            f"trainer.lora_rank: this model takes no adapters ({str(error).splitlines()[0]})"
        ) from error


@torch.no_grad()
def merged(model: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """The model beneath the adapters, and its weights with the adapters merged in; both models stay as they are."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    inner = model.get_base_model()
    weights: dict[str, torch.Tensor] = {}
    adapted = {name for name, module in inner.named_modules() if isinstance(module, BaseTunerLayer)}
    for name, tensor in inner.state_dict().items():
        layer, _, rest = name.rpartition(".base_layer.")
        if layer in adapted:
            delta = inner.get_submodule(layer).get_delta_weight("default") if rest == "weight" else 0
            weights[f"{layer}.{rest}"] = tensor + delta
        elif not any(name.startswith(f"{module}.") for module in adapted):
            weights[name] = tensor
    return inner, weights
