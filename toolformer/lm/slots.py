"""Rows that are continued side by side, each in its own slot: rows join and leave without moving the others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers.cache_utils import Cache

from toolformer.lm import kv_cache
from toolformer.lm.branches import Branches, Reader

KEYS = 256
"""Keys of a slot are rounded up to a multiple of this, so that steps on a GPU have few shapes."""


class Slots:
    """A key-value cache of several slots; each has the tokens of one row from its beginning, and a length."""

    def __init__(self, model: Reader) -> None:
        self._model = model
        self._cache = Cache(layers=[])
        self._write_index = kv_cache.WriteIndex()
        self._capacity = 0
        self.lengths = torch.zeros(0, dtype=torch.long)
        """[slots]: tokens that each row has read."""

    @torch.inference_mode()
    def put(self, slots: Sequence[int], branches: Branches, rows: Sequence[int]) -> None:
        """Copies rows of one column into these slots, in place of what they held."""
        seen = branches.visible[list(rows), 0]
        counts = seen.sum(1)
        length = int(counts.max())
        # A stable sort moves the visible tokens to the beginning, in their order.
        index = (~seen).long().argsort(dim=1, stable=True)[:, :length]
        states = kv_cache.gathered(branches.cache, rows, index)
        self._make_room(max(slots) + 1, length + 1, states)
        # If one side has only tokens left (`exact`), so does the result: the other has them in its last layer.
        depth = min(len(states), len(self._cache.layers))
        del self._cache.layers[:-depth]
        at = torch.tensor(list(slots), device=states[0][0].device)
        for layer, (keys, values) in zip(kv_cache.layers(self._cache), states[-depth:], strict=True):
            layer.keys[at, :, :length] = keys
            layer.values[at, :, :length] = values
            # Hidden keys have to be finite: what a row that overflowed has left would make all others NaN.
            layer.keys[at, :, length:] = 0
            layer.values[at, :, length:] = 0
        self.lengths[list(slots)] = counts

    @torch.inference_mode()
    def step(self, tokens: Sequence[int], fed: Sequence[bool]) -> torch.Tensor:
        """Feeds each slot a token; returns the logits after it [slots, vocabulary]. Where not `fed`, it is forgotten."""
        longest = int(self.lengths.max()) + 1
        self._make_room(len(self.lengths), longest, kv_cache.states(self._cache))
        keys = self._capacity if self._model.steps_are_static else longest
        self._write_index.set(self.lengths[:, None], keys)
        visible = torch.arange(keys) <= self.lengths[:, None]
        ids, positions = torch.tensor(tokens)[:, None], self.lengths[:, None]
        logits = self._model.step(ids, visible[:, None], positions, self._cache, positions)
        self.lengths = self.lengths + torch.tensor(fed)
        return logits[:, 0]

    @torch.inference_mode()
    def extend(self, slots: Sequence[int], tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Feeds any number of tokens to some slots; returns the last logits [slots, vocabulary]."""
        at, lengths = list(slots), self.lengths[list(slots)]
        length = int(lengths.max())
        cache = kv_cache.selected(self._cache, at, length)
        visible = torch.arange(length) < lengths[:, None]
        branches = Branches(self._model, cache, visible[:, None], lengths[:, None])
        logits = branches.extend(tokens)
        self.put(at, branches, range(len(at)))
        return logits

    @torch.inference_mode()
    def forget(self, slot: int, tokens: int) -> None:
        """Rolls back the last tokens that a row has read."""
        self.lengths[slot] -= tokens

    @torch.inference_mode()
    def clear(self, slot: int) -> None:
        """Forgets everything in a slot, which is then as good as free."""
        self.lengths[slot] = 0

    @torch.inference_mode()
    def keep(self, slots: Sequence[int]) -> None:
        """Continues with these slots only, renumbered."""
        self._hold(kv_cache.states(kv_cache.selected(self._cache, slots, self._capacity)))
        self.lengths = self.lengths[list(slots)]

    def _make_room(self, slots: int, keys: int, like: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Grows the cache to at least so many slots and keys."""
        before = len(self.lengths)
        if slots <= before and keys <= self._capacity:
            return
        more = slots - before
        if more > 0:
            self.lengths = torch.cat([self.lengths, torch.zeros(more, dtype=torch.long)])
        capacity = self._capacity if keys <= self._capacity else -(-keys // KEYS) * KEYS

        def grown(state: torch.Tensor, held: torch.Tensor | None) -> torch.Tensor:
            buffer = state.new_zeros(len(self.lengths), state.shape[1], capacity, state.shape[3])
            if held is not None and before:
                buffer[:before, :, : held.shape[2]] = held
            return buffer

        held = kv_cache.states(self._cache)
        depth = min(len(held) or len(like), len(like))
        none = [(None, None)] * depth
        pairs = zip(like[-depth:], held[-depth:] or none, strict=True)
        self._capacity = capacity
        self._hold([(grown(k, held_k), grown(v, held_v)) for (k, v), (held_k, held_v) in pairs])

    def _hold(self, states: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        self._cache = Cache(layers=[kv_cache.FixedLayer(*pair, self._write_index) for pair in states])
