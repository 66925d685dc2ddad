"""Rows: sequences that a causal model continues, in one right-padded store of keys and values.

A row is written from index 0 at its own length. So reading a prompt, a call's result or a single token is one verb, and taking
tokens back is a shorter length. A branch sees the beginning of a row and its own tokens: they are stored after the row's, and
the attention mask hides them from other branches, so the row itself is stored once.

`TreeRows` feeds the model a cache, a mask and position ids; `plain.PlainRows` has the same logits from stock forward passes,
for models that misread one of these. A probe decides when a model is loaded (`probe`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from toolformer.lm import batching
from toolformer.lm.graphs import StepGraphs
from toolformer.lm.network import Network
from toolformer.lm.store import Store

Numbers = Sequence[int] | np.ndarray
ENDED, NEW = -1, -1
"""In place of a branch's row, and of its cell."""


class Rows(Protocol):
    """Sequences of tokens, by number. A row is empty until something is read into it."""

    def read(
        self,
        rows: Sequence[int],
        tokens: Sequence[Sequence[int]] | torch.Tensor,
        every: Sequence[int] = (),
    ) -> torch.Tensor:
        """Appends tokens to different rows; returns the logits after the last token of each, [rows, vocabulary].

        `tokens` may be a tensor [rows] of one token each, on the model's device. Where no row gets more than one token, some
        may get none; their logits mean nothing. With `every`, all tokens are read in one pass, and the logits are those
        after the last `every[n]` tokens of row n, one row after another, [sum of every, vocabulary]. Branches of these rows end.
        """
        ...

    def fork(self, row: int, ends: Sequence[int]) -> range:
        """Starts a branch after `row[:end]` for each end; returns their numbers."""
        ...

    def step(self, branches: Numbers, tokens: Numbers) -> torch.Tensor:
        """Each branch reads a token; returns the logits after it [branches, vocabulary].

        From now on the branches are numbered as they are named here. One that is named twice has divided, and those not named
        have ended. Fastest with the branches of a row side by side, and the rows in the order in which they were first read.
        """
        ...

    def rewind(self, row: int, length: int) -> None:
        """Takes back all tokens of a row but the first `length`. Its branches end."""
        ...

    def free(self, row: int) -> None:
        """Empties a row. Its branches end."""
        ...


class TreeRows:
    """Rows in a store of keys and values.

    Args:
        heads: beginnings that many rows share. Their keys and values are computed once, and kept by the model.
    """

    def __init__(self, language_model: Network, heads: Iterable[Sequence[int]] = ()) -> None:
        self._model = language_model
        self._heads = sorted(map(tuple, heads), key=len, reverse=True)
        self._store = Store(language_model.state_shapes)
        has_graphs = language_model.graphs and not language_model.is_spread  # a graph is of one device
        self._graphs = StepGraphs(language_model.name) if has_graphs else None
        self._places: dict[int, int] = {}
        """Where each row is in the store. The rows of a step lie side by side, in its order: it reads views of the store."""
        self._lengths: dict[int, int] = {}
        self._next: tuple[list[int], torch.Tensor] | None = None
        """The rows of the last step, and the positions of their next tokens [rows] on the device."""
        self._branches = np.zeros((3, 0), dtype=np.int64)
        """For each branch: its row, ENDED if it has ended; its length; and its cell of the last step, NEW before its
        first."""
        self._seen = torch.zeros(0, 0, dtype=torch.bool)
        """Which keys of its row each branch sees [cells, keys]; several cells may be one branch's."""
        self._grown: dict[int, int] = {}
        """Tokens of branches that are stored after each row."""
        self._columns = torch.arange(0, device=language_model.device)
        text = language_model.model.config.get_text_config()
        self._kinds = set(getattr(text, "layer_types", None) or ["sliding_attention"])
        is_sliding = "sliding_attention" in self._kinds
        self._window: int | None = getattr(text, "sliding_window", None) if is_sliding else None
        limits = torch.tensor([torch.finfo(language_model.dtype).min, 0.0], dtype=language_model.dtype)
        self._hidden, self._visible = limits.to(language_model.device)

    @torch.inference_mode()
    def read(
        self,
        rows: Sequence[int],
        tokens: Sequence[Sequence[int]] | torch.Tensor,
        every: Sequence[int] = (),
    ) -> torch.Tensor:
        """See `Rows`."""
        self._end_branches(rows)
        if isinstance(tokens, torch.Tensor) or not every and all(len(some) <= 1 for some in tokens):
            return self._read_one(list(rows), tokens)
        self._next = None
        heads = [self._head(row, some) for row, some in zip(rows, tokens, strict=True)]
        counts = [len(some) - len(head) for some, head in zip(tokens, heads, strict=True)]
        if every:
            return self._read_several(rows, tokens, heads, every)
        budget = self._model.batch_tokens
        order: list[int] = []
        parts: list[torch.Tensor] = []
        padding = batching.padding_per_batch(budget)
        for batch in batching.by_length(counts, [1] * len(counts), budget, padding):
            some = [tokens[n] for n in batch]
            parts.append(self._read_several([rows[n] for n in batch], some, [heads[n] for n in batch]))
            order += batch
        return torch.cat(parts)[np.argsort(order)]

    def fork(self, row: int, ends: Sequence[int]) -> range:
        """See `Rows`."""
        before = self._branches.shape[1]
        new = np.array([[row] * len(ends), list(ends), [NEW] * len(ends)])
        self._branches = np.concatenate([self._branches, new], axis=1)
        return range(before, before + len(ends))

    @torch.inference_mode()
    def step(self, branches: Numbers, tokens: Numbers) -> torch.Tensor:
        """See `Rows`."""
        self._next = None
        row, length, cell = self._branches[:, np.asarray(branches)]
        assert (row != ENDED).all(), "a branch that has ended"
        rows, number = np.unique(row, return_inverse=True)
        by_place = np.argsort([self._places[n] for n in rows.tolist()])
        rows, number = rows[by_place], by_place.argsort()[number]
        first = self._arrange(rows.tolist())
        order = number.argsort(kind="stable")
        counts = np.bincount(number)
        starts = counts.cumsum() - counts
        width = int(counts.max())
        # [rows, width]: the branches of each row. Shorter rows repeat their last branch, whose results are not used.
        cells = order[starts[:, None] + np.minimum(np.arange(width), counts[:, None] - 1)]
        behind = np.array([self._lengths[n] + self._grown.get(n, 0) for n in rows.tolist()])
        columns = behind[:, None] + np.arange(width)
        keys = int(columns.max()) + 1
        self._grow(first + len(rows), keys)

        at = self._tensor(columns)
        seen = self._seen_by(length, cell, keys)[self._tensor(cells)]
        seen.scatter_(2, at[..., None], True)
        self._store.view(first, len(rows), keys)
        self._store.write_at(at)
        is_full = row.size == cells.size
        used = 0 if is_full else self._tensor(np.arange(width) < counts[:, None])
        ids = self._tensor(np.asarray(tokens)[cells])
        logits = self._forward(ids, seen, self._tensor(length[cells]), used)
        logits = logits.flatten(0, 1) if is_full else logits
        cell = np.empty_like(row)
        cell[order] = np.arange(row.size) - starts[number[order]] + number[order] * width
        self._branches = np.stack([row, length + 1, cell])
        self._seen = seen.flatten(0, 1)
        self._grown = {n: self._grown.get(n, 0) + width for n in rows.tolist()}
        return logits if (order[1:] > order[:-1]).all() else logits[self._tensor(order.argsort())]

    def rewind(self, row: int, length: int) -> None:
        """See `Rows`."""
        self._end_branches([row])
        self._next = None
        self._lengths[row] = length

    def free(self, row: int) -> None:
        """See `Rows`."""
        self._end_branches([row])
        self._next = None
        self._places.pop(row, None)
        self._lengths.pop(row, None)

    def states(self, row: int) -> list[torch.Tensor]:
        """The keys and values of a row, as `Store.take` gives them."""
        return self._store.take(self._places[row], self._lengths[row])

    def _read_one(self, rows: list[int], tokens: Sequence[Sequence[int]] | torch.Tensor) -> torch.Tensor:
        """Every row reads at most one token."""
        self._admit(rows)
        first = self._arrange(rows)
        lengths = [self._lengths[row] for row in rows]
        keys = max(lengths) + 1
        self._grow(first + len(rows), keys)
        if isinstance(tokens, torch.Tensor):
            ids, fed = tokens, [True] * len(rows)
        else:
            fed = [bool(len(some)) for some in tokens]
            ids = self._tensor([some[0] if len(some) else 0 for some in tokens])
        if self._next is not None and self._next[0] == rows:
            positions = self._next[1]
        else:
            positions = self._tensor(lengths)

        # A graph has one number of keys, so it sees all that there is room for.
        keys = keys if self._graphs is None else self._store.columns

        def run(ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            self._store.view(first, len(rows), keys)
            self._store.write_at(positions[:, None])
            seen = self._columns[:keys] <= positions[:, None]
            return self._forward(ids[:, None], seen[:, None], positions[:, None], 0)[:, 0]

        if self._graphs is None:
            logits = run(ids, positions)
        else:
            logits = self._graphs((self._store.version, first, len(rows)), run, ids, positions)
            self._store.touch(range(first, first + len(rows)), keys)
        self._next = (rows, positions + 1) if all(fed) else None
        for row, is_fed in zip(rows, fed, strict=True):
            self._lengths[row] += is_fed
        return logits

    def _read_several(
        self,
        rows: Sequence[int],
        tokens: Sequence[Sequence[int]],
        heads: Sequence[tuple[int, ...]],
        every: Sequence[int] = (),
    ) -> torch.Tensor:
        """Every row reads any number of tokens, in one pass. New rows begin with their heads, which are not read."""
        self._admit(rows)
        for head, states in self._model.head_states(set(heads) - {()}).items():
            begun = [row for row, its in zip(rows, heads, strict=True) if its == head]
            self._grow(0, len(head))
            self._store.put([self._places[row] for row in begun], states)
            self._lengths |= dict.fromkeys(begun, len(head))
        rest = [some[len(head) :] for some, head in zip(tokens, heads, strict=True)]
        counts = [len(some) for some in rest]
        before = [self._lengths[row] for row in rows]
        length = max(counts)
        self._grow(0, max(before) + length)
        # Padding is written after a row, where no token sees it before it is overwritten.
        columns = self._tensor(before)[:, None] + self._columns[:length]
        seen = self._columns[: max(before) + length] <= columns[..., None]
        last = self._tensor([start + count - 1 for start, count in zip(before, counts, strict=True)])
        positions = torch.minimum(
            columns, last[:, None]
        )  # the largest one of a pass may decide how all are encoded
        keep: int | torch.Tensor = 1 if len(set(counts)) == 1 else self._tensor(counts)[:, None] - 1
        if every:
            index, end = np.arange(length), np.array(counts)[:, None]
            keep = self._tensor((index < end) & (index >= end - np.array(every)[:, None]))
        ids = batching.padded(rest).to(self._model.device)
        places = [self._places[row] for row in rows]
        with self._store.rows(places, max(before) + length):
            self._store.write_at(columns)
            logits = self._forward(ids, seen, positions, keep)
        for row, count in zip(rows, counts, strict=True):
            self._lengths[row] += count
        return logits if every else logits[:, 0]

    def _forward(
        self, ids: torch.Tensor, seen: torch.Tensor, positions: torch.Tensor, keep: int | torch.Tensor
    ) -> torch.Tensor:
        """Logits of tokens [rows, length], of which each sees the keys `seen` [rows, length, keys]; `keep` as Transformers has it."""
        return self._model.logits(
            keep,
            input_ids=ids,
            attention_mask=self._mask(seen),
            position_ids=positions,
            past_key_values=self._store.cache,
            use_cache=True,
        )

    def _mask(self, seen: torch.Tensor) -> torch.Tensor | dict[str, torch.Tensor]:
        """Added to the attention scores [rows, 1, length, keys]; a dictionary by layer type where a model has several."""
        window = self._window
        if not window or seen.shape[-1] <= window:
            return torch.where(seen, self._visible, self._hidden)[:, None]
        # A token's visible keys are in the order of its text, even with hidden keys between them.
        count = seen.cumsum(-1, dtype=torch.int32)
        near = seen & (count > count[..., -1:] - window)
        slid = torch.where(near, self._visible, self._hidden)[:, None]
        if self._kinds == {"sliding_attention"}:
            return slid
        full = torch.where(seen, self._visible, self._hidden)[:, None]
        return {kind: slid if kind == "sliding_attention" else full for kind in self._kinds}

    def _head(self, row: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """The head with which an empty row begins."""
        if not self._heads or self._lengths.get(row):
            return ()
        begun = tuple(tokens[: len(self._heads[0]) + 1])
        return next(
            (head for head in self._heads if begun[: len(head)] == head and len(begun) > len(head)), ()
        )

    def _admit(self, rows: Sequence[int]) -> None:
        """Gives new rows places, side by side: the first that are free, so that the store does not grow with every row."""
        new = [row for row in rows if row not in self._places]
        if new:
            taken = [-1, *sorted(self._places.values())]
            gaps = (place + 1 for place, end in itertools.pairwise(taken) if end - place > len(new))
            first = next(gaps, taken[-1] + 1)
            self._grow(first + len(new), 1)
            self._store.clear(first, first + len(new))
            self._places |= dict(zip(new, itertools.count(first), strict=False))
            self._lengths |= dict.fromkeys(new, 0)

    def _arrange(self, rows: Sequence[int]) -> int:
        """Moves rows so that they lie side by side in this order, as few as possible; returns the first place."""
        places = [self._places[row] for row in rows]
        offsets = Counter(place - n for n, place in enumerate(places) if place >= n)
        first = offsets.most_common(1)[0][0]
        moved = {row: first + n for n, row in enumerate(rows) if places[n] != first + n}
        if not moved:
            return first
        self._grow(first + len(rows), 1)
        left = sorted({self._places[row] for row in moved} - set(range(first, first + len(rows))))
        named = set(rows)
        others = [row for row, place in self._places.items() if first <= place < first + len(rows)]
        moved |= dict(zip((row for row in others if row not in named), left, strict=False))
        self._store.move({place: self._places[row] for row, place in moved.items()})
        self._places |= moved
        return first

    def _grow(self, places: int, keys: int) -> None:
        self._store.grow(places, keys)
        if self._store.columns > len(self._columns):
            self._columns = torch.arange(self._store.columns, device=self._model.device)

    def _seen_by(self, length: np.ndarray, cell: np.ndarray, keys: int) -> torch.Tensor:
        """The keys that branches of these lengths and cells see [branches, keys]."""
        is_new = cell == NEW
        if is_new.all():
            return self._columns[:keys] < self._tensor(length)[:, None]
        seen = torch.zeros(len(cell), keys, dtype=torch.bool, device=self._model.device)
        width = min(keys, self._seen.shape[1])  # the row that had the longest branch may have none now
        seen[:, :width] = self._seen[self._tensor(cell.clip(min=0)), :width]
        if is_new.any():
            new = self._tensor(is_new.nonzero()[0])
            seen[new] = self._columns[:keys] < self._tensor(length[is_new])[:, None]
        return seen

    def _end_branches(self, rows: Sequence[int]) -> None:
        if self._branches.size:
            self._branches[0, np.isin(self._branches[0], list(rows))] = ENDED
            if (self._branches[0] == ENDED).all():
                self._branches = self._branches[:, :0]
            for row in rows:
                self._grown.pop(row, None)

    def _tensor(self, values: Any) -> torch.Tensor:
        return torch.as_tensor(values, device=self._model.device)
