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


class WriteIndex:
    """Where the layers of one cache write the tokens of a step, and how many keys the step sees."""

    def __init__(self) -> None:
        self.index = torch.zeros(0, 0, dtype=torch.long)
        """[rows, tokens]"""
        self.keys = 0

    def set(self, index: torch.Tensor, keys: int) -> None:
        """Chooses the columns of the next step."""
        self.index, self.keys = index, keys


class FixedLayer(GrowingLayer):
    """Keys and values of a layer in fixed buffers [rows, heads, keys, size], each row's written at its own columns."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, write_index: WriteIndex) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values, self._write_index = keys, values, write_index

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Overwrites the keys and values at the write index; returns those that the step sees."""
        write_index = self._write_index.index.to(self.keys.device)
        rows = torch.arange(len(write_index), device=self.keys.device)[:, None]
        self.keys[rows, :, write_index] = key_states.transpose(1, 2)
        self.values[rows, :, write_index] = value_states.transpose(1, 2)
        return self.keys[:, :, : self._write_index.keys], self.values[:, :, : self._write_index.keys]


def new_cache() -> Cache:
    """An empty cache for any number of layers."""
    return Cache(layer_class_to_replicate=GrowingLayer)


def repeated(cache: Cache, rows: int) -> Cache:
    """The cache of one row for many rows that continue it; copied at their first write."""
    return _cache((k.expand(rows, -1, -1, -1), v.expand(rows, -1, -1, -1)) for k, v in states(cache))


def gathered(
    cache: Cache, rows: Sequence[int], index: torch.Tensor
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values of each layer, of these rows and of the tokens `index` [rows, tokens] of each."""
    row = torch.tensor(list(rows))[:, None]

    def taken(tensor: torch.Tensor) -> torch.Tensor:
        # Copies whole keys; `take_along_dim` goes number by number, which takes six times as long.
        return tensor.transpose(1, 2)[row.to(tensor.device), index.to(tensor.device)].transpose(1, 2)

    return [(taken(keys), taken(values)) for keys, values in states(cache)]


def selected(cache: Cache, rows: Sequence[int], tokens: int | None = None) -> Cache:
    """The cache with these rows only, and only with their first tokens."""
    index = torch.tensor(list(rows))
    return _cache(
        (keys[index.to(keys.device), :, :tokens], values[index.to(keys.device), :, :tokens])
        for keys, values in states(cache)
    )


def size_in_bytes(cache: Cache) -> int:
    """Of its keys and values, without the room after them."""
    return sum(keys.nbytes + values.nbytes for keys, values in states(cache))


def layers(cache: Cache) -> list[GrowingLayer]:
    """The layers that hold keys and values."""
    return [layer for layer in cache.layers if isinstance(layer, GrowingLayer)]


def states(cache: Cache) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values of each layer."""
    return [(layer.keys, layer.values) for layer in layers(cache)]


def _cache(states: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> Cache:
    cache = new_cache()
    for keys, values in states:
        layer = GrowingLayer()
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache
