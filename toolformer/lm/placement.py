"""A causal model before its weights are read: its size, and where it is to run. Its folder is looked at once, here."""

import logging
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from toolformer.errors import UserError
from toolformer.lm import devices, loading, model_files

log = logging.getLogger(__name__)

ROOM = 0.8
"""Share of GPUs' memory that a model's weights take at most: the rest is for keys, values and activations."""


@dataclass(frozen=True, eq=False)
class Placement:
    """A causal model and the device and dtype that it is to have; `place` makes it."""

    name: str
    """A bundled model, a folder or a hub model."""
    config: Any
    """Transformers' configuration of it."""
    asked: str
    """The device as it is configured; `auto` and `all` leave open whether its layers are spread over all GPUs."""
    device: str
    """Of a spread model the first GPU, where its inputs are."""
    dtype: torch.dtype

    @cached_property
    def parameters(self) -> int:
        """Number of its parameters. UserError if it is not causal."""
        return loading.count_parameters(self.name, self.config)

    @cached_property
    def size(self) -> float:
        """Bytes that its weights take in memory; of a quantised one those of its files, or by the bits that it names."""
        quantised = getattr(self.config, "quantization_config", None)
        if not quantised:
            return self.parameters * self.dtype.itemsize
        folder = loading.locate(self.name).folder
        if folder and (stored := model_files.weights_size(folder)):
            return stored
        named = quantised if isinstance(quantised, dict) else quantised.to_dict()
        bits = named.get("bits") or named.get("w_bit") or 4 * bool(named.get("load_in_4bit"))
        # Others (8-bit, fp8) store a byte per weight, or less.
        return self.parameters * (bits if isinstance(bits, int) and bits else 8) / 8

    def is_spread(self, workers: int = 1) -> bool:
        """Whether its layers are spread over all GPUs: where the device is `all`, or it is left open (`auto`) and one GPU has no
        room for the weights. Any other device is taken as it is, whatever its room.

        Args:
            workers: processes that have a replica each, on the GPUs in turn.

        UserError if there is no room for the weights.
        """
        count = devices.gpus(self.asked) if self.asked in ("auto", devices.ALL_GPUS) else 0
        if not count:
            return False
        replicas = math.ceil(workers / count)
        memory, size = devices.gpu_memory(), replicas * self.size
        may_spread = count > 1 and replicas == 1
        if size <= ROOM * min(memory) and self.asked != devices.ALL_GPUS:
            return False
        room = ROOM * (sum(memory) if may_spread else min(memory))
        if size > room:
            copies = f"{replicas} replicas of its weights take" if replicas > 1 else "its weights take"
            where = f"{count} GPUs have" if may_spread else "a GPU has"
            advice = (
                "lower engine.workers"
                if replicas > 1
                else "see more GPUs, set lm.dtype=bfloat16 or lm.device=cpu, or try it all the same with lm.device=cuda"
            )
            raise UserError(
                f"model: {self.name}: {copies} {size / 1e9:.0f} GB, and {where} room for {room / 1e9:.0f} GB; {advice}"
            )
        return may_spread

    def load(self) -> tuple[Any, Any]:
        """The model on its device, or spread over all GPUs, and its fast tokenizer.

        UserError if it is not causal, cannot be reached, or has no room.
        """
        spread = self.is_spread()
        model, tokenizer = loading.load_causal(self.name, self.dtype, spread=spread)
        if spread:
            log.info("model: %s is spread over %d GPUs", self.name, len({*model.hf_device_map.values()}))
            return model, tokenizer
        return model.to(self.device), tokenizer


def place(name: str, dtype: str = "auto", device: str = "auto") -> Placement:
    """A model as it is to run; reads its configuration, and no weights.

    UserError for a missing device, or if it is not a model or cannot be reached.
    """
    chosen = devices.choose_device(device)
    number_type = devices.choose_dtype(dtype, chosen)
    return Placement(name, loading.load_config(name), device, chosen, number_type)
