"""When a call starts (paper, section 4.2), and which tool it names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence

import torch

from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Tool

TIES = 8
"""Number of equally good tokens of which the first one is written; in bfloat16 a few of the best are often equal."""


def starts_call(start: torch.Tensor, best: torch.Tensor, k: int) -> torch.Tensor:
    """Whether each row starts a call: its start token is among the k most likely next tokens (paper, section 4.2).

    Of logits of any dtype: those of the start token [rows], and the best, falling [rows, at least k unless that is all of
    them]. Returns bools [rows]. Ties favour the start token.
    """
    return start >= best[:, min(k, best.shape[1]) - 1]


def likeliest(best: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The token with the largest logit, of equals the one with the smallest id [rows]; `best` and their `ids` are [rows, some]."""
    return ids.masked_fill(best < best.amax(-1, keepdim=True), torch.iinfo(ids.dtype).max).amin(-1)


class ToolNames:
    """The tokens that may follow in an open call while it names its tool: an allowed one, then a parenthesis.

    Args:
        tools: by key, those that are not allowed too: a fallback is chosen by their logits.
        allowed: the keys of those that may be called.
        fallback: by the key of a tool that may not be allowed, the key of the tool to call instead.
        is_free: whether a name may be spelled by any tokens, and what follows the parenthesis may be part of its token, as in
            the paper; otherwise a name has the tokens that the tokenizer gives it.
    """

    def __init__(
        self,
        model: LanguageModel,
        tools: Mapping[str, Tool],
        allowed: Collection[str],
        fallback: Mapping[str, str],
        is_free: bool = False,
    ) -> None:
        self._model = model
        self._is_free = is_free
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
        return bool(self._following(tuple(body)))

    def best(self, body: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
        """The best token to follow `body`, [rows]; logits [rows, vocabulary]. Of equals, the smallest id."""
        written, read = zip(*self._following(tuple(body)), strict=True)
        return torch.tensor(written, device=logits.device)[logits[:, read].argmax(-1)]

    def _begun(self, body: Sequence[int]) -> list[str]:
        if not self._is_free:
            return [key for key in self._names if self._ids[key][: len(body)] == list(body)]
        text = self._model.decode(body)
        return [
            key for key, name in self._names.items() if f"{name}(".startswith(text) or text.startswith(f"{name}(")
        ]  # fmt: skip

    def _following(self, body: tuple[int, ...]) -> list[tuple[int, int]]:
        """Each token that may follow, and the token whose logit counts for it."""
        if body not in self._choices:
            choices = {(token, token) for token in (self._spelled if self._is_free else self._tokens)(body)}
            if not body and not self._is_free:
                choices |= {(self._ids[other][0], self._ids[key][0]) for key, other in self._instead.items()}
            self._choices[body] = sorted(choices)
        return self._choices[body]

    def _tokens(self, body: tuple[int, ...]) -> set[int]:
        """The next tokens of the names that begin with this body, or a parenthesis."""
        tokens: set[int] = set()
        for key in self._begun(body):
            tokens.update(self._ids[key][len(body) : len(body) + 1] or self._model.opening_ids)
        return tokens

    def _spelled(self, body: tuple[int, ...]) -> set[int]:
        """The tokens that spell more of a name and its parenthesis, which are not yet complete."""
        text, texts = self._model.decode(body), self._model.sorted_texts
        tokens: set[int] = set()
        for key in self._begun(body):
            rest = f"{self._names[key]}("[len(text) :]
            if not rest:
                return set()
            for size in range(1, len(rest) + 1):
                start = bisect_left(texts, (rest[:size], 0))
                while start < len(texts) and (
                    texts[start][0] == rest[:size] or size == len(rest) and texts[start][0].startswith(rest)
                ):
                    tokens.add(texts[start][1])
                    start += 1
        return tokens
