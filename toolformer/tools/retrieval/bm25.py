"""BM25 by bm25s: pure Python packages, no Java; stop words and stemming nearly as in Lucene's English analyzer.

`words` splits texts of other scripts.
"""

import functools
import hashlib
import logging
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from toolformer.data import Document, assets
from toolformer.errors import UserError
from toolformer.step import Content
from toolformer.tools.retrieval import index
from toolformer.tools.retrieval.passages import (
    K1,
    LONGEST_QUERY,
    B,
    Passage,
    Retriever,
    articles,
    retrieve_excluding_self,
)
from toolformer.tools.retrieval.words import search_words

BACKEND = "bm25"
BUNDLED = "10,033 Wikipedia summaries"


@dataclass(eq=False)
class BM25(Retriever):
    """BM25 over a list of articles, indexed once in the cache, or over an index on disk. Thread-safe.

    The index is opened, or built, at the first query. `UserError` if the folder is not an index of this backend.
    """

    VERSION = 4
    articles_path: Annotated[str | None, Content()] = None
    """A JSON file of articles (title, extract); None is the bundled Wikipedia summaries."""
    index_path: Annotated[str | None, Content()] = None
    """An index made by `toolformer index`, instead of articles."""

    def __post_init__(self) -> None:
        if self.articles_path is not None and self.index_path is not None:
            raise UserError("search: both articles_path and index_path are given; leave one of them out")
        if self.index_path is not None:
            index.check_index(Path(self.index_path).expanduser(), BACKEND)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._index.corpus)

    @classmethod
    def describe(cls, settings: Mapping[str, Any]) -> str:
        """See `Part`."""
        path = settings.get("index_path") or settings.get("articles_path")
        count = (
            index.manifest_of(Path(settings["index_path"]).expanduser())
            if settings.get("index_path")
            else None
        )
        size = f" ({count['passages']:,} passages)" if count and "passages" in count else ""
        return f"BM25 (bm25s) over {Path(path).name}{size}" if path else f"BM25 (bm25s) over {BUNDLED}"

    @functools.cached_property
    def _index(self) -> Any:
        """The index, memory-mapped."""
        folder = Path(self.index_path).expanduser() if self.index_path else self._of_articles()
        try:
            return _library().BM25.load(str(folder), load_corpus=True, mmap=True, show_progress=False)
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"search: the index {folder} cannot be read ({error}); build it again") from error

    def _of_articles(self) -> Path:
        """The index of the articles, built if needed."""
        passages = articles(self.articles_path)
        digest = hashlib.sha256(str(index.VERSIONS[BACKEND]).encode())
        for passage in passages:
            digest.update(f"{passage.title}\0{passage.text}\0".encode("utf-8", "replace"))
        folder = assets.cache_dir() / "indexes" / f"bm25-{digest.hexdigest()[:16]}"
        if not index.is_intact(folder):
            index.write(
                folder, BACKEND, lambda path: build(passages, path), scratch=assets.cache_dir(), replace=True
            )
        return folder

    def retrieve(self, queries: Sequence[str], k: int, documents: Sequence[Document]) -> list[list[Passage]]:
        """See `Retriever`."""
        if not queries:
            return []
        with self._lock:  # the first one opens the index
            vocabulary = self._index.vocab_dict
        tokens = [
            [word for word in words if word in vocabulary]
            for words in _tokenize([search_words(query[:LONGEST_QUERY], is_query=True) for query in queries])
        ]
        queries_left = [n for n, words in enumerate(tokens) if words]
        return retrieve_excluding_self(
            documents, queries_left, k, len(self), lambda some, k: self._ranked([tokens[n] for n in some], k)
        )

    def _ranked(self, tokens: Sequence[Sequence[str]], k: int) -> list[list[Passage]]:
        """The `k` best passages for each query that share a word with it, best first."""
        # Only numbers: passages are read from disk if they have a score. Without bm25s's threads, which are slower, since
        # the interpreter's lock is held nearly all the time. NumPy even if JAX is installed: ties are broken equally.
        ranked = self._index.retrieve(
            tokens, corpus=np.arange(len(self)), k=k, show_progress=False, backend_selection="numpy"
        )
        return [
            [
                self._passage(int(number), float(score))
                for number, score in zip(*row, strict=True)
                if score > 0
            ]
            for row in zip(*map(np.asarray, ranked), strict=True)
        ]

    def _passage(self, number: int, score: float) -> Passage:
        with self._lock:  # the mapped file has one read position
            return Passage(**self._index.corpus[number], score=score)


def build(passages: Iterable[Passage], folder: Path) -> int:
    """Writes an index of the passages into a folder; returns their number. Holds all words in memory."""
    rows = [index.row(passage) for passage in passages]
    if rows:
        bm25 = _library().BM25(k1=K1, b=B)
        words = (search_words(f"{row['title']} {row['text']}", is_query=False) for row in rows)
        bm25.index(_in_order(_tokenize(words, ids=True)), show_progress=False)
        bm25.save(str(folder), corpus=rows, show_progress=False, raise_on_serialization_error=True)
    return len(rows)


def _in_order(tokens: Any) -> Any:
    """The words numbered by the alphabet. bm25s has another order in each process, and an index's bytes decide results' ids."""
    words = sorted(tokens.vocab)
    numbers = {tokens.vocab[word]: number for number, word in enumerate(words)}
    return type(tokens)(
        ids=[[numbers[old] for old in text] for text in tokens.ids],
        vocab={word: number for number, word in enumerate(words)},
    )


def _tokenize(texts: Iterable[Sequence[str]], ids: bool = False) -> Any:
    """The stems of texts given as words, without stop words."""
    import Stemmer

    # A new stemmer each time: PyStemmer's are not thread-safe.
    return _library().tokenize(
        list(map(" ".join, texts)),
        lower=False,
        token_pattern=r"\S+",
        stopwords="en",
        stemmer=Stemmer.Stemmer("english"),
        return_ids=ids,
        show_progress=False,
    )


@functools.cache
def _library() -> Any:
    """bm25s, without its debug log, and without JAX, which would take most of a GPU's memory."""
    asleep = "jax" not in sys.modules
    if asleep:
        sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        import bm25s
    finally:
        if asleep:
            sys.modules.pop("jax", None)

    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return bm25s
