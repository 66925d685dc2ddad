"""The keys and values of all layers of a model, in a few tensors: rows at places, tokens in columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import Cache, DynamicLayer

ROOM = 64
"""A store grows by at least so many columns, and by a quarter."""


class StateShape(NamedTuple):
    """Shape of one layer's keys or values."""

    heads: int
    size: int
    dtype: torch.dtype
    device: torch.device


class Layer(DynamicLayer):
    """A layer's keys and values [rows, heads, tokens, size] as a pass sees them: views of the store."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.is_initialized = True
        self.keys_at: Any = ()
        self.values_at: Any = ()

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the tokens of the pass; returns all that it sees."""
        self.keys[self.keys_at] = key_states
        self.values[self.values_at] = value_states
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """Zero: rows have lengths of their own, which the position ids say."""
        return 0


class Store:
    """Keys and values, of layers that are alike in one tensor [keys and values, places, heads, columns, size].

    A view for a pass is then a slice of a few tensors, not one of each layer's.

    Args:
        shapes: of each layer's keys and values.
    """

    def __init__(self, shapes: Sequence[tuple[StateShape, StateShape]]) -> None:
        states = [state for layer in shapes for state in layer]
        self._kinds = list(dict.fromkeys(states))
        self._members = [[n for n, state in enumerate(states) if state == kind] for kind in self._kinds]
        self._tensors = [
            torch.zeros(len(members), 0, kind.heads, 0, kind.size, dtype=kind.dtype, device=kind.device)
            for kind, members in zip(self._kinds, self._members, strict=True)
        ]
        self._layers = [Layer() for _ in shapes]
        self.cache = Cache(layers=list[Any](self._layers))
        """Cache that a pass reads and writes, once its rows are chosen."""
        self.places = self.columns = 0
        self.version = 0
        """Rises when the tensors are replaced by larger ones."""
        self._written: list[int] = []
        """By place, the columns that may hold something. All others are zero."""
        self._viewed: tuple[int, int, int] | None = None
        self._indices: dict[Any, torch.Tensor] = {}

    def grow(self, places: int, columns: int) -> None:
        """Makes room for at least so many."""
        if places <= self.places and columns <= self.columns:
            return
        places = max(places, self.places)
        if columns > self.columns:
            columns += max(ROOM, columns // 4)
        columns = max(columns, self.columns)
        for n, old in enumerate(self._tensors):
            count, _, heads, _, size = old.shape
            self._tensors[n] = old.new_zeros(count, places, heads, columns, size)
            self._tensors[n][:, : self.places, :, : self.columns] = old
        self._written += [0] * (places - self.places)
        self.places, self.columns = places, columns
        self.version += 1
        self._viewed = None

    def clear(self, first: int, end: int) -> None:
        """Empties places. What a row that overflowed has left there would make the next one's numbers NaN, though hidden."""
        if columns := max(self._written[first:end]):
            for tensor in self._tensors:
                tensor[:, first:end, :, :columns].zero_()
            self._written[first:end] = [0] * (end - first)

    def move(self, moves: Mapping[int, int]) -> None:
        """Copies rows to places from others, {to: from}, all at once."""
        targets, sources = list(moves), list(moves.values())
        columns = max(self._written[place] for place in (*targets, *sources))
        for tensor in self._tensors:
            tensor[:, targets, :, :columns] = tensor[:, sources, :, :columns]
        for target in targets:
            self._written[target] = columns

    def put(self, places: Sequence[int], states: Sequence[torch.Tensor]) -> None:
        """Writes the same beginning, as `take` gives it, to several places."""
        for tensor, state in zip(self._tensors, states, strict=True):
            tensor[:, list(places), :, : state.shape[2]] = state[:, None]
        self.touch(places, states[0].shape[2])

    def take(self, place: int, columns: int) -> list[torch.Tensor]:
        """A copy of a row's first columns, a tensor for each kind of state [keys and values, heads, columns, size]."""
        return [tensor[:, place, :, :columns].clone() for tensor in self._tensors]

    def view(self, first: int, rows: int, columns: int) -> None:
        """Chooses so many rows, the first at this place, for the next pass, with the columns that it sees."""
        if self._viewed != (first, rows, columns):
            self._show([tensor[:, first : first + rows, :, :columns] for tensor in self._tensors])
            self._viewed = first, rows, columns
        self.touch(range(first, first + rows), columns)

    @contextmanager
    def rows(self, places: Sequence[int], columns: int) -> Iterator[None]:
        """Chooses any rows for a pass in this block. Where they do not lie side by side, the pass writes to a copy of them."""
        if list(places) == list(range(places[0], places[0] + len(places))):
            self.view(places[0], len(places), columns)
            yield
            return
        copies = [tensor[:, list(places), :, :columns] for tensor in self._tensors]
        self._show(copies)
        self._viewed = None
        yield
        for tensor, copy in zip(self._tensors, copies, strict=True):
            tensor[:, list(places), :, :columns] = copy
        self.touch(places, columns)

    def write_at(self, columns: torch.Tensor) -> None:
        """Says in which columns [rows, length] the tokens of the next pass are written."""
        indices = []
        for kind in self._kinds:
            row = self._range(len(columns), kind.device)[:, None, None]
            head = self._range(kind.heads, kind.device)[None, :, None]
            indices.append((row, head, columns[:, None].to(kind.device)))
        for members, index in zip(self._members, indices, strict=True):
            for n in members:
                layer = self._layers[n // 2]
                if n % 2:
                    layer.values_at = index
                else:
                    layer.keys_at = index

    def _show(self, tensors: Sequence[torch.Tensor]) -> None:
        for members, tensor in zip(self._members, tensors, strict=True):
            for n, state in zip(members, tensor.unbind(0), strict=True):
                layer = self._layers[n // 2]
                if n % 2:
                    layer.values = state
                else:
                    layer.keys = state

    def touch(self, places: Sequence[int], columns: int) -> None:
        """Notes that something was written to the first columns of these places."""
        for place in places:
            self._written[place] = max(self._written[place], columns)

    def _range(self, count: int, device: torch.device) -> torch.Tensor:
        key = count, device
        if key not in self._indices:
            self._indices[key] = torch.arange(count, device=device)
        return self._indices[key]
