"""Batches for a language model: padding, attention masks, and batches of similar length within a budget of tokens.

Masks and positions stay in main memory; the model moves them to its device.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import torch

TOKENS_PER_BATCH = 2048
"""Maximum number of tokens in a forward pass, which bounds its memory. Half as many are projected to the vocabulary (1,024
rows of 50k logits in fp32 are 200 MB), and a cache that branches grow from holds sixteen times as many."""


def rows_per_batch(tokens: int) -> int:
    """Maximum number of tokens of a batch to project to the vocabulary."""
    return tokens // 2


def cached_per_batch(tokens: int) -> int:
    """Maximum number of cached keys of a batch's branches."""
    return 16 * tokens


def pad_left(sequences: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and validity, both [batch, longest]."""
    ids = padded(sequences, "left")
    return ids, last_tokens([len(sequence) for sequence in sequences], ids.shape[1])


def padded(sequences: Sequence[Sequence[int]], side: str) -> torch.Tensor:
    """Ids [batch, longest], padded on the left or right; in a causal model no token sees padding on its right."""
    counts = [len(sequence) for sequence in sequences]
    ids = torch.zeros(len(counts), max(counts), dtype=torch.long)
    valid = last_tokens(counts, ids.shape[1])
    ids[valid if side == "left" else valid.flip(1)] = torch.tensor(
        [*itertools.chain(*sequences)], dtype=torch.long
    )
    return ids


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
    """Indices in batches of similar length, longest first, each as large as `fits` allows, with at least one index."""
    batch: list[int] = []
    for n in _longest_first(lengths):
        if batch and not fits([*batch, n]):
            yield batch
            batch = []
        batch.append(n)
    if batch:
        yield batch


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda n: -lengths[n])


def by_length(
    lengths: Sequence[int], rows: Sequence[int], tokens: int = TOKENS_PER_BATCH
) -> Iterator[list[int]]:
    """Batches within the budgets of tokens fed and rows projected."""

    order = _longest_first(lengths)
    up_to = dict(zip(order, itertools.accumulate(rows[n] for n in order), strict=True))

    def fits(batch: list[int]) -> bool:
        projected = up_to[batch[-1]] - up_to[batch[0]] + rows[batch[0]]
        return len(batch) * lengths[batch[0]] <= tokens and projected <= rows_per_batch(tokens)

    return batches(lengths, fits)
