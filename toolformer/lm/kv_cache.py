"""Key-value caches that grow without copying, and that can be split and joined row by row."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

ROOM = 64
"""Minimum number of free tokens in a new buffer."""


class GrowingLayer(DynamicLayer):
    """Keys and values of a layer [rows, heads, tokens, size] at the start of a buffer with room after them.

    Transformers' own layer concatenates, which copies the whole cache at each step.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends tokens; returns all keys and values, as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        before = self.get_seq_length()
        after = before + key_states.shape[-2]
        if self._buffers is None or self._buffers[0].shape[-2] < after:
            self._buffers = (
                self._grown(self.keys, key_states, before, after),
                self._grown(self.values, value_states, before, after),
            )
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, before:after] = states
        self.keys, self.values = (buffer[:, :, :after] for buffer in self._buffers)
        return self.keys, self.values

    def hold(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Continues from these tensors; appending copies them."""
        self.keys, self.values, self._buffers = keys, values, None

    @staticmethod
    def _grown(held: torch.Tensor, states: torch.Tensor, before: int, after: int) -> torch.Tensor:
        rows, heads, _, size = states.shape
        buffer = states.new_empty(rows, heads, after + max(ROOM, after // 4), size)
        if before:
            buffer[:, :, :before] = held
        return buffer


def new_cache() -> Cache:
    """An empty cache for any number of layers."""
    return Cache(layer_class_to_replicate=GrowingLayer)


def repeated(cache: Cache, rows: int) -> Cache:
    """The cache of one row for many rows that continue it; copied at their first write."""
    return _cache((k.expand(rows, -1, -1, -1), v.expand(rows, -1, -1, -1)) for k, v in _states(cache))


def gathered(parts: Sequence[tuple[Cache, torch.Tensor]]) -> Cache:
    """One cache of the rows of several.

    With each cache come the indices of the tokens to take, [its rows, tokens], the same number in each. A token may be
    taken twice: padding only has to be finite.
    """
    states = [_states(cache) for cache, _ in parts]
    # If one holds only tokens (`exact`), so does the result: the others hold them in their last layer.
    depth = min(map(len, states))
    states = [layers[-depth:] for layers in states]
    # Moved to the device once, not once per layer.
    indices = [index.to(layers[0][0].device) for (_, index), layers in zip(parts, states, strict=True)]

    def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        taken = zip(tensors, indices, strict=True)
        return torch.cat([tensor.take_along_dim(index[:, None, :, None], 2) for tensor, index in taken])

    by_layer = (zip(*layers, strict=True) for layers in zip(*states, strict=True))
    return _cache((joined(keys), joined(values)) for keys, values in by_layer)


def kept(cache: Cache, rows: Sequence[int]) -> Cache:
    """The cache with these rows only."""
    states = _states(cache)
    index = torch.tensor(list(rows), device=states[0][0].device)
    return _cache((keys[index], values[index]) for keys, values in states)


def _states(cache: Cache) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values of each layer."""
    return [(layer.keys, layer.values) for layer in cache.layers if isinstance(layer, GrowingLayer)]


def _cache(states: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> Cache:
    cache = new_cache()
    for keys, values in states:
        layer = GrowingLayer()
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache
