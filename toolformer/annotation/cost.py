"""What annotating texts costs, by the formula of docs/scaling.md: an estimate, at most, of what the model reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolformer.annotation.candidates import ToolSettings

CALL_TOKENS = 20
"""c: tokens of a sampled call."""
WITH_RESULT = 30
"""z: tokens of a call with its result."""
VALID = 0.5
"""Share of the samples that are valid calls and distinct."""
UTILISATION = 0.3
"""U: share of a GPU's peak that is reached; assumed."""
PEAK = {
    "NVIDIA A100": 312e12, "NVIDIA H100": 989e12, "NVIDIA H100 PCIe": 756e12, "NVIDIA H200": 989e12, "NVIDIA L40S": 362e12,
    "NVIDIA A40": 150e12, "NVIDIA L4": 121e12,
}  # fmt: skip
"""P: a GPU's operations per second in bfloat16, from data sheets, by the beginning of its name."""


def tokens_per_text(settings: ToolSettings, length: int) -> float:
    """T: tokens that the model reads of a text of `length` tokens that is tried for a tool, at most.

    The prompt's copy of the text and the text, L(ε), the samples, and two passes for each distinct valid call.
    """
    samples = settings.max_positions * settings.samples
    # A call without input, the calendar's, is always the same.
    distinct = 1 if settings.prompt.inputs(settings.name) == {""} else VALID * samples
    return 3 * length + samples * CALL_TOKENS + 2 * distinct * (length + WITH_RESULT)


def operations(parameters: int, tokens: float) -> float:
    """F x T: floating-point operations of a forward pass over tokens; attention is left out."""
    return 2 * parameters * tokens


def training_operations(parameters: int, tokens: float, has_checkpoints: bool) -> float:
    """Those of training on tokens: forward, backward and, with recomputed activations, forward again."""
    return operations(parameters, tokens) * (4 if has_checkpoints else 3)


def rate(device: str) -> float | None:
    """U x P: what a GPU reaches per second by its name; None for one whose peak is not known here."""
    known = [name for name in PEAK if re.match(rf"{name}(?!\w)", device)]
    return UTILISATION * PEAK[max(known, key=len)] if known else None
