"""A uniform sample of documents by a hash of their ids: the same ones in whatever order they come."""

import hashlib
import heapq
from typing import Generic, TypeVar

T = TypeVar("T")


def lot(doc_id: str) -> int:
    """A number below 2**64, the same in every process."""
    return int.from_bytes(hashlib.sha256(doc_id.encode("utf-8", "surrogatepass")).digest()[:8], "big")


class Draw(Generic[T]):
    """Of all that is added, what has the lowest lots: at most `count` things, and at most `characters` of text."""

    def __init__(self, count: int, characters: int) -> None:
        self._room, self._characters = count, characters
        self._bound = 2**64
        self._added = 0
        self._heap: list[tuple[int, int, int, T]] = []  # the highest lot first; order of adding; length

    def add(self, doc_id: str, length: int, thing: T) -> None:
        """`length` in characters."""
        own = lot(doc_id)
        if own >= self._bound:
            return
        self._added += 1
        heapq.heappush(self._heap, (-own, -self._added, length, thing))
        self._characters -= length
        while len(self._heap) > self._room or self._characters < 0:
            highest, _, freed, _ = heapq.heappop(self._heap)
            self._characters += freed
            self._bound = -highest

    def held(self) -> list[T]:
        """In the order of adding."""
        return [thing for _, _, _, thing in sorted(self._heap, key=lambda entry: -entry[1])]
