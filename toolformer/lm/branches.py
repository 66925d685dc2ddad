"""Continuations of a language model that share a key-value cache, each with its own tokens.

Masks and positions stay in main memory; the model moves them to its device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache

from toolformer.lm import batching, kv_cache


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

    forward: Callable[..., torch.Tensor]
    """`LanguageModel.forward`."""
    cache: Cache
    visible: torch.Tensor
    """[rows, columns, cached]: which cached keys each branch sees."""
    positions: torch.Tensor
    """[rows, columns]: position id of the next token of each branch."""

    def step(self, tokens: torch.Tensor, idle: Sequence[int] = ()) -> torch.Tensor:
        """Feeds one token per branch [rows, columns]; returns the logits after it [rows, columns, vocabulary].

        Tokens fed to the rows of `idle` are hidden from all later ones.
        """
        rows, columns = tokens.shape
        itself = torch.eye(columns, dtype=torch.bool).expand(rows, columns, columns)
        self.visible = torch.cat([self.visible, itself], dim=2)
        logits = self.forward(tokens, self.visible, self.positions, self.cache)
        self.positions = self.positions + 1
        if idle:
            index = torch.tensor(list(idle))
            self.visible[index, :, -columns:] = False
            self.positions[index] -= 1
        return logits

    def extend(self, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Feeds any number of tokens to rows of one column each; returns the last logits [rows, vocabulary]."""
        ids, valid = batching.pad_left(tokens)
        length = ids.shape[1]
        seen = torch.cat([self.visible[:, 0], valid], dim=1)
        positions = self.positions + (valid.long().cumsum(1) - 1).clamp(min=0)
        logits = self.forward(ids, batching.causal(seen, length), positions, self.cache, 1)
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
        self.cache = kv_cache.kept(self.cache, rows)
        self.visible = self.visible[index]
        self.positions = self.positions[index]

    def hide_last(self, hidden: torch.Tensor) -> None:
        """Hides the last `hidden` [rows, columns] cached keys from each branch, which continues before them."""
        cached = self.visible.shape[2]
        self.visible = self.visible & (torch.arange(cached) < cached - hidden[:, :, None])
        self.positions = self.positions - hidden

    def forget(self, row: int, tokens: int) -> None:
        """Rolls back the last tokens that a row of one column has read."""
        if tokens:
            seen = self.visible[row, 0].nonzero()[:, 0]
            self.visible[row, 0, seen[-tokens:]] = False
            self.positions[row] -= tokens

    @staticmethod
    def join(parts: Sequence[tuple[Branches, Sequence[int]]]) -> Branches:
        """These rows of several batches of one column, side by side; cached keys that no row sees are dropped."""
        seen = [branches.visible[list(rows), 0] for branches, rows in parts]
        length = max(int(part_seen.sum(1).max()) for part_seen in seen)
        caches = []
        for (branches, rows), part_seen in zip(parts, seen, strict=True):
            # A stable sort moves the visible tokens to the end, in their order.
            order = part_seen.long().argsort(dim=1, stable=True)
            order = torch.nn.functional.pad(order, (max(0, length - order.shape[1]), 0))[:, -length:]
            part = branches.cache
            if list(rows) != list(range(branches.visible.shape[0])):
                part = kv_cache.kept(part, rows)
            caches.append((part, order))
        counts = torch.cat([part_seen.sum(1) for part_seen in seen])
        visible = torch.arange(length)[None] >= (length - counts)[:, None]
        positions = torch.cat([branches.positions[list(rows)] for branches, rows in parts])
        return Branches(parts[0][0].forward, kv_cache.gathered(caches), visible[:, None], positions)
