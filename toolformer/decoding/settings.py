"""The systems that are compared, and the settings of decoding."""

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

from toolformer.data.bounds import (
    Count,
    CountOrAuto,
    NonNegativeInt,
    NumberByName,
    TextByName,
)
from toolformer.errors import UserError, near
from toolformer.step import NOTHING, Varies


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

    k: Annotated[NonNegativeInt, Varies()] = 10
    """A call starts when <API> is among the k most likely next tokens; 1 is plain greedy, 0 disables calls."""
    by_tool: Annotated[NumberByName, Varies()] = None
    """A separate k per tool, by key: with k: 1, {calendar: 10} starts calls of the calendar at k = 10, and all others at
    k = 1."""
    stand_in: Annotated[TextByName, Varies()] = None
    """Beyond the paper: by the key of a tool, the fallback tool that is called where a benchmark switches it off;
    with {search: qa} a model that would search asks question answering instead, by which LAMA may be answered."""
    max_calls: Count = 1
    """Calls per input at most."""
    max_call_tokens: Count = 40
    """Tokens of a call at most."""
    max_result_tokens: Count = 64
    """Tokens of a result at most."""
    min_new_tokens: NonNegativeInt = 0
    """An answer does not end before it has so many tokens: chat models end at once where a plain language model writes on."""
    constrain_tool_name: bool = True
    """A call has the name of an allowed tool followed by a parenthesis, and no other call starts inside it; false:
    all of it is decoded greedily, as in the paper."""
    batch_size: Annotated[CountOrAuto, NOTHING] = "auto"
    """Prompts decoded together. auto: 64 on a GPU, 32 on a CPU. Halved once if the GPU's memory is full."""

    def without_calls(self) -> Self:
        """The same, where no call starts."""
        return replace(self, k=0)

    def forced(self) -> Self:
        """The same, where a call of whichever tool starts before the first token, and no other."""
        return replace(self, k=ANY_RANK, by_tool=None, max_calls=1)


def check_decoding(settings: Decoding, tools: Collection[str]) -> None:
    """Refuses keys of unknown tools, a k that is not a whole number, and a fallback tool where names are not constrained."""
    stand_in = settings.stand_in or {}
    by_key = {"by_tool": settings.by_tool or {}, "stand_in": itertools.chain(*stand_in.items())}
    for key, tool in ((key, tool) for key, keys in by_key.items() for tool in keys):
        if tool not in tools:
            raise UserError(f"decoding.{key}: there is no tool {tool}{near(tool, tools)}")
    if stand_in and not settings.constrain_tool_name:
        raise UserError(
            "decoding.stand_in is for names that decoding chooses: set decoding.constrain_tool_name=true, or leave it out"
        )
    for tool, k in (settings.by_tool or {}).items():
        if k < 0 or k % 1:
            raise UserError(f"decoding.by_tool.{tool} is {k:g}; a k must be a whole number, 0 or more")


def cache_key_fields(settings: Mapping[str, Any], tools: Collection[str]) -> dict[str, Any]:
    """The settings of decoding that decide a completion, where these tools may be called.

    Of the settings by tool only the entries of these tools are included, and none where no call may start.
    """
    by_tool = {
        name: {key: value for key, value in (settings[name] or {}).items() if key in tools and settings["k"]}
        for name in ("by_tool", "stand_in")
    }
    by_tool["stand_in"] = {off: tool for off, tool in by_tool["stand_in"].items() if tool in tools}
    unread = {"batch_size", *(name for name, values in by_tool.items() if not values)}
    return {name: by_tool.get(name, value) for name, value in settings.items() if name not in unread}


def policy_label(settings: Mapping[str, Any]) -> str:
    """When a call starts, in words, from `cache_key_fields`: k, then k by tool, fallback tools, and more calls than one."""
    parts = [str(settings["k"])]
    parts += [f"{tool} {k:g}" for tool, k in (settings.get("by_tool") or {}).items()]
    parts += [f"{tool} for {off}" for off, tool in (settings.get("stand_in") or {}).items()]
    parts += [f"{calls} calls"] if (calls := settings.get("max_calls", 1)) > 1 else []
    return ", ".join(parts)
