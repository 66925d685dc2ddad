"""The systems that are compared, and the settings of decoding."""

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from toolformer.data.bounds import (
    Count,
    CountOrAuto,
    CountOrNone,
    Finite,
    NumberByName,
    OneOf,
    Share,
    TextByName,
)
from toolformer.errors import UserError, near
from toolformer.step import NOTHING

SYSTEMS = {
    "model": "M",
    "model_cc": "M + CC",
    "toolformer_disabled": "Toolformer (disabled)",
    "toolformer": "Toolformer",
    "prompted": "Prompted",
    "baseline": "Baseline",
}
PAPER_SYSTEMS = tuple(SYSTEMS)[:4]
"""The four that the paper compares, in its order."""
PLAIN = ("model", "model_cc", "baseline")
"""Systems that were never taught to call: decoded as they are, no token forbidden."""
CALLING = ("toolformer", "prompted")
"""Systems that call tools."""
TRAINED_ON = {"model_cc": "plain", "toolformer_disabled": "augmented", "toolformer": "augmented"}
"""The data of the systems that are trained; two of them are one model."""

POLICIES = {"topk": "k", "bias": "bias", "threshold": "threshold"}
"""When a call starts: the policies, each with the setting that it reads."""
TUNED = "tuned"
"""The policy that is stored with the model (toolformer tune-policy): one of the others."""
BATCH_SIZE = 32
"""Prompts decoded together where their number is `auto` and no GPU's memory is to be filled."""


@dataclass(kw_only=True)
class Decoding:
    """When a call starts, and its limits (paper, section 4.2)."""

    policy: Annotated[str, OneOf(*POLICIES, TUNED)] = "topk"
    """When a call starts: topk (the paper's, by k), bias, threshold, or tuned, the policy that `toolformer tune-policy`
    stored with the model."""
    k: CountOrNone = 10
    """A call starts when <API> is among the k most likely next tokens; 1 is plain greedy, 0 disables calls, also under
    the other policies."""
    bias: Finite | None = None
    """policy=bias: a call starts when the logit of <API> plus this is the largest of all; 0 is plain greedy."""
    threshold: Share | None = None
    """policy=threshold: a call starts when the probability of <API> is at least this."""
    by_tool: NumberByName = None
    """The policy's number for single tools, by key: with k: 1, {calendar: 10} starts calls of the calendar at k = 10,
    and all others at k = 1."""
    stand_in: TextByName = None
    """Beyond the paper: by the key of a tool, the fallback tool that is called where a benchmark switches it off;
    with {search: qa} a model that would search asks question answering instead, by which LAMA may be answered."""
    name_bias: NumberByName = None
    """Beyond the paper: a logit bias on a tool's name where a call starts, in nats by key; {search: 2} makes search
    e² times as likely relative to the other names. Where a call starts, the policy alone decides."""
    max_calls: Count = 1
    """Calls per input at most."""
    max_call_tokens: Count = 40
    """Tokens of a call at most."""
    max_result_tokens: Count = 64
    """Tokens of a result at most."""
    min_new_tokens: CountOrNone = 0
    """No end of text before so many tokens: chat models end at once where a plain language model writes on."""
    constrain_tool_name: bool = True
    """A call has the name of an allowed tool followed by a parenthesis, and no other call starts inside it; false:
    all of it is decoded greedily, as in the paper."""
    batch_size: Annotated[CountOrAuto, NOTHING] = "auto"
    """Prompts decoded together. auto: by a GPU's free memory and the longest prompt, at most 256; 32 on a CPU. Halved once
    if the GPU's memory is full."""


def check_decoding(settings: Decoding, tools: Collection[str]) -> None:
    """Refuses a policy without its value, a value without its policy, and keys of tools that there are not."""
    for policy, key in POLICIES.items():
        value = getattr(settings, key)
        if policy == settings.policy and value is None:
            raise UserError(f"decoding.{key} is missing: decoding.policy={policy} needs a number")
        if policy not in (settings.policy, "topk") and value is not None:  # k has a default
            raise UserError(
                f"decoding.{key} is {value}, but decoding.policy is {settings.policy}, which does not read it; add "
                f"decoding.policy={policy}, or leave it out"
            )
    if settings.by_tool and settings.policy == TUNED:
        raise UserError(
            "decoding.by_tool: decoding.policy=tuned has its own values by tool; leave one of the two out"
        )
    keys = {
        "by_tool": settings.by_tool or {},
        "stand_in": itertools.chain(*(settings.stand_in or {}).items()),
        "name_bias": settings.name_bias or {},
    }
    for key, tool in ((key, tool) for key, among in keys.items() for tool in among):
        if tool not in tools:
            raise UserError(f"decoding.{key}: there is no tool {tool}{near(tool, tools)}")
        if key != "by_tool" and not settings.constrain_tool_name:
            raise UserError(
                f"decoding.{key} is for names that decoding chooses: set decoding.constrain_tool_name=true, or leave it out"
            )
    for tool, value in (settings.by_tool or {}).items():
        if settings.policy == "topk" and (value < 0 or value % 1):
            raise UserError(f"decoding.by_tool.{tool} is {value:g}; a k must be a whole number, 0 or more")


def with_policy(
    settings: Decoding, policy: str, value: float, by_tool: Mapping[str, float] | None = None
) -> Decoding:
    """The settings with this policy, its value and its values by tool, and none of any other."""
    values: dict[str, Any] = {"bias": None, "threshold": None, POLICIES[policy]: value}
    if policy == "topk":
        values["k"] = int(value)
    return replace(settings, policy=policy, by_tool=dict(by_tool) if by_tool else None, **values)


def cache_key_fields(settings: Mapping[str, Any], tools: Collection[str]) -> dict[str, Any]:
    """The settings of decoding that decide a completion, where these tools may be called.

    Of the policies only the chosen one is included, and top-k without its name; of values by tool those of these tools.
    """
    policy = settings["policy"] if settings["k"] else "topk"
    unread = {"batch_size", *POLICIES.values()} - {POLICIES.get(policy, "")}
    by_tool = {
        name: {key: value for key, value in (settings[name] or {}).items() if key in tools and settings["k"]}
        for name in ("by_tool", "stand_in", "name_bias")
    }
    by_tool["stand_in"] = {off: tool for off, tool in by_tool["stand_in"].items() if tool in tools}
    unread.update(name for name, values in by_tool.items() if not values)
    if policy == "topk":
        unread.add("policy")
    return {name: by_tool.get(name, value) for name, value in settings.items() if name not in unread}


def policy_label(settings: Mapping[str, Any]) -> str:
    """When a call starts, in words, from `cache_key_fields`: k alone of top-k, else the policy with its value; then by tool,
    and the number of calls where it is not one."""
    policy = settings.get("policy", "topk")
    value = settings.get(POLICIES.get(policy, ""))
    common = str(value) if policy == "topk" else f"{policy} {value:g}" if value is not None else policy
    parts = [f"{tool} {number:g}" for tool, number in (settings.get("by_tool") or {}).items()]
    parts += [f"{tool} for {off}" for off, tool in (settings.get("stand_in") or {}).items()]
    parts += [f"name of {tool} {nats:+g}" for tool, nats in (settings.get("name_bias") or {}).items()]
    parts += [f"{calls} calls"] if (calls := settings.get("max_calls", 1)) > 1 else []
    return ", ".join([common, *parts])
