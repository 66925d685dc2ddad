"""Windows: the parts of a document that are annotated as one text each, and where a call may go in them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import regex

from toolformer.data import Document

if TYPE_CHECKING:
    from toolformer.lm.language_model import Encoding


@dataclass(frozen=True)
class Window:
    """Tokens [start, end) of a document: the whole text, or as much as fits the model's context."""

    document: Document
    encoding: Encoding
    """The document's tokens."""
    start: int
    end: int
    first: int = 0
    """The first token before which a call may go: an earlier window has tried the ones before it."""
    inside: frozenset[int] = frozenset()
    """The document's tokens that begin inside a grapheme cluster, which a reader sees as one character."""

    @property
    def ids(self) -> list[int]:
        return self.encoding.ids[self.start : self.end]

    @property
    def positions(self) -> list[int | None]:
        """For each token the character before which a call would go, None where no call may go."""
        context = max(self.first - self.start, 0)
        tried = range(self.start + context, self.end)
        return [None] * context + [None if n in self.inside else self.encoding.positions[n] for n in tried]

    @property
    def text(self) -> str:
        positions = self.encoding.positions
        begin = positions[self.start] if self.start < len(positions) else len(self.document.text)
        stop = positions[self.end] if self.end < len(positions) else None
        return self.document.text[begin:stop]


def windows(
    document: Document,
    encoding: Encoding,
    spans: Sequence[tuple[int, int]],
    longest: int,
    overlap: int = 0,
) -> list[Window]:
    """The parts of a document that are annotated as one text each: its selected spans, cut to what fits.

    The prompt contains the text and is followed by it again, so a text takes twice its length. Every position of a span
    is tried in exactly one window; with an overlap it has at least that many tokens of context there, or all.

    Args:
        longest: tokens of a window at most (`longest_window`).
        overlap: tokens at the start of a later window that serve only as context.
    """
    inside = _inside_characters(document.text, encoding)
    # Tokens that begin between characters, and their positions, which never decrease.
    tokens = [n for n, position in enumerate(encoding.positions) if position is not None]
    positions = [position for position in encoding.positions if position is not None]
    result: list[Window] = []
    for begin, stop in spans:
        low, high = bisect_left(positions, begin), bisect_left(positions, stop)
        if low == high:
            continue
        first = start = tokens[low]
        end = tokens[high] if high < len(tokens) else len(encoding.ids)
        while first < end:
            cut = min(start + longest, end)
            while cut < end and encoding.positions[cut] is None and cut > first + 1:
                cut -= 1
            result.append(Window(document, encoding, start, cut, first, inside))
            start, first = max(cut - overlap, tokens[low]), cut
            while start < end and encoding.positions[start] is None:
                start -= 1
    return result


def _inside_characters(text: str, encoding: Encoding) -> frozenset[int]:
    """The tokens that begin inside a grapheme cluster: between an e and its accent, the members of a family, or CR and LF."""
    if text.isascii() and "\r\n" not in text:
        return frozenset()
    starts = {match.start() for match in regex.finditer(r"\X", text)} | {None, len(text)}
    return frozenset(n for n, position in enumerate(encoding.positions) if position not in starts)
