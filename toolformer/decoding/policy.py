"""When a call starts (paper, section 4.2), and which tool it names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch

from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Tool


def starts_call(logits: torch.Tensor, start_id: int, k: int) -> torch.Tensor:
    """Whether each row starts a call: its start token is among the k most likely next tokens (paper, section 4.2).

    Logits [rows, vocabulary] in fp32; returns bools [rows]. Tokens that are equally likely do not push it down.
    """
    return (logits > logits[:, start_id, None]).sum(-1) < k


class ToolNames:
    """The tokens that may follow in an open call while it names its tool: an allowed one, then a parenthesis.

    Args:
        tools: by key, those that are not allowed too: a fallback is chosen by their logits.
        allowed: the keys of those that may be called.
        fallback: by the key of a tool that may not be allowed, the key of the tool to call instead.
    """

    def __init__(
        self,
        model: LanguageModel,
        tools: Mapping[str, Tool],
        allowed: Collection[str],
        fallback: Mapping[str, str],
    ) -> None:
        self._model = model
        self._ids = {key: model.encode_after_start(tool.name) for key, tool in tools.items()}
        self._names = {key: tool.name for key, tool in tools.items() if key in allowed}
        self._instead = {
            key: other for key, other in fallback.items()
            if key in tools and key not in self._names and other in self._names
        }  # fmt: skip
        self._choices: dict[tuple[int, ...], list[tuple[int, int]]] = {}

    def named(self, body: Sequence[int]) -> str | None:
        """The tool's name if only one is left that begins with the tokens of an open call."""
        begun = self._begun(body)
        return self._names[begun[0]] if len(begun) == 1 else None

    def is_open(self, body: Sequence[int]) -> bool:
        """Whether a call with these tokens is still naming its tool."""
        return bool(self._begun(body) and self._following(tuple(body)))

    def best(self, body: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
        """The best token to follow `body`, [rows]; logits [rows, vocabulary]. Of equals, the smallest id."""
        written, read = zip(*self._following(tuple(body)), strict=True)
        return torch.tensor(written, device=logits.device)[logits[:, read].argmax(-1)]

    def _begun(self, body: Sequence[int]) -> list[str]:
        return [key for key in self._names if self._ids[key][: len(body)] == list(body)]

    def _following(self, body: tuple[int, ...]) -> list[tuple[int, int]]:
        """Each token that may follow, and the token whose logit counts for it."""
        if body not in self._choices:
            choices = []
            for key in self._begun(body):
                tokens = self._ids[key][len(body) : len(body) + 1] or self._model.opening_ids
                choices += [(token, token) for token in tokens]
            if not body:
                choices += [(self._ids[other][0], self._ids[key][0]) for key, other in self._instead.items()]
            self._choices[body] = sorted(choices)
        return self._choices[body]
