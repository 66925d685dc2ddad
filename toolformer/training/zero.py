"""Configurations of DeepSpeed: those that have a name, and files, which may not contradict the settings.

Plain data: knows neither DeepSpeed nor what the settings are.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolformer.errors import UserError

_ON_CPU = {"device": "cpu", "pin_memory": True}
NAMED: dict[str, dict[str, Any]] = {
    "zero2": {"zero_optimization": {"stage": 2}},
    "zero3": {"zero_optimization": {"stage": 3}},
    "zero3_offload": {
        "zero_optimization": {"stage": 3, "offload_optimizer": _ON_CPU, "offload_param": _ON_CPU}
    },
}
"""The configurations that have a name: optimizer and gradients spread over the processes, weights too with stage 3."""
# Not every optimizer has them; where left out, DeepSpeed's are the Trainer's.
_OF_ADAM = ("betas", "eps")


def read(name: str) -> dict[str, Any]:
    """A configuration by name, or from a JSON file.

    Raises:
        UserError: the file is no JSON object.
    """
    if name in NAMED:
        return copy.deepcopy(NAMED[name])
    try:
        configuration = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"trainer.deepspeed: {name} is no JSON file: {error}") from error
    if not isinstance(configuration, dict):
        raise UserError(f"trainer.deepspeed: {name} holds no JSON object")
    return configuration


def stage(name: str) -> int | None:
    """The ZeRO stage of a configuration; None where a file does not say."""
    zero = read(name).get("zero_optimization")
    found = zero.get("stage") if isinstance(zero, dict) else None
    return found if isinstance(found, int) else None


def agreed(name: str, wanted: Mapping[str, tuple[Any, str]]) -> dict[str, Any]:
    """A configuration with `"auto"`, which the Trainer fills in, wherever it leaves open what the settings say.

    Args:
        wanted: by place (`optimizer.params.lr`) the settings' value, and where they have it from.

    Raises:
        UserError: the configuration says something else than the settings.
    """
    configuration = read(name)
    if "scheduler" in configuration:
        raise UserError(
            f"trainer.deepspeed: {name} has a scheduler, and the learning rate's course is that of trainer.warmup_ratio "
            "and trainer.schedule; leave scheduler out"
        )
    if not isinstance(configuration.get("zero_optimization"), dict):
        raise UserError(
            f'trainer.deepspeed: {name} has no zero_optimization, such as {{"stage": 3}}; add it, or leave trainer.deepspeed out'
        )
    for place, (value, source) in wanted.items():
        *way, key = place.split(".")
        node = configuration
        for step in way:
            node = node.setdefault(step, {})
            if not isinstance(node, dict):
                raise UserError(f"trainer.deepspeed: {name} has {step} = {json.dumps(node)}; it is an object")
        if node.get(key) is None:
            if key not in _OF_ADAM:
                node[key] = "auto"
        elif node[key] not in ("auto", value):
            raise UserError(
                f"trainer.deepspeed: {name} has {place} = {json.dumps(node[key])}, and {source} comes to "
                f'{json.dumps(value)}; write "auto" there or leave it out'
            )
    return configuration
