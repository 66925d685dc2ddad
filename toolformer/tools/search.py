"""Wikipedia search: the best passage for a term as a short snippet `Title > text` (paper, section 3)."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from toolformer.data import Document
from toolformer.step import ModelName
from toolformer.tools.base import Result, Tool, at_least_one
from toolformer.tools.retrieval.passages import Passage, Retriever, own_article
from toolformer.tools.retrieval.words import may_end, word_ends

TokenEnds = Callable[[str], list[int]]
"""The end position of each token in a text, in order."""


@dataclass(eq=False)
class WikiSearch(Tool):
    """Wikipedia search as a tool: the snippet of the best passage."""

    name = "WikiSearch"
    VERSION = 2
    benchmarks = ("qa", "lama")
    examples = (
        'The Danube rises in the Black Forest and flows into the [WikiSearch("Danube mouth") -> Danube > The Danube rises in Germany and flows into the Black Sea.] Black Sea.',
        'In plants, photosynthesis takes place in the [WikiSearch("photosynthesis plant cell") -> Chloroplast > A chloroplast is the part of a plant cell in which photosynthesis takes place.] chloroplasts.',
        'Who wrote the novel Frankenstein? It was written by [WikiSearch("Frankenstein novel") -> Frankenstein > Frankenstein is a novel of 1818 by the English author Mary Shelley.] Mary Shelley.',
        'A violin usually has [WikiSearch("violin strings") -> Violin > The violin is a wooden instrument that usually has four strings.] four strings.',
    )
    retriever: Retriever
    max_tokens: int = 35
    """Tokens of the passage's text that follow its title."""
    tokenizer: Annotated[str | None, ModelName()] = None
    """Whose tokens: a model's, by name or folder; None counts words and punctuation marks, which is fast."""

    def __post_init__(self) -> None:
        at_least_one("search", max_tokens=self.max_tokens)
        self.is_remote = self.retriever.is_remote

    def check(self) -> None:
        """UserError if the index cannot be used."""
        self.retriever.check()

    def depends_on(self, document: Document) -> str:
        """Identity of the document's own article."""
        return own_article(document)

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """`Title > text`, cut to `max_tokens` tokens, of the best passage for each term."""
        best = self.retriever.retrieve(inputs, 1, documents)
        ends = word_ends if self.tokenizer is None else model_ends(self.tokenizer)
        results = []
        for term, passages in zip(inputs, best, strict=True):
            if passages:
                results.append(Result(snippet(passages[0], self.max_tokens, ends)))
            else:
                results.append(Result(reason="nothing found" if term.strip() else "empty search term"))
        return results


@functools.lru_cache(maxsize=4)
def model_ends(tokenizer: str) -> TokenEnds:
    """The tokens of a model: bundled, in a folder or on the hub; `UserError` if it is missing."""
    from toolformer.lm.loading import load_tokenizer

    loaded = load_tokenizer(tokenizer)

    def ends(text: str) -> list[int]:
        encoded = loaded(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [end for _, end in encoded.offset_mapping]

    return ends


def snippet(passage: Passage, max_tokens: int, ends: TokenEnds = word_ends) -> str:
    """`Title > text`, the text cut to the whole words within its first `max_tokens` tokens."""
    text = passage.text
    tokens = ends(text)
    if len(tokens) > max_tokens:
        end = tokens[max_tokens - 1] if max_tokens else 0
        if not may_end(text, end):
            end = text.rfind(" ", 0, end) + 1
        text = text[:end].rstrip()
    return f"{passage.title} > {text}"
