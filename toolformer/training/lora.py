"""LoRA by peft: small adapters are trained, and merged into the saved weights.

The frozen weights may be bfloat16; adapters are float32, and so are the merged weights.
"""

import copy
import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import remove_tied_weights_from_state_dict

from toolformer.errors import UserError, one_line

# Share of the adapters' effect that merging may lose; rounding loses a thousandth, in bfloat16 a few hundredths.
_NOT_MERGED, _NOT_MERGED_BF16 = 0.01, 0.2
_TRIED = 1.0
"""Standard deviation of the adapters that are merged to try it: as large as the weights, or bfloat16's rounding counts as loss."""
_SHARD = 5 * 10**9
"""Bytes of a file of weights, at least, where they are several."""


def with_adapters(model: Any, rank: int, alpha: int | None) -> Any:
    """The model with adapters on all linear layers but the output head, and on experts as peft maps them.

    The model is copied once: call this while it is in main memory. UserError for a model without such layers, or whose output
    changes when they are merged.
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
    if not error <= (_NOT_MERGED if adapted.dtype == torch.float32 else _NOT_MERGED_BF16):
        raise UserError(
            f"trainer.lora_rank: merging the adapters changes this model ({error:.0%} of their effect is "
            "lost); leave trainer.lora_rank out"
        )
    return adapted


def save_merged(model: Any, folder: Path, shard: int = _SHARD) -> None:
    """Writes the model with its adapters merged, in float32, as `save_pretrained` would; in main memory, file by file.

    Args:
        shard: bytes after which a file is full.
    """
    inner = model.get_base_model()
    folder.mkdir(parents=True, exist_ok=True)
    config = copy.deepcopy(inner.config)
    config.dtype, config.architectures = "float32", [type(inner).__name__]
    config.save_pretrained(folder)
    inner.generation_config.save_pretrained(folder)
    files: list[list[str]] = []
    tensors: dict[str, torch.Tensor] = {}
    total = size = 0

    def write() -> None:
        nonlocal tensors, size
        save_file(tensors, folder / _file(len(files) + 1), metadata={"format": "pt"})
        files.append([*tensors])
        tensors, size = {}, 0

    for part in _merged(inner):
        tensors |= part
        added = sum(tensor.nbytes for tensor in part.values())
        total, size = total + added, size + added
        if size >= shard:
            write()
    if tensors:
        write()
    if len(files) == 1:
        (folder / _file(1)).rename(folder / "model.safetensors")
        return
    for number in range(1, len(files) + 1):
        (folder / _file(number)).rename(folder / _file(number, len(files)))
    index = {name: _file(number, len(files)) for number, names in enumerate(files, 1) for name in names}
    content = {"metadata": {"total_size": total}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content, indent=1))


def _file(number: int, count: int | None = None) -> str:
    return f"model-{number:05}" + ("" if count is None else f"-of-{count:05}") + ".safetensors"


@torch.no_grad()
def _merged(inner: Any) -> Iterator[dict[str, torch.Tensor]]:
    """The weights with their names in files, layer by layer: files may hold experts apart that are one tensor in memory."""
    from peft.tuners.lora import LoraLayer

    adapters = {}
    for module in inner.modules():
        if isinstance(module, LoraLayer):
            name = getattr(module, "parameter_name", "weight")  # experts are parameters, not layers
            adapters[id(getattr(module.get_base_layer(), name))] = module
    plain = {
        name.replace(".base_layer", ""): tensor
        for name, tensor in inner.state_dict(keep_vars=True).items()
        if ".lora_" not in name
    }
    weights = remove_tied_weights_from_state_dict(plain, inner)
    for _, names in groupby(weights, key=_layer):
        layer = {name: _merged_weight(weights[name], adapters.get(id(weights[name]))) for name in names}
        converted = revert_weight_conversion(inner, layer)
        yield {name: tensor.contiguous() for name, tensor in converted.items()}


def _layer(name: str) -> str:
    """Prefix of a weight's name within its layer: `model.layers.0.`"""
    found = re.match(r".*?\.\d+\.", name)
    return found[0] if found else ""


def _merged_weight(weight: torch.Tensor, adapter: Any) -> torch.Tensor:
    """A copy of a weight in main memory, with its adapter merged; floating-point numbers in float32."""
    dtype = torch.float32 if weight.is_floating_point() else weight.dtype
    merged = weight.detach().to("cpu", dtype, copy=True)
    if adapter is not None:
        kept = weight.data
        weight.data = merged  # peft rounds the adapter of an expert to its weight's dtype
        merged = merged + adapter.get_delta_weight(*adapter.active_adapters).to("cpu")
        weight.data = kept
    return merged


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
        values = random.normal(scale=_TRIED, size=parameter.shape)
        parameter.copy_(torch.from_numpy(values))
    separate = model(input_ids=ids, use_cache=False).logits
    merged = copy.deepcopy(model).merge_and_unload()(input_ids=ids, use_cache=False).logits
    for parameter in changed:
        parameter.zero_()
    model.train(training)
    return float((merged - separate).abs().mean() / (separate - plain).abs().mean())
