"""Wikipedia search: BM25 over article summaries, answered with a short snippet `Title > text` (paper, section 3).

The index is built once, beside the data, under the data's hash. A document that is an article, or nearly the same text
as one, is not shown that article: it would be handed its own continuation.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from toolformer import assets
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.tools.base import Result

K1, B = 0.9, 0.4
SHINGLE = 8
SPARE = 3
"""Passages asked for beyond those wanted, since a document's own article is left out afterwards; more if need be."""
_INDEX_VERSION = "1"
_MARKUP = re.compile(r"</?[A-Za-z][^<>]{0,200}>|\{\{[^{}]{0,500}\}\}|^={2,}|={2,}$|'{2,}", re.MULTILINE)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Passage:
    """A piece of an encyclopedia."""

    passage_id: str
    title: str
    text: str
    score: float = 0.0


class Retriever(Protocol):
    """Finds passages; what search and question answering stand on."""

    def retrieve(self, queries: Sequence[str], k: int, documents: Sequence[Document]) -> list[list[Passage]]:
        """At most `k` passages for each query, best first, without what `documents[n]` itself is taken from."""
        ...


def articles(path: Path | str | None = None) -> list[Passage]:
    """The articles of a JSON file of summaries (`title`, `extract`); the embedded vital articles by default."""
    place = Path(path).expanduser() if path else assets.ensure("wikipedia")
    try:
        rows = json.loads(place.read_text(encoding="utf-8"))
        rows = list(rows.values()) if isinstance(rows, dict) else rows
        found = [(one_line(str(row["title"])), clean(str(row["extract"] or ""))) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"search: {place} is no list of articles with title and extract ({error})") from error
    passages = [Passage(title, title, text) for title, text in found if text]
    if not passages:
        raise UserError(f"search: {place} holds no article with a text; give a list with title and extract")
    return passages


def wikipedia_documents() -> Iterator[Document]:
    """The embedded articles as a corpus (`corpus=wikipedia`)."""
    for passage in articles():
        digest = hashlib.sha256(passage.passage_id.encode()).hexdigest()[:12]
        yield Document(f"wikipedia-{digest}", passage.text, source_id=passage.passage_id)


def clean(text: str) -> str:
    """Plain text on one line: markup out, entities read, blanks collapsed."""
    return one_line(_MARKUP.sub(" ", html.unescape(text)))


def one_line(text: str) -> str:
    """Blanks collapsed, lone surrogates replaced: they cannot be encoded for a tokenizer or a terminal."""
    return " ".join(text.encode("utf-8", "replace").decode("utf-8").split())


class BM25:
    """BM25 with stop words and stemming over a list of articles, kept in memory once loaded."""

    def __init__(self, articles_path: str | None = None) -> None:
        """Raises UserError if `articles_path` names no file; the articles are read at the first query."""
        if articles_path is not None and not Path(articles_path).expanduser().is_file():
            raise UserError(f"search: there is no file {articles_path}; give a JSON list of articles")
        self.articles_path = articles_path

    @cached_property
    def passages(self) -> list[Passage]:
        return articles(self.articles_path)

    @cached_property
    def _index(self) -> Any:
        """The index on disk, built first if need be."""
        import bm25s

        digest = hashlib.sha256(_INDEX_VERSION.encode())
        for passage in self.passages:
            digest.update(f"{passage.title}\0{passage.text}\0".encode("utf-8", "replace"))
        folder = assets.cache_dir() / "indexes" / f"bm25-{digest.hexdigest()[:16]}"
        if not folder.is_dir():
            index = bm25s.BM25(k1=K1, b=B)
            texts = [f"{passage.title} {passage.text}" for passage in self.passages]
            index.index(self._tokenize(texts, ids=True), show_progress=False)
            folder.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(dir=folder.parent))
            try:
                index.save(str(temporary))
                temporary.rename(folder)
            except OSError:
                if not folder.is_dir():  # another process may have been first
                    raise
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        return bm25s.BM25.load(str(folder), load_corpus=False)

    @cached_property
    def _stemmer(self) -> Any:
        import Stemmer

        return Stemmer.Stemmer("english")

    def retrieve(self, queries: Sequence[str], k: int, documents: Sequence[Document]) -> list[list[Passage]]:
        """See `Retriever`."""
        if not queries:
            return []
        vocabulary = self._index.vocab_dict
        tokens = [
            [word for word in words if word in vocabulary]
            for words in self._tokenize([query[:2000] for query in queries])
        ]
        asked = [n for n, words in enumerate(tokens) if words]
        # By the document, not its id: the examples of a benchmark may share one.
        shingles = {documents[n]: _shingled(documents[n].text) for n in asked}
        found: list[list[Passage]] = [[] for _ in queries]
        wanted = k + SPARE
        while asked:
            wanted = min(wanted, len(self.passages))
            left: list[int] = []
            for n, ranked in zip(asked, self._ranked([tokens[n] for n in asked], wanted), strict=True):
                others = [one for one in ranked if not _is_from(documents[n], shingles[documents[n]], one)]
                found[n] = others[:k]
                if len(others) < k and len(ranked) == wanted < len(self.passages):
                    left.append(n)
            asked = left
            wanted *= 4
        return found

    def _ranked(self, tokens: Sequence[Sequence[str]], k: int) -> list[list[Passage]]:
        """The `k` best articles for each query that share a word with it, best first."""
        indices, scores = self._index.retrieve(tokens, k=k, show_progress=False)
        return [
            [
                replace(self.passages[int(index)], score=float(score))
                for index, score in zip(*row, strict=True)
                if score > 0
            ]
            for row in zip(np.asarray(indices), np.asarray(scores), strict=True)
        ]

    def _tokenize(self, texts: Sequence[str], ids: bool = False) -> Any:
        import bm25s

        return bm25s.tokenize(
            list(texts), stopwords="en", stemmer=self._stemmer, return_ids=ids, show_progress=False
        )


class WikiSearch:
    """Wikipedia search as a tool: the snippet of the best article."""

    name = "WikiSearch"

    def __init__(self, retriever: Retriever | None = None, max_words: int = 30) -> None:
        self.retriever: Retriever = retriever or BM25()
        self.max_words = max_words

    def depends_on(self, document: Document) -> str:
        """What its own article is known by."""
        return own_article(document)

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """`Title > text`, cut to `max_words` words, of the best article for each term."""
        asked = [n for n, text in enumerate(inputs) if text.strip()]
        found = self.retriever.retrieve([inputs[n] for n in asked], 1, [documents[n] for n in asked])
        results = [Result(reason="empty search term") for _ in inputs]
        for n, passages in zip(asked, found, strict=True):
            results[n] = (
                Result(snippet(passages[0], self.max_words)) if passages else Result(reason="nothing found")
            )
        return results


def snippet(passage: Passage, max_words: int) -> str:
    """`Title > text`, the text cut after whole words."""
    return f"{passage.title} > {' '.join(passage.text.split()[:max_words])}"


def own_article(document: Document) -> str:
    """All that decides which articles are kept from a document (see `_is_from`)."""
    return json.dumps([document.source_id, document.text])


def _is_from(document: Document, shingles: set[int], passage: Passage) -> bool:
    """Whether a document is that article, by id or by more than half of the shorter one's word eight-grams."""
    if passage.passage_id == document.source_id:
        return True
    theirs = _shingled(passage.text) if shingles else set()
    return len(shingles & theirs) * 2 > min(len(shingles), len(theirs))


def _shingled(text: str) -> set[int]:
    words = _WORD.findall(text.lower())
    return {hash(tuple(words[n : n + SHINGLE])) for n in range(len(words) - SHINGLE + 1)}
