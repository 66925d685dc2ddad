"""Tools that remember what they were asked, and how tools are asked."""

from collections.abc import Callable, Sequence

from toolformer.data import Document
from toolformer.tools.base import Result, Tool

ELSEWHERE = Document("d", "An unrelated text.")


class Recorder:
    """A user's tool that says nothing of what it depends on; answers by a function and remembers its batches."""

    def __init__(
        self, answer: Callable[[str], Result] = lambda text: Result(f"<{text}>"), name: str = "Recorder"
    ) -> None:
        self.answer = answer
        self.name = name
        self.batches: list[list[str]] = []

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        self.batches.append(list(inputs))
        return [self.answer(text) for text in inputs]


class German:
    """Takes every text for German, and is as strict about it as a tokenizer."""

    def identify(self, text: str) -> tuple[str, float]:
        text.encode("utf-8")
        return "de", 1.0


def answers(tool: Tool, *inputs: str) -> list[str | None]:
    """What a tool answers, or why not."""
    return [result.text or result.reason for result in tool.run(inputs, [ELSEWHERE] * len(inputs))]


class Closed(Recorder):
    """The same, depending on its input alone."""

    def depends_on(self, document: Document) -> str:
        return ""
