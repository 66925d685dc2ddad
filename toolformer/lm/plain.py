"""Stock forward passes, without cache, mask or padding, and rows that are read with them: exact for every causal model, and slow.

A model may ignore a cache, a mask or position ids, count keys instead of tokens (ALiBi), or keep a state in place of keys
(Mamba). Here each sequence is read from its beginning for every requested token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from toolformer.lm import batching
from toolformer.lm.network import Network


class PlainRows:
    """Rows that are lists of tokens; see `rows.Rows`."""

    def __init__(self, language_model: Network, heads: Iterable[Sequence[int]] = ()) -> None:
        del heads  # read again with every row
        self._model = language_model
        self._rows: dict[int, tuple[int, ...]] = defaultdict(tuple)
        self._branches: list[tuple[int, tuple[int, ...]] | None] = []

    def read(
        self,
        rows: Sequence[int],
        tokens: Sequence[Sequence[int]] | torch.Tensor,
        every: Sequence[int] = (),
    ) -> torch.Tensor:
        """See `Rows`."""
        self._end_branches(rows)
        given = tokens.tolist() if isinstance(tokens, torch.Tensor) else tokens
        for row, some in zip(rows, given, strict=True):
            self._rows[row] += (some,) if isinstance(some, int) else tuple(some)
        counts = every or [1] * len(rows)
        sequences = [self._rows[row] or (0,) for row in rows]
        return _logits_after(
            self._model,
            [ids[: len(ids) - n] for ids, count in zip(sequences, counts, strict=True) for n in reversed(range(count))],
        )  # fmt: skip

    def fork(self, row: int, ends: Sequence[int]) -> range:
        """See `Rows`."""
        before = len(self._branches)
        self._branches += [(row, self._rows[row][:end]) for end in ends]
        return range(before, len(self._branches))

    def step(self, branches: Sequence[int] | np.ndarray, tokens: Sequence[int] | np.ndarray) -> torch.Tensor:
        """See `Rows`."""
        named = [branch for n in branches if (branch := self._branches[n])]
        grown = [(row, (*ids, int(token))) for (row, ids), token in zip(named, tokens, strict=True)]
        self._branches = list(grown)
        return _logits_after(self._model, [ids for _, ids in grown])

    def rewind(self, row: int, length: int) -> None:
        """See `Rows`."""
        self._end_branches([row])
        self._rows[row] = self._rows[row][:length]

    def free(self, row: int) -> None:
        """See `Rows`."""
        self._end_branches([row])
        self._rows.pop(row, None)

    def _end_branches(self, rows: Sequence[int]) -> None:
        kept = [None if branch is None or branch[0] in rows else branch for branch in self._branches]
        self._branches = kept if any(kept) else []


def _logits_after(model: Network, sequences: Sequence[tuple[int, ...]]) -> torch.Tensor:
    """Logits [sequences, vocabulary] after each; one pass serves all sequences that are its beginning."""
    passes: list[tuple[int, ...]] = []
    pass_of: dict[tuple[int, ...], int] = {}
    for sequence in sorted(set(sequences), key=len, reverse=True):
        longer = (n for n, other in enumerate(passes) if other[: len(sequence)] == sequence)
        pass_of[sequence] = next(longer, len(passes))
        if pass_of[sequence] == len(passes):
            passes.append(sequence)
    ends: list[list[int]] = [[] for _ in passes]
    for sequence, n in pass_of.items():
        ends[n].append(len(sequence) - 1)
    logits = read(model, passes, ends)
    return torch.stack([logits[pass_of[ids]][ends[pass_of[ids]].index(len(ids) - 1)] for ids in sequences])


def read(
    model: Network, sequences: Sequence[Sequence[int]], indices: Sequence[Sequence[int]]
) -> list[torch.Tensor]:
    """Logits [indices, vocabulary] after these tokens of each sequence; only sequences of equal length share a pass."""
    lengths = [len(ids) for ids in sequences]
    logits = [torch.empty(0)] * len(sequences)

    def fits(batch: list[int]) -> bool:
        size = lengths[batch[0]]
        return size == lengths[batch[-1]] and size * len(batch) <= batching.rows_per_batch(model.batch_tokens)

    for batch in batching.batches(lengths, fits):
        ids = torch.tensor([list(sequences[n]) for n in batch], device=model.device)
        with torch.inference_mode():
            rows = model.model(input_ids=ids, use_cache=False).logits
        for n, row in zip(batch, rows, strict=True):
            logits[n] = row[list(indices[n])]
    return logits
