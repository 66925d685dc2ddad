"""Tokenised texts to packed training sequences (paper, section 2, finetuning).

Each token of a text but the first is a target, calls and results included. Documents packed into one sequence do not
see each other: their position ids restart. Knows neither models nor tokenizers.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.data import Dataset

from toolformer.training.tokens import RESULT, TokenizedTexts

IGNORED = -100
"""The label of a position that is no target (what torch's cross-entropy leaves out)."""

Piece = tuple[int, int, int]
"""(document, first token, end): tokens of one document that stand side by side in one sequence."""
Layout = list[list[Piece]]
"""The pieces of each sequence."""

Row = TypeVar("Row", bound=Mapping[str, Any])


def document_order(documents: int, seed: int, passes: int | None = 1) -> Iterator[int]:
    """Indices of the documents in the order they are trained on, shuffled anew in every pass.

    The order depends on the number of documents and on the seed alone, so C* and C come in the same order.
    `passes=None` never ends.
    """
    for number in count() if passes is None else range(passes):
        yield from np.random.default_rng([seed, number]).permutation(documents).tolist()


def stream(lengths: Sequence[int], order: Iterable[int], size: int, limit: int | None = None) -> Layout:
    """Documents one after another, cut where a sequence is full: no padding but in the last sequence.

    The piece after a cut begins with the last token of the piece before it, so that every token but a
    document's first is a target exactly once. At most `limit` sequences of `size` tokens.
    """
    layout: Layout = []
    sequence: list[Piece] = []
    room = size
    for document in order:
        start = 0
        while True:
            end = min(start + room, lengths[document])
            sequence.append((document, start, end))
            room -= end - start
            if room == 0:
                layout.append(sequence)
                sequence, room = [], size
                if len(layout) == limit:
                    return layout
            if end == lengths[document]:
                break
            start = end - 1
    return [*layout, sequence] if sequence else layout


def whole(lengths: Sequence[int], size: int) -> Layout:
    """Every document in one piece if it fits at all, the sequences padded.

    Longest first, each into the fullest sequence that has room. A document's loss does not depend on what it
    is packed with.
    """
    pieces = sorted(
        chain.from_iterable(_windows(n, length, size) for n, length in enumerate(lengths)), key=_longest_first
    )
    layout: Layout = []
    rooms: dict[int, list[int]] = {}
    for piece in pieces:
        length = piece[2] - piece[1]
        room = min((free for free, sequences in rooms.items() if free >= length and sequences), default=size)
        if rooms.get(room):
            number = rooms[room].pop()
        else:
            number = len(layout)
            layout.append([])
        layout[number].append(piece)
        rooms.setdefault(room - length, []).append(number)
    return layout


def single(lengths: Sequence[int], order: Iterable[int], size: int, limit: int | None = None) -> Layout:
    """One document, or window of a long one, a sequence: for models that cannot keep documents apart."""
    layout: Layout = []
    for document in order:
        for piece in _windows(document, lengths[document], size):
            layout.append([piece])
            if len(layout) == limit:
                return layout
    return layout


def _windows(document: int, length: int, size: int) -> Iterator[Piece]:
    start = 0
    while True:
        end = min(start + size, length)
        yield document, start, end
        if end == length:
            return
        start = end - 1


def _longest_first(piece: Piece) -> tuple[int, int, int]:
    return piece[1] - piece[2], piece[0], piece[1]


class PackedTexts(Dataset[dict[str, torch.Tensor]]):
    """Sequences of a layout: `input_ids`, `position_ids`, `labels`, `kinds`, int64 [tokens] each, not yet padded.

    Without `train_on_results` what decoding inserts, the results with their closing brackets, is no target. The
    number of sequences is a multiple of `multiple`: those added at the end are one token that is no target.
    """

    def __init__(
        self, documents: TokenizedTexts, layout: Layout, train_on_results: bool = True, multiple: int = 1
    ) -> None:
        self.documents = documents
        self.train_on_results = train_on_results
        self.pieces = np.array(list(chain.from_iterable(layout)), dtype=np.int64).reshape(-1, 3)
        self.bounds = np.cumsum([0] + [len(sequence) for sequence in layout], dtype=np.int64)
        lengths = self.pieces[:, 2] - self.pieces[:, 1]
        self._tokens_before = np.concatenate([[0], np.cumsum(lengths)])[self.bounds]
        self._length = -(-len(layout) // multiple) * multiple

    def __len__(self) -> int:
        return self._length

    @property
    def tokens(self) -> int:
        """Tokens of all sequences, padding not counted."""
        return self.tokens_before(len(self))

    def tokens_before(self, index: int) -> int:
        """Tokens of the sequences before this one, padding not counted."""
        return int(self._tokens_before[min(index, len(self._tokens_before) - 1)])

    @property
    def targets(self) -> int:
        """Tokens that are predicted, results included."""
        return self.tokens - len(self.pieces)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if index >= len(self.bounds) - 1:
            nothing = torch.zeros(1, dtype=torch.int64)
            labels_of_nothing = torch.full((1,), IGNORED, dtype=torch.int64)
            return {
                "input_ids": nothing,
                "position_ids": nothing,
                "labels": labels_of_nothing,
                "kinds": nothing,
            }
        ids: list[np.ndarray] = []
        positions: list[np.ndarray] = []
        labels: list[np.ndarray] = []
        kinds: list[np.ndarray] = []
        for document, start, end in self.pieces[self.bounds[index] : self.bounds[index + 1]].tolist():
            offset = int(self.documents.starts[document])
            piece = self.documents.ids[offset + start : offset + end].astype(np.int64)
            ids.append(piece)
            positions.append(np.arange(len(piece)))
            of_piece = self.documents.kinds[offset + start : offset + end].astype(np.int64)
            kinds.append(of_piece)
            wanted = piece.copy()
            # Nothing of the document stands before its first token here: it is no target.
            wanted[0] = IGNORED
            if not self.train_on_results:
                wanted[of_piece == RESULT] = IGNORED
            labels.append(wanted)
        return {
            "input_ids": torch.from_numpy(np.concatenate(ids)),
            "position_ids": torch.from_numpy(np.concatenate(positions)),
            "labels": torch.from_numpy(np.concatenate(labels)),
            "kinds": torch.from_numpy(np.concatenate(kinds)),
        }


def examples_per_tool(rows: Sequence[Row]) -> Counter[str]:
    """How many rows of C* have a call of each tool, by its key: of all tools that have one, and no others."""
    return Counter(chain.from_iterable(map(_tools, rows)))


def limit_per_tool(rows: Sequence[Row], limit: int = 25_000, seed: int = 0) -> list[Row]:
    """The rows of C* to train on, in their order: no tool has more than `limit` examples (paper, appendix B).

    A row counts once for every tool it has a call of, and is taken while all of them are below the limit.
    Rows with rare tools choose first, so that a common tool does not crowd them out. Ties are settled by a
    key of the seed and the row's `doc_id`, not by the order of the rows. The rows of C are those with the same
    `doc_id`.
    """
    tools = [_tools(row) for row in rows]
    total = examples_per_tool(rows)

    def key(index: int) -> tuple[int, bytes]:
        name = f"{seed}/{rows[index].get('doc_id', index)}"
        return min((total[tool] for tool in tools[index]), default=0), hashlib.sha256(name.encode()).digest()

    taken: Counter[str] = Counter()
    chosen: list[int] = []
    for index in sorted(range(len(rows)), key=key):
        if all(taken[tool] < limit for tool in tools[index]):
            taken.update(tools[index])
            chosen.append(index)
    return [rows[index] for index in sorted(chosen)]


def _tools(row: Mapping[str, Any]) -> list[str]:
    return sorted({str(call["tool"]) for call in row["calls"]})
