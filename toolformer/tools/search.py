"""Wikipedia search: the best passage for a term as a short snippet `Title > text` (paper, section 3)."""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toolformer.data import Document
from toolformer.tools.base import Result, Tool, at_least_one
from toolformer.tools.retrieval.passages import Passage, Retriever, own_article

TokenEnds = Callable[[str], list[int]]
"""The end position of each token in a text, in order."""
NEXT = "next"
"""The input that asks for further results."""
LAST_PAGE = 9
"""Of a search, from 0 on: what a model writes must not make a search large."""
_PAGE = "\nnext "
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(eq=False)
class WikiSearch(Tool):
    """Wikipedia search as a tool: the snippet of the best passage."""

    name = "WikiSearch"
    VERSION = 1
    retriever: Retriever
    max_tokens: int = 35
    """Tokens of the passage's text that follow its title."""
    tokenizer: str | None = None
    """Whose tokens: a model's, by name or folder; None counts words and punctuation marks, which is fast."""

    def __post_init__(self) -> None:
        at_least_one("search", max_tokens=self.max_tokens)

    def depends_on(self, document: Document) -> str:
        """What identifies the document's own article."""
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


@dataclass(eq=False)
class BrowsedSearch(WikiSearch):
    """Search whose results are browsed (the paper's section 7 leaves it open): `(1) Title > text (2) Title > text`.

    The input `next` asks for the results that follow those of the call before it; any other input is a new search.
    """

    VERSION = 1
    max_tokens: int = 12
    results: int = 3
    """Results per call."""

    def __post_init__(self) -> None:
        at_least_one("search", max_tokens=self.max_tokens, results=self.results)

    def in_context(self, text: str, earlier: Sequence[str]) -> str:
        """`next` becomes the search it goes on with and the number of its page, so that a result depends on its input."""
        if not _is_next(text):
            return text
        searches = [n for n, call in enumerate(earlier) if not _is_next(call)]
        if not searches:
            return text
        return f"{earlier[searches[-1]]}{_PAGE}{len(earlier) - searches[-1]}"

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """The results of a search, or of one of its further pages."""
        terms, pages = zip(*map(_page, inputs), strict=True) if inputs else ((), ())
        most = (max(pages, default=0) + 1) * self.results
        ranked = self.retriever.retrieve(terms, most, documents)
        ends = word_ends if self.tokenizer is None else model_ends(self.tokenizer)
        found = []
        for term, page, passages in zip(terms, pages, ranked, strict=True):
            first = page * self.results
            snippets = [
                f"({n}) {snippet(passage, self.max_tokens, ends)}"
                for n, passage in enumerate(passages[: first + self.results][first:], start=first + 1)
            ]
            if _is_next(term):
                found.append(Result(reason="next without a search"))
            elif snippets:
                found.append(Result(" ".join(snippets)))
            elif page:
                found.append(Result(reason="no further results"))
            else:
                found.append(Result(reason="nothing found" if term.strip() else "empty search term"))
        return found


def _is_next(text: str) -> bool:
    return text.strip().lower() == NEXT


def _page(text: str) -> tuple[str, int]:
    """A search and the number of its page from 0 on; pages after the last one count as it."""
    term, mark, page = text.rpartition(_PAGE)
    is_page = mark and page.isascii() and page.isdigit() and len(page) < 4
    return (term, min(int(page), LAST_PAGE)) if is_page else (text, 0)


def word_ends(text: str) -> list[int]:
    """Words and punctuation marks as tokens: `It's 3 km.` has six."""
    return [match.end() for match in _TOKEN.finditer(text)]


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
        if not text[end].isspace():
            end = text.rfind(" ", 0, end) + 1
        text = text[:end].rstrip()
    return f"{passage.title} > {text}"
