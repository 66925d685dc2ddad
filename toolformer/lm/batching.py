"""Batches for a language model: padding, shared beginnings, and batches of similar length within a budget of tokens."""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

HEAD = 16
"""Minimum number of tokens that sequences have to share, so that these are read once."""


def padding_per_batch(tokens: int) -> int:
    """Maximum number of tokens of padding in a batch of new rows: another pass costs less than more of them."""
    return tokens // 16


def rows_per_batch(tokens: int) -> int:
    """Maximum number of tokens to project to the vocabulary, of a batch with so many."""
    return tokens // 2


def cached_per_batch(tokens: int) -> int:
    """Maximum number of cached keys of a batch's branches."""
    return 16 * tokens


def padded(sequences: Sequence[Sequence[int]]) -> torch.Tensor:
    """Ids [batch, longest], padded on the right: in a causal model no token sees that."""
    return pad_sequence([torch.tensor(ids, dtype=torch.long) for ids in sequences], batch_first=True)


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
    lengths: Sequence[int], rows: Sequence[int], tokens: int, padding: int | None = None
) -> Iterator[list[int]]:
    """Batches within the budgets of tokens fed, of these tokens of padding, and of rows projected."""

    order = _longest_first(lengths)

    def totals(counts: Sequence[int]) -> dict[int, int]:
        return dict(zip(order, itertools.accumulate(counts[n] for n in order), strict=True))

    projected, filled = totals(rows), totals(lengths)

    def within(batch: list[int], counts: Sequence[int], up_to: dict[int, int]) -> int:
        return up_to[batch[-1]] - up_to[batch[0]] + counts[batch[0]]

    def fits(batch: list[int]) -> bool:
        fed = len(batch) * lengths[batch[0]]
        return (
            fed <= tokens
            and within(batch, rows, projected) <= rows_per_batch(tokens)
            and (padding is None or fed - within(batch, lengths, filled) <= padding)
        )

    return batches(lengths, fits)


def shared_heads(sequences: Sequence[Sequence[int]]) -> list[list[int]]:
    """Common beginnings of sequences, at least one token of each left out."""
    groups: dict[tuple[int, ...], list[Sequence[int]]] = {}
    for ids in sequences:
        if len(ids) > HEAD:
            groups.setdefault(tuple(ids[:HEAD]), []).append(ids[:-1])
    shared = (os.path.commonprefix([*map(list, alike)]) for alike in groups.values() if len(alike) > 1)
    return [list(head) for head in shared]
