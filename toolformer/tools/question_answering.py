"""Question answering: a language model reads passages from a retriever (the paper's reader: `tools/atlas.py`).

The prompt has a few worked examples, the passages and the question; the first line of the output is the answer.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toolformer.data import Document
from toolformer.tools.base import Result, TextGenerator, Tool, at_least_one
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
_UNKNOWN = {"unknown", "none", "no answer", "i don't know", "i do not know", "not known", "n/a"}


class Reader(Tool):
    """Question answering as a tool; a subclass says how passages are read."""

    name = "QA"
    benchmarks = ("qa", "lama")
    examples = (
        'The Mona Lisa was painted by [QA("Who painted the Mona Lisa?") -> Leonardo da Vinci] Leonardo da Vinci.',
        'Mount Kilimanjaro, the highest mountain of Africa, lies in [QA("In which country is Mount Kilimanjaro?") -> Tanzania] Tanzania.',
        'In which year was penicillin discovered? It was discovered in [QA("When was penicillin discovered?") -> 1928] 1928.',
        'The chemical symbol of gold is [QA("What is the chemical symbol of gold?") -> Au] Au.',
    )
    retriever: Retriever
    passages: int
    """Read at most for each question."""

    def depends_on(self, document: Document) -> str:
        """Identity of the document's own article."""
        return own_article(document)

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """A short answer to each question; equal questions over equal passages are read once."""
        questions = [plain_line(text) for text in inputs]
        rejected = {n: reason for n, text in enumerate(questions) if (reason := _rejection(text))}
        valid = [n for n in range(len(questions)) if n not in rejected]
        passages = self.retriever.retrieve(
            [questions[n] for n in valid], self.passages, [documents[n] for n in valid]
        )
        prompts = {
            n: self.prompt(questions[n], best) for n, best in zip(valid, passages, strict=True) if best
        }
        distinct = sorted(set(prompts.values()))
        answers = dict(zip(distinct, self.read(distinct), strict=True)) if distinct else {}
        results = [Result(reason=rejected.get(n, "no passage found")) for n in range(len(inputs))]
        for n, text in prompts.items():
            answer = answers[text]
            results[n] = answer if isinstance(answer, Result) else short_answer(answer)
        return results

    def check(self) -> None:
        """UserError if the index cannot be used."""
        self.retriever.check()

    @abstractmethod
    def prompt(self, question: str, passages: Sequence[Passage]) -> Any:
        """The input for a question and its passages; of a sortable type."""

    @abstractmethod
    def read(self, prompts: Sequence[Any]) -> Sequence[str | Result]:
        """A text, or a fault, for each prompt; all prompts are different."""


@dataclass(eq=False)
class QuestionAnswering(Reader):
    """Question answering by a language model, prompted with worked examples, the best passages and the question."""

    VERSION = 1
    retriever: Retriever
    generate: TextGenerator
    passages: int = 2
    passage_words: int = 45
    max_new_tokens: int = 12

    def __post_init__(self) -> None:
        sizes = ("passages", "passage_words", "max_new_tokens")
        at_least_one("qa", **{name: getattr(self, name) for name in sizes})
        self.is_remote = self.generate.is_remote or self.retriever.is_remote

    def check(self) -> None:
        """UserError if the reader is missing, or the index cannot be used."""
        super().check()
        self.generate.check()

    def prompt(self, question: str, passages: Sequence[Passage]) -> str:
        """The best passage comes last, next to the question."""
        worked = [
            f"Text: {text}\nQuestion: {question}\nAnswer: {answer}" for text, question, answer in EXAMPLES
        ]
        texts = [
            f"{passage.title} > {' '.join(passage.text.split()[: self.passage_words])}"
            for passage in reversed(passages)
        ]
        return "\n\n".join([*worked, f"Text: {' '.join(texts)}\nQuestion: {question}\nAnswer:"])

    def read(self, prompts: Sequence[str]) -> Sequence[str | Result]:
        """See `Reader`."""
        return self.generate(prompts, self.max_new_tokens, ("\n",))


def short_answer(text: str) -> Result:
    """The first line without its full stop; no result for an admission of ignorance."""
    line = text.strip().split("\n")[0].strip()
    if line.endswith(".") and not line[:-1].rpartition(" ")[2].count("."):
        line = line[:-1].rstrip()
    if not line or line.lower().replace("’", "'").strip(".!") in _UNKNOWN:
        return Result(reason="no answer")
    return Result(line)


def _rejection(question: str) -> str | None:
    if not any(character.isalnum() for character in question):
        return "empty question"
    return "question too long" if len(question) > LONGEST_QUESTION else None
