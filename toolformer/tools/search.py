"""Wikipedia search: the best passage for a term as a short snippet `Title > text` (paper, section 3)."""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toolformer.data import Document
from toolformer.tools.base import Result, at_least_one
from toolformer.tools.retrieval.passages import Passage, Retriever, own_article

TokenEnds = Callable[[str], list[int]]
"""The character positions behind the tokens of a text, in their order."""
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(eq=False)
class WikiSearch:
    """Wikipedia search as a tool: the snippet of the best passage."""

    name = "WikiSearch"
    retriever: Retriever
    max_tokens: int = 35
    """How many tokens of the passage's text are shown behind its title."""
    tokenizer: str | None = None
    """Whose tokens: a model's, by name or folder; None counts words and signs, which is fast and the same for all."""

    def __post_init__(self) -> None:
        at_least_one("search", max_tokens=self.max_tokens)

    def depends_on(self, document: Document) -> str:
        """What its own article is known by."""
        return own_article(document)

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """`Title > text`, cut to `max_tokens` tokens, of the best passage for each term."""
        found = self.retriever.retrieve(inputs, 1, documents)
        ends = word_ends if self.tokenizer is None else model_ends(self.tokenizer)
        results = []
        for term, passages in zip(inputs, found, strict=True):
            if passages:
                results.append(Result(snippet(passages[0], self.max_tokens, ends)))
            else:
                results.append(Result(reason="nothing found" if term.strip() else "empty search term"))
        return results


def word_ends(text: str) -> list[int]:
    """Words and signs as tokens: `It's 3 km.` has six."""
    return [match.end() for match in _TOKEN.finditer(text)]


@functools.lru_cache(maxsize=4)
def model_ends(tokenizer: str) -> TokenEnds:
    """The tokens of a model: an embedded one, a folder or a hub name; `UserError` if there is none."""
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
        if not text[end].isspace():
            end = text.rfind(" ", 0, end) + 1
        text = text[:end].rstrip()
    return f"{passage.title} > {text}"
