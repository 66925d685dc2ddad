"""Tools that remember what they were asked, and how tools are asked."""

from collections.abc import Callable, Sequence

from toolformer.data import Document
from toolformer.tools.base import ClosedTool, Result, Tool

ELSEWHERE = Document("d", "An unrelated text.")


class Recorder(Tool):
    """A tool without `depends_on`; answers by a function and remembers its batches."""

    benchmarks = ("qa", "xquad")

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


class Closed(Recorder, ClosedTool):
    """The same, depending on its input alone."""


class Writer:
    """A local `TextGenerator` that writes by a function."""

    is_remote = False

    def __init__(self, write: Callable[[str], str]) -> None:
        self.write = write
        self.batches: list[list[str]] = []

    def check(self) -> None:
        """Nothing is missing."""

    def __call__(self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()) -> list[str]:
        self.batches.append(list(prompts))
        for prompt in prompts:
            prompt.encode("utf-8")  # as strict as a tokenizer
        return [self.write(prompt) for prompt in prompts]
