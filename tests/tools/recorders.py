"""Tools that remember what they were asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolformer.data import Document
from toolformer.tools.base import Result

ELSEWHERE = Document("d", "An unrelated text.")


class Recorder:
    """A user's tool that says nothing of what it depends on; answers by a function and remembers its batches."""

    name = "Recorder"

    def __init__(self, answer: Callable[[str], Result] = lambda text: Result(f"<{text}>")) -> None:
        self.answer = answer
        self.batches: list[list[str]] = []

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        self.batches.append(list(inputs))
        return [self.answer(text) for text in inputs]


class Closed(Recorder):
    """The same, depending on its input alone."""

    def depends_on(self, document: Document) -> str:
        return ""
