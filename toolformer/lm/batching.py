"""Batches for a language model: padding, masks, length batches, and branches that share a cache.

Masks and positions stay in main memory; the model moves them to its device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers.cache_utils import Cache

from toolformer.lm import kv_cache

if TYPE_CHECKING:
    from toolformer.lm.language_model import LanguageModel

TOKENS_PER_BATCH = 2048
"""Tokens that a forward pass is fed at most, which bounds its memory. Half as many are projected to the vocabulary (1,024
rows of 50k logits in fp32 are 200 MB), and sixteen times as many are held in a cache that branches grow from."""


def rows_per_batch(tokens: int) -> int:
    """How many tokens of a batch may be projected to the vocabulary."""
    return tokens // 2


def cached_per_batch(tokens: int) -> int:
    """How many cached keys a batch's branches may have."""
    return 16 * tokens


@dataclass(frozen=True)
class Prefix:
    """The key-value cache of tokens that many contexts share."""

    ids: list[int]
    cache: Cache


@dataclass(eq=False)
class Branches:
    """Continuations that grow side by side over cached contexts, each seeing its own context and itself only.

    Every context (row) has the same number of branches (columns). The contexts' cache is stored once, however many
    branches grow from it: a branch is a row of the attention mask (a tree mask), not a copy of the cache.
    """

    model: LanguageModel
    cache: Cache
    visible: torch.Tensor
    """[rows, columns, cached]: which cached keys each branch sees."""
    positions: torch.Tensor
    """[rows, columns]: position id of the next token of each branch."""

    def step(self, tokens: torch.Tensor, idle: Sequence[int] = ()) -> torch.Tensor:
        """Feeds one token a branch [rows, columns]; returns the logits after it [rows, columns, vocabulary].

        What is fed to the rows of `idle` is never seen by what they are fed later.
        """
        rows, columns = tokens.shape
        itself = torch.eye(columns, dtype=torch.bool).expand(rows, columns, columns)
        self.visible = torch.cat([self.visible, itself], dim=2)
        logits = self.model.forward(tokens, self.visible, self.positions, self.cache)
        self.positions = self.positions + 1
        if idle:
            index = torch.tensor(list(idle))
            self.visible[index, :, -columns:] = False
            self.positions[index] -= 1
        return logits

    def extend(self, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Feeds tokens to rows of one column each, as many as each has; returns the last logits [rows, vocabulary]."""
        ids, valid = pad_left(tokens)
        length = ids.shape[1]
        seen = torch.cat([self.visible[:, 0], valid], dim=1)
        positions = self.positions + (valid.long().cumsum(1) - 1).clamp(min=0)
        logits = self.model.forward(ids, causal(seen, length), positions, self.cache, 1)
        self.visible = seen[:, None]
        self.positions = self.positions + valid.sum(1, keepdim=True)
        return logits[:, -1]

    def select(self, columns: torch.Tensor) -> None:
        """Goes on with these columns of each row [rows, new columns]; naming one twice makes it branch."""
        self.visible = self.visible.gather(1, columns[..., None].expand(-1, -1, self.visible.shape[2]))
        self.positions = self.positions.gather(1, columns)

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Goes on with these contexts only."""
        index = torch.tensor(list(rows))
        self.cache = kv_cache.kept(self.cache, rows)
        self.visible = self.visible[index]
        self.positions = self.positions[index]

    def forget(self, row: int, tokens: int) -> None:
        """Takes the last tokens that a row of one column has read back."""
        if tokens:
            seen = self.visible[row, 0].nonzero()[:, 0]
            self.visible[row, 0, seen[-tokens:]] = False
            self.positions[row] -= tokens

    @staticmethod
    def join(parts: Sequence[tuple[Branches, Sequence[int]]]) -> Branches:
        """The named rows of several batches of one column, side by side; what no row sees any more is dropped."""
        seen = [branches.visible[list(rows), 0] for branches, rows in parts]
        length = max(int(of_part.sum(1).max()) for of_part in seen)
        caches = []
        for (branches, rows), of_part in zip(parts, seen, strict=True):
            # A stable sort puts the tokens that are seen last, in their order.
            order = of_part.long().argsort(dim=1, stable=True)
            order = torch.nn.functional.pad(order, (max(0, length - order.shape[1]), 0))[:, -length:]
            part = branches.cache
            if list(rows) != list(range(branches.visible.shape[0])):
                part = kv_cache.kept(part, rows)
            caches.append((part, order))
        counts = torch.cat([of_part.sum(1) for of_part in seen])
        visible = torch.arange(length)[None] >= (length - counts)[:, None]
        positions = torch.cat([branches.positions[list(rows)] for branches, rows in parts])
        return Branches(parts[0][0].model, kv_cache.gathered(caches), visible[:, None], positions)


def pad_left(sequences: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and validity, both [batch, longest]."""
    ids = padded(sequences, "left")
    return ids, last_tokens([len(sequence) for sequence in sequences], ids.shape[1])


def padded(sequences: Sequence[Sequence[int]], side: str) -> torch.Tensor:
    """Ids [batch, longest], padded on the left or right; in a causal model no token sees the padding behind it."""
    rows = [torch.tensor(sequence, dtype=torch.long) for sequence in sequences]
    return pad_sequence(rows, batch_first=True, padding_side=side)


def last_tokens(counts: Sequence[int], length: int) -> torch.Tensor:
    """Mask [batch, length] of the last `counts[n]` tokens of each row."""
    return torch.arange(length)[None] >= length - torch.tensor(counts)[:, None]


def causal(key_valid: torch.Tensor, length: int) -> torch.Tensor:
    """[batch, length, keys]: each of the last `length` keys sees the valid keys up to itself, padding sees itself."""
    keys = key_valid.shape[1]
    key = torch.arange(keys)
    query = torch.arange(keys - length, keys)
    before = key[None, :] <= query[:, None]
    itself = key[None, :] == query[:, None]
    return (before[None] & key_valid[:, None, :]) | itself[None]


def batches(lengths: Sequence[int], fits: Callable[[list[int]], bool]) -> Iterator[list[int]]:
    """Indices in batches of similar length, longest first, each as large as `fits` allows, but of one at least."""
    batch: list[int] = []
    for n in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        if batch and not fits([*batch, n]):
            yield batch
            batch = []
        batch.append(n)
    if batch:
        yield batch


def by_length(
    lengths: Sequence[int], rows: Sequence[int], tokens: int = TOKENS_PER_BATCH
) -> Iterator[list[int]]:
    """Batches within the budgets of tokens fed and rows projected."""

    def fits(batch: list[int]) -> bool:
        projected = sum(rows[n] for n in batch)
        return len(batch) * lengths[batch[0]] <= tokens and projected <= rows_per_batch(tokens)

    return batches(lengths, fits)
