"""A uniform sample of documents by a hash of their ids: the same ones in whatever order they come."""

import hashlib
import heapq
from typing import Generic, TypeVar

T = TypeVar("T")


def hash64(text: str) -> int:
    """A hash below 2**64, the same in every process."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")


class Sample(Generic[T]):
    """The added items with the lowest hashes: at most `count`, and at most `characters` of text."""

    def __init__(self, count: int, characters: int) -> None:
        self._count, self._characters = count, characters
        self._bound = 2**64
        self._added = 0
        self._heap: list[tuple[int, int, int, T]] = []  # -hash, -order of adding, length, item

    def add(self, doc_id: str, length: int, item: T) -> None:
        """`length` in characters."""
        key = hash64(doc_id)
        if key >= self._bound:
            return
        self._added += 1
        heapq.heappush(self._heap, (-key, -self._added, length, item))
        self._characters -= length
        while len(self._heap) > self._count or self._characters < 0:
            highest, _, freed, _ = heapq.heappop(self._heap)
            self._characters += freed
            self._bound = -highest

    def items(self) -> list[T]:
        """The sample in the order of adding."""
        return [item for _, _, _, item in sorted(self._heap, key=lambda entry: -entry[1])]
