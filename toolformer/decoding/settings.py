"""What answers, and how: the systems that are compared, and the settings of decoding."""

import itertools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from toolformer.data.bounds import Count, CountOrNone, Finite, NumberByName, OneOf, Share, TextByName
from toolformer.errors import UserError, near
from toolformer.step import NOTHING, Decides
from toolformer.storage import write_whole

SYSTEMS = {
    "model": "M",
    "model_cc": "M + CC",
    "toolformer_disabled": "Toolformer (disabled)",
    "toolformer": "Toolformer",
    "prompted": "Prompted",
    "chat": "Chat",
    "baseline": "Baseline",
    "endpoint": "Endpoint",
}
PAPER_SYSTEMS = tuple(SYSTEMS)[:4]
"""The four that the paper compares, in its order."""
PLAIN = ("model", "model_cc", "baseline")
"""Systems that were never taught to call: decoded as they are, no token forbidden."""
CALLING = ("toolformer", "prompted", "chat")
"""Systems that call tools."""
TRAINED_ON = {"model_cc": "plain", "toolformer_disabled": "augmented", "toolformer": "augmented"}
"""The data of the systems that are trained; two of them are one model."""

POLICIES = {"topk": "k", "bias": "bias", "threshold": "threshold"}
"""When a call starts: the policies, each with the setting that it reads."""
TUNED = "tuned"
"""The policy that is stored with the model (toolformer tune-policy), which stands for one of the others."""
STORED = "call_policy.json"
"""In a model's folder: that policy."""


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
    """The policy's number for tools that have one of their own, by key: with k: 1, {calendar: 10} starts calls of the
    calendar at k = 10, and all others at k = 1."""
    stand_in: TextByName = None
    """Beyond the paper: by the key of a tool, the one that is called in its place where a benchmark switches it off; with
    {search: qa} a model that would search asks question answering instead, by which LAMA may be answered."""
    name_bias: NumberByName = None
    """Beyond the paper: nats added to a tool's name where a call starts, by key; {search: 2} makes search e² times as likely
    against the other names. The start itself is the policy's."""
    max_calls: CountOrNone = 1
    """Calls per input at most."""
    max_call_tokens: Count = 40
    """Tokens of a call at most."""
    max_result_tokens: Count = 64
    """Tokens of a result at most."""
    min_new_tokens: CountOrNone = 0
    """No end of text before so many tokens: chat models end at once where a plain language model writes on."""
    constrain_tool_name: bool = True
    """A call has the name of an allowed tool and a parenthesis behind it, and no other call starts inside of it; false: all
    of it is decoded greedily, as in the paper."""
    batch_size: Annotated[Count, NOTHING] = 32
    """Prompts decoded together."""


def check(settings: Decoding, tools: Collection[str]) -> None:
    """Refuses a policy without its value, a value without its policy, and one for what is none of the tools, by key."""
    for policy, key in POLICIES.items():
        value = getattr(settings, key)
        if policy == settings.policy and value is None:
            raise UserError(f"decoding.{key} is missing: decoding.policy={policy} needs a number")
        if policy not in (settings.policy, "topk") and value is not None:  # k has a default
            raise UserError(
                f"decoding.{key} is {value}, but decoding.policy is {settings.policy}, which does not read it; add "
                f"decoding.policy={policy}, or leave it out"
            )
    for tool, value in (settings.by_tool or {}).items():
        if tool not in tools:
            raise UserError(f"decoding.by_tool: there is no tool {tool}{near(tool, tools)}")
        if settings.policy == TUNED:
            raise UserError("decoding.by_tool: the policy tuned has its own; leave one of the two out")
        if settings.policy == "topk" and (value < 0 or value % 1):
            raise UserError(f"decoding.by_tool.{tool} is {value:g}; a k must be a whole number, 0 or more")
    named = {
        "stand_in": itertools.chain(*(settings.stand_in or {}).items()),
        "name_bias": settings.name_bias or {},
    }
    for key, among in named.items():
        for tool in among:
            if tool not in tools:
                raise UserError(f"decoding.{key}: there is no tool {tool}{near(tool, tools)}")
            if not settings.constrain_tool_name:
                raise UserError(
                    f"decoding.{key} is for names that decoding chooses: set decoding.constrain_tool_name=true, or leave it out"
                )


def under(
    settings: Decoding, policy: str, value: float, by_tool: Mapping[str, float] | None = None
) -> Decoding:
    """The settings with this policy, its value and those of tools with their own, and no other's."""
    values: dict[str, Any] = {
        "bias": None,
        "threshold": None,
        POLICIES[policy]: int(value) if policy == "topk" else value,
    }
    return replace(settings, policy=policy, by_tool=dict(by_tool) if by_tool else None, **values)


def deciding(settings: Mapping[str, Any], tools: Collection[str]) -> dict[str, Any]:
    """The settings of decoding that decide a completion, where these tools may be called.

    Of the policies only the chosen one's, and top-k goes unnamed; what a tool has of its own, of these tools alone.
    """
    policy = settings["policy"] if settings["k"] else "topk"
    unread = {"batch_size", *POLICIES.values()} - {POLICIES.get(policy, "")}
    if policy == "topk":
        unread.add("policy")
    of_tools: dict[str, dict[str, Any]] = {}
    for name in ("by_tool", "stand_in", "name_bias"):
        of_tools[name] = {
            tool: own for tool, own in (settings[name] or {}).items() if tool in tools and settings["k"]
        }
    of_tools["stand_in"] = {off: tool for off, tool in of_tools["stand_in"].items() if tool in tools}
    unread.update(name for name, own in of_tools.items() if not own)
    return {name: of_tools.get(name, value) for name, value in settings.items() if name not in unread}


def shown(settings: Mapping[str, Any]) -> str:
    """What `deciding` says of when a call starts: k alone of top-k, else the policy with its value; then what tools have of their own."""
    policy = settings.get("policy", "topk")
    value = settings.get(POLICIES.get(policy, ""))
    common = str(value) if policy == "topk" else f"{policy} {value:g}" if value is not None else policy
    own = settings.get("by_tool") or {}
    parts = [f"{tool} {number:g}" for tool, number in own.items()]
    parts += [f"{tool} for {off}" for off, tool in (settings.get("stand_in") or {}).items()]
    parts += [f"name of {tool} {nats:+g}" for tool, nats in (settings.get("name_bias") or {}).items()]
    return ", ".join([common, *parts])


def store_policy(
    folder: Path,
    policy: str,
    value: float,
    run: str,
    development: Mapping[str, Sequence[str]],
    by_tool: Mapping[str, float] | None = None,
) -> None:
    """Stores a policy with a model, in place of one that it has.

    Args:
        run: the id of the run that chose it.
        development: by benchmark, the ids of the examples that it was chosen on.
    """
    record = {"policy": policy, "value": value, "run": run, "development": development}
    record |= {"by_tool": by_tool} if by_tool else {}
    write_whole(folder / STORED, f"{json.dumps(record)}\n".encode())


def chosen_on(model: str | Path, task: str, ids: Iterable[str]) -> int:
    """Of how many of these examples the answers chose the policy that is stored with a model."""
    record = json.loads((Path(model).expanduser() / STORED).read_text(encoding="utf-8"))
    return len(set(ids).intersection(record.get("development", {}).get(task, ())))


def tuned(settings: Decoding, model: str | Path) -> Decoding:
    """The settings with the policy that is stored in a model's folder, where they ask for it; UserError if there is none."""
    if settings.policy != TUNED:
        return settings
    path = Path(model).expanduser() / STORED
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        policy, value = record["policy"], float(record["value"])
        by_tool = {str(tool): float(own) for tool, own in record.get("by_tool", {}).items()}
        return under(settings, policy, value, by_tool)
    except OSError as error:
        raise UserError(
            f"decoding.policy=tuned: {model} has no {STORED}; `toolformer tune-policy` chooses a policy for a trained "
            "model, or name one: topk, bias or threshold"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(
            f"decoding.policy=tuned: {path} cannot be read ({error}); give `toolformer tune-policy` again"
        ) from error


@dataclass
class Chat:
    """An instruct model with tools (system=chat)."""

    tools: Annotated[str, OneOf("template", "system")] = "template"
    """How it is offered its tools: by its own chat template, or in a message of the system, where the template has no
    tools."""


@dataclass
class Endpoint:
    """An endpoint that speaks OpenAI's protocol (system=endpoint)."""

    url: Annotated[str | None, Decides("answer")] = None
    """The whole address, such as http://127.0.0.1:8000/v1/completions."""
    api: Annotated[str, OneOf("completions", "chat"), Decides("answer")] = "completions"
    """completions: prompts are continued as they are; chat: they are messages (…/v1/chat/completions), and the model is
    offered the tools."""
    model: Annotated[str | None, Decides("answer")] = None
    """The model's name there."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; a server that wants none needs none."""
    tokenizer: Annotated[str | None, Decides("evaluate")] = None
    """The served model's tokenizer, a folder or hub name; perplexity needs it, and cutting prompts to max_length."""
    concurrency: Count = 4
    """Requests under way at once."""
    timeout: Count = 300
    """Seconds a request may take."""
    tries: Count = 3
    """How often a request is made before the evaluation ends."""
    max_length: Annotated[int, Field(ge=8), Decides("evaluate")] = 2048
    """Tokens the served model can read at once."""
