"""Question answering: passages found by a retriever, read by a language model (the paper's reader: `tools/atlas.py`).

The reader gets a few worked examples, the passages and the question, and its first line is the answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

from toolformer.data import Document
from toolformer.tools.base import Result, TextGenerator, at_least_one, check, works_elsewhere
from toolformer.tools.retrieval.passages import Passage, Retriever, own_article, plain_line

EXAMPLES = (
    (
        "Honey bee > Honey bees are insects that live in colonies and make honey and wax.",
        "What do honey bees make besides honey?",
        "wax",
    ),
    (
        "Lake Titicaca > Lake Titicaca lies in the Andes, between Bolivia and Peru.",
        "Where is Lake Titicaca?",
        "the Andes",
    ),
    (
        "Marie Curie > Marie Curie, born in 1867, discovered polonium and radium.",
        "Who discovered radium?",
        "Marie Curie",
    ),
)
LONGEST_QUESTION = 300
P = TypeVar("P", str, tuple[str, ...])
_UNKNOWN = {"unknown", "none", "no answer", "i don't know", "i do not know", "not known", "n/a"}


def prompt(question: str, passages: Sequence[Passage], passage_words: int) -> str:
    """The reader's prompt: worked examples, the best passages (the best last, nearest to the question), the question."""
    worked = [f"Text: {text}\nQuestion: {asked}\nAnswer: {answer}" for text, asked, answer in EXAMPLES]
    texts = [f"{one.title} > {' '.join(one.text.split()[:passage_words])}" for one in reversed(passages)]
    return "\n\n".join([*worked, f"Text: {' '.join(texts)}\nQuestion: {question}\nAnswer:"])


class QuestionAnswering:
    """Question answering as a tool."""

    name = "QA"

    def __init__(
        self,
        retriever: Retriever,
        generate: TextGenerator,
        passages: int = 2,
        passage_words: int = 45,
        max_new_tokens: int = 12,
    ) -> None:
        at_least_one("qa", passages=passages, passage_words=passage_words, max_new_tokens=max_new_tokens)
        self.retriever = retriever
        self.generate = generate
        self.passages = passages
        self.passage_words = passage_words
        self.max_new_tokens = max_new_tokens
        self.elsewhere = works_elsewhere(generate)
        self.check = functools.partial(check, generate)

    def depends_on(self, document: Document) -> str:
        """What its own article is known by."""
        return own_article(document)

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """A short answer to each question; equal prompts are read once."""
        return answered(inputs, documents, self.retriever, self.passages, self._prompt, self._read)

    def _prompt(self, question: str, passages: Sequence[Passage]) -> str:
        return prompt(question, passages, self.passage_words)

    def _read(self, prompts: Sequence[str]) -> Sequence[str | Result]:
        return self.generate(prompts, self.max_new_tokens, ("\n",))


def answered(
    inputs: Sequence[str],
    documents: Sequence[Document],
    retriever: Retriever,
    passages: int,
    prompt: Callable[[str, Sequence[Passage]], P],
    read: Callable[[Sequence[P]], Sequence[str | Result]],
) -> list[Result]:
    """Short answers to questions, or reasons.

    Args:
        passages: at most so many for a question.
        prompt: what is read of a question and its passages.
        read: a text, or a fault, for each of some prompts, all different; not called without one.
    """
    questions = [plain_line(text) for text in inputs]
    results: list[Result | None] = [_refusal(question) for question in questions]
    asked = [n for n, result in enumerate(results) if result is None]
    found = retriever.retrieve([questions[n] for n in asked], passages, [documents[n] for n in asked])
    prompts = {n: prompt(questions[n], best) for n, best in zip(asked, found, strict=True) if best}
    distinct = sorted(set(prompts.values()))
    answers = dict(zip(distinct, read(distinct), strict=True)) if distinct else {}
    for n, text in prompts.items():
        answer = answers[text]
        results[n] = answer if isinstance(answer, Result) else short_answer(answer)
    return [result or Result(reason="no passage found") for result in results]


def short_answer(text: str) -> Result:
    """The first line, without the full stop at its end; an admission of ignorance is no result."""
    line = text.strip().split("\n")[0].strip()
    if line.endswith(".") and not line[:-1].rpartition(" ")[2].count("."):
        line = line[:-1].rstrip()
    if not line or line.lower().replace("’", "'").strip(".!") in _UNKNOWN:
        return Result(reason="no answer")
    return Result(line)


def _refusal(question: str) -> Result | None:
    if not any(character.isalnum() for character in question):
        return Result(reason="empty question")
    return Result(reason="question too long") if len(question) > LONGEST_QUESTION else None
