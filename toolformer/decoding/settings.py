"""The systems that are compared, and the settings of decoding."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Self

from toolformer.data.bounds import (
    Count,
    CountOrAuto,
    NonNegativeInt,
)
from toolformer.errors import UserError, near
from toolformer.step import NOTHING
from toolformer.tools.limits import Calling


@dataclass(frozen=True)
class SystemType:
    """A kind of system that is compared."""

    title: str
    trained_on: str = ""
    """The data of its training; empty where it is not trained. Two systems are one model."""
    knows_calls: bool = False
    """Whether the start token is forbidden where no call may start; otherwise the model is decoded as it is."""
    calls_tools: bool = False


SYSTEMS: Mapping[str, SystemType] = {
    "model": SystemType("M"),
    "model_cc": SystemType("M + CC", "plain"),
    "toolformer_disabled": SystemType("Toolformer (disabled)", "augmented", knows_calls=True),
    "toolformer": SystemType("Toolformer", "augmented", knows_calls=True, calls_tools=True),
    "prompted": SystemType("Prompted", knows_calls=True, calls_tools=True),
    "baseline": SystemType("Baseline"),
}
"""By their keys in the configuration."""
PAPER_SYSTEMS = tuple(SYSTEMS)[:4]
"""The four that the paper compares, in its order."""


def trained_on(system: str) -> str:
    """The data of a system's training; empty for one that is not trained, or not known."""
    return SYSTEMS[system].trained_on if system in SYSTEMS else ""


ANY_RANK = 1 << 31
"""A k that every start token is within: no vocabulary is as large."""


@dataclass(kw_only=True)
class Decoding:
    """When a call starts, and its limits (paper, section 4.2)."""

    k: NonNegativeInt = 10
    """A call starts when the call token is among the k most likely next tokens; 1 is plain greedy decoding, 0 disables calls."""
    max_calls: Count = 1
    """Maximum calls per input."""
    min_new_tokens: NonNegativeInt = 0
    """Minimum tokens of an answer. Chat models would end at once where a plain language model writes on."""
    constrain_tool_name: bool = True
    """A call must begin with the name of an allowed tool and a parenthesis, and no other call may start inside it; false
    decodes the whole call greedily, as in the paper."""
    batch_size: Annotated[CountOrAuto, NOTHING] = "auto"
    """Prompts decoded together, the last of all up to an eighth more. auto: 64 on a GPU, 32 on a CPU. Halved once if the GPU's memory is full."""

    def without_calls(self) -> Self:
        """The same, where no call starts."""
        return replace(self, k=0)

    def forced(self) -> Self:
        """The same, where a call of whichever tool starts before the first token, and no other."""
        return replace(self, k=ANY_RANK, max_calls=1)


def check_calling(settings: Decoding, tools: Mapping[str, Calling]) -> None:
    """Refuses a fallback that is not a tool, and one where names are not constrained. `tools` are by key."""
    for key, tool in tools.items():
        if tool.fallback is None:
            continue
        if tool.fallback not in tools:
            raise UserError(
                f"tool.{key}.fallback: there is no tool {tool.fallback}{near(tool.fallback, tools)}"
            )
        if not settings.constrain_tool_name:
            raise UserError(
                f"tool.{key}.fallback needs decoding.constrain_tool_name=true; set that, or leave the fallback out"
            )


def policy_label(settings: Decoding, tools: Mapping[str, Calling]) -> str:
    """When a call starts, in words: k, then the k and the fallback of these tools that have one, and more calls than one."""
    parts = [str(settings.k)]
    parts += [f"{key} {tool.k}" for key, tool in tools.items() if tool.k is not None]
    parts += [f"{tool.fallback} for {key}" for key, tool in tools.items() if tool.fallback in tools]
    parts += [f"{settings.max_calls} calls"] if settings.max_calls > 1 else []
    return ", ".join(parts)
