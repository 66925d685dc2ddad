"""Continuations of a language model that share a key-value cache, each with its own tokens.

Masks and positions stay in main memory; the model moves them to its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from transformers.cache_utils import Cache

from toolformer.lm import batching, kv_cache


class Reader(Protocol):
    """The part of `LanguageModel` that is used here."""

    def forward(
        self,
        ids: torch.Tensor,
        visible: torch.Tensor,
        positions: torch.Tensor,
        cache: Cache,
        keep: int | torch.Tensor = 0,
    ) -> torch.Tensor: ...

    def step(
        self,
        ids: torch.Tensor,
        visible: torch.Tensor,
        positions: torch.Tensor,
        cache: Cache,
        write_index: torch.Tensor | None = None,
    ) -> torch.Tensor: ...

    @property
    def steps_are_static(self) -> bool: ...


@dataclass(frozen=True)
class Prefix:
    """The key-value cache of tokens that many contexts share."""

    ids: list[int]
    cache: Cache


@dataclass(eq=False)
class Branches:
    """Continuations that grow side by side over cached contexts; each sees only its context and itself.

    Every context (row) has the same number of branches (columns). The cache of a context is stored once, however many
    branches grow from it: a branch is a row of the attention mask (a tree mask), not a copy of the cache.
    """

    model: Reader
    cache: Cache
    visible: torch.Tensor
    """[rows, columns, cached]: which cached keys each branch sees."""
    positions: torch.Tensor
    """[rows, columns]: position id of the next token of each branch."""

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Feeds one token per branch [rows, columns]; returns the logits after it [rows, columns, vocabulary]."""
        rows, columns = tokens.shape
        itself = torch.eye(columns, dtype=torch.bool).expand(rows, columns, columns)
        self.visible = torch.cat([self.visible, itself], dim=2)
        logits = self.model.step(tokens, self.visible, self.positions, self.cache)
        self.positions = self.positions + 1
        return logits

    def extend(self, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Feeds any number of tokens to rows of one column each; returns the last logits [rows, vocabulary]."""
        ids, valid = batching.pad_left(tokens)
        length = ids.shape[1]
        seen = torch.cat([self.visible[:, 0], valid], dim=1)
        positions = self.positions + (valid.long().cumsum(1) - 1).clamp(min=0)
        logits = self.model.forward(ids, batching.causal(seen, length), positions, self.cache, 1)
        self.visible = seen[:, None]
        self.positions = self.positions + valid.sum(1, keepdim=True)
        return logits[:, -1]

    def select(self, columns: torch.Tensor) -> None:
        """Continues with these columns of each row [rows, new columns]; a column named twice branches."""
        rows = torch.arange(len(columns))[:, None]
        self.visible = self.visible[rows, columns]
        self.positions = self.positions[rows, columns]

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Continues with only these contexts."""
        index = torch.tensor(list(rows))
        self.cache = kv_cache.selected(self.cache, rows)
        self.visible = self.visible[index]
        self.positions = self.positions[index]

    def hide_last(self, hidden: torch.Tensor) -> None:
        """Hides the last `hidden` [rows, columns] cached keys from each branch, which continues before them."""
        cached = self.visible.shape[2]
        self.visible = self.visible & (torch.arange(cached) < cached - hidden[:, :, None])
        self.positions = self.positions - hidden
