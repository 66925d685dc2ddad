"""Tokenised texts to packed training sequences (paper, section 2, finetuning).

Each token of a text but the first is a target, calls and results included. Documents packed into one sequence do not
attend to each other: their position ids restart.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.data import Dataset

from toolformer.training.tokens import RESULT, TokenizedTexts

IGNORED = -100
"""The label of a position that is not a target (ignored by torch's cross-entropy)."""

Piece = tuple[int, int, int]
"""(document, first token, end): consecutive tokens of a document in one sequence."""
Layout = list[list[Piece]]
"""The pieces of each sequence."""

Row = TypeVar("Row", bound=Mapping[str, Any])


def document_order(documents: int, seed: int, passes: int | None = 1) -> Iterator[int]:
    """Indices of the documents in training order, shuffled again in every pass; endless if `passes` is None.

    It depends only on the number of documents and the seed, so that C* and C have the same order.
    """
    for number in count() if passes is None else range(passes):
        yield from np.random.default_rng([seed, number]).permutation(documents).tolist()


def stream(lengths: Sequence[int], order: Iterable[int], size: int, limit: int | None = None) -> Layout:
    """Documents one after another, cut where a sequence is full: only the last sequence has padding.

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
    """Every document that fits in one piece: longest first, each into the fullest sequence with enough room."""
    windows = chain.from_iterable(_windows(n, length, size) for n, length in enumerate(lengths))
    pieces = sorted(windows, key=lambda piece: (piece[1] - piece[2], piece[0], piece[1]))
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


def one_per_sequence(
    lengths: Sequence[int], order: Iterable[int], size: int, limit: int | None = None
) -> Layout:
    """One document, or one window of a long one, per sequence: for models that cannot keep documents apart."""
    pieces = chain.from_iterable(_windows(document, lengths[document], size) for document in order)
    return [[piece] for piece in islice(pieces, limit)]


def _windows(document: int, length: int, size: int) -> Iterator[Piece]:
    start = 0
    while True:
        end = min(start + size, length)
        yield document, start, end
        if end == length:
            return
        start = end - 1


class PackedTexts(Dataset[dict[str, torch.Tensor]]):
    """Sequences of a layout: `input_ids`, `position_ids`, `labels`, `kinds`, int64 [tokens] each, not yet padded.

    Without `train_on_results`, results with their closing brackets, which decoding inserts, are not targets. The number
    of sequences is a multiple of `multiple`; those added at the end are one token that is not a target.
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
            ids = positions = kinds = np.zeros(1, dtype=np.int64)
        else:
            pieces = self.pieces[self.bounds[index] : self.bounds[index + 1]]
            offsets = self.documents.starts[pieces[:, 0]]
            parts = [
                np.arange(*bounds)
                for bounds in zip(offsets + pieces[:, 1], offsets + pieces[:, 2], strict=True)
            ]
            tokens = np.concatenate(parts)
            ids, kinds = (
                values[tokens].astype(np.int64) for values in (self.documents.ids, self.documents.kinds)
            )
            positions = np.concatenate([part - part[0] for part in parts])
        # The first token of a piece has no context: it is not a target.
        ignored = (positions == 0) | ((kinds == RESULT) & (not self.train_on_results))
        labels = np.where(ignored, IGNORED, ids)
        arrays = {"input_ids": ids, "position_ids": positions, "labels": labels, "kinds": kinds}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


def examples_per_tool(rows: Sequence[Row]) -> Counter[str]:
    """The number of rows of C* with a call of each tool, by key."""
    return Counter(chain.from_iterable(map(_tools, rows)))


def limit_per_tool(rows: Sequence[Row], limit: int = 25_000, seed: int = 0) -> list[Row]:
    """The rows of C* to train on, in order, with at most `limit` examples per tool (paper, appendix B).

    A row counts once for every tool it calls. Rows with rare tools come first, so that common tools do not crowd them
    out; ties are broken by a hash of the seed and the row's `doc_id`.
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


def plain_texts_needed(texts: int, share: float) -> int:
    """How many texts must be added to so many for the added ones to be this share of all."""
    return round(share / (1 - share) * texts)


def sample_texts(texts: Iterable[str], count: int, seed: int = 0) -> list[str]:
    """`count` different texts of these, or all if there are fewer; which ones does not depend on the texts' order.

    Fewer are the first ones of more.
    """

    def key(text: str) -> bytes:
        return hashlib.sha256(f"{seed}/plain/{text}".encode("utf-8", "surrogatepass")).digest()

    return sorted(set(texts), key=key)[:count]


def _tools(row: Mapping[str, Any]) -> list[str]:
    return sorted({str(call["tool"]) for call in row["calls"]})
