"""When a call starts, and which tool it names. `TopK` is the paper's rule (section 4.2); all else goes beyond the paper.

A policy sees the next-token logits of all rows that may call, once per step, and says which of them start a call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from toolformer.decoding.batch import Row
from toolformer.decoding.settings import POLICIES, Decoding
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Tool


class Policy:
    """Decides when a call starts."""

    def starts_call(self, logits: torch.Tensor, start_id: int, rows: Sequence[Row]) -> torch.Tensor:
        """Whether each row starts a call before its next token, [rows]; logits [rows, vocabulary] in fp32."""
        raise NotImplementedError

    def keeps_call(self, tool: str, start_id: int, row: Row) -> bool:
        """Whether a row's open call goes on, now that it is certain which tool it names; otherwise it is dropped."""
        return True


class Always(Policy):
    """Starts a call wherever one may start."""

    def starts_call(self, logits: torch.Tensor, start_id: int, rows: Sequence[Row]) -> torch.Tensor:
        return torch.ones(len(rows), dtype=torch.bool, device=logits.device)


@dataclass(frozen=True)
class Rule(Policy):
    """A call starts where a measure of the logits reaches a value."""

    value: float

    @staticmethod
    def measure(logits: torch.Tensor, start_id: int) -> torch.Tensor:
        """The measure of each row, [rows]; logits [rows, vocabulary]."""
        raise NotImplementedError

    @staticmethod
    def accepts(measure: Any, value: float) -> Any:
        """Whether a measure reaches the value: a tensor [rows] of bools, or a bool for a number."""
        return measure <= value

    def starts_call(self, logits: torch.Tensor, start_id: int, rows: Sequence[Row]) -> torch.Tensor:
        starts: torch.Tensor = self.accepts(self.measure(logits, start_id), self.value)
        return starts


class TopK(Rule):
    """The paper's: the start token is among the k most likely next tokens. Equally likely tokens do not push it down."""

    @staticmethod
    def measure(logits: torch.Tensor, start_id: int) -> torch.Tensor:
        """The start token's rank, from 1 on."""
        return (logits > logits[:, start_id, None]).sum(-1) + 1


class Bias(Rule):
    """The start token is the most likely one once this many nats are added to its logit."""

    @staticmethod
    def measure(logits: torch.Tensor, start_id: int) -> torch.Tensor:
        """Logit of the best other token minus that of the start token."""
        others = logits.index_fill(-1, torch.tensor([start_id], device=logits.device), float("-inf"))
        return others.amax(-1) - logits[:, start_id]


class Threshold(Rule):
    """The start token has at least this probability."""

    @staticmethod
    def measure(logits: torch.Tensor, start_id: int) -> torch.Tensor:
        """The start token's probability."""
        return logits.softmax(-1)[:, start_id]

    @staticmethod
    def accepts(measure: Any, value: float) -> Any:
        return measure >= value


RULES: Mapping[str, type[Rule]] = {"topk": TopK, "bias": Bias, "threshold": Threshold}
"""By `decoding.policy`."""


@dataclass(frozen=True)
class ByTool(Policy):
    """A rule for each tool, by its name in calls: a call starts under any of them, and goes on under that of its tool."""

    rules: Mapping[str, Rule]

    def starts_call(self, logits: torch.Tensor, start_id: int, rows: Sequence[Row]) -> torch.Tensor:
        measure = next(iter(self.rules.values())).measure(logits, start_id)
        return torch.stack([rule.accepts(measure, rule.value) for rule in self.rules.values()]).any(0)

    def keeps_call(self, tool: str, start_id: int, row: Row) -> bool:
        rule = self.rules.get(tool)
        assert row.at_start is not None
        return rule is None or bool(rule.starts_call(row.at_start[None].float(), start_id, [row]))


def configured(settings: Decoding, tools: Mapping[str, Tool]) -> Policy:
    """The policy that settings describe, for tools by key."""
    rule = RULES[settings.policy]
    value: float = getattr(settings, POLICIES[settings.policy])
    if not settings.by_tool:
        return rule(value)
    return ByTool({tool.name: rule(settings.by_tool.get(key, value)) for key, tool in tools.items()})


class ToolNames:
    """The tokens that may follow in an open call while it names its tool: an allowed one, then a parenthesis.

    Args:
        tools: by key, those that are not allowed too: a fallback is chosen by their logits.
        allowed: the keys of those that may be called.
        bias: by key, nats that are added to the logits of a tool's name.
        fallback: by the key of a tool that may not be allowed, the key of the tool to call instead.
    """

    def __init__(
        self,
        model: LanguageModel,
        tools: Mapping[str, Tool],
        allowed: Collection[str],
        bias: Mapping[str, float],
        fallback: Mapping[str, str],
    ) -> None:
        self._model = model
        self._bias = bias
        self._ids = {key: model.encode_after_start(tool.name) for key, tool in tools.items()}
        self._names = {key: tool.name for key, tool in tools.items() if key in allowed}
        self._instead = {
            key: other for key, other in fallback.items()
            if key in tools and key not in self._names and other in self._names
        }  # fmt: skip
        self._choices: dict[tuple[int, ...], list[tuple[int, int, float]]] = {}

    def named(self, body: Sequence[int]) -> str | None:
        """The tool's name if only one is left that begins with the tokens of an open call."""
        begun = self._begun(body)
        return self._names[begun[0]] if len(begun) == 1 else None

    def is_open(self, body: Sequence[int]) -> bool:
        """Whether a call with these tokens is still naming its tool."""
        return bool(self._begun(body) and self._following(tuple(body)))

    def best(self, body: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
        """The best token to follow `body`, [rows]; logits [rows, vocabulary]. Of equals, the smallest id."""
        written, read, nats = zip(*self._following(tuple(body)), strict=True)
        values = logits[:, read].double() + torch.tensor(nats, dtype=torch.float64, device=logits.device)
        return torch.tensor(written, device=logits.device)[values.argmax(-1)]

    def _begun(self, body: Sequence[int]) -> list[str]:
        return [key for key in self._names if self._ids[key][: len(body)] == list(body)]

    def _following(self, body: tuple[int, ...]) -> list[tuple[int, int, float]]:
        """Each token that may follow, the token whose logit counts for it, and the nats that are added."""
        if body not in self._choices:
            choices = []
            for key in self._begun(body):
                tokens = self._ids[key][len(body) : len(body) + 1] or self._model.opening_ids
                choices += [(token, token, self._bias.get(key, 0.0)) for token in tokens]
            if not body:
                choices += [
                    (self._ids[other][0], self._ids[key][0], self._bias.get(key, 0.0))
                    for key, other in self._instead.items()
                ]
            self._choices[body] = sorted(choices)
        return self._choices[body]
