"""BM25 by Lucene, as in the paper: an index on disk of any size, a prebuilt one (KILT's Wikipedia) or one of one's own."""

import contextlib
import itertools
import json
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from toolformer.data import Document
from toolformer.errors import UserError, one_line
from toolformer.storage import locked
from toolformer.tools.retrieval import index, java
from toolformer.tools.retrieval.passages import (
    K1,
    LONGEST_QUERY,
    B,
    Passage,
    best_piece,
    clean,
    others,
    plain_line,
)

BACKEND = "lucene"
KILT = "wikipedia-kilt-doc"
"""KILT's Wikipedia of August 2019, 5.9 million articles, as Pyserini publishes it: 11 GB to download."""
BATCH = 1000
"""Passages handed to Java together."""


_bridge = threading.Lock()
"""Held by the thread that is in Java: the bridge mixes up the objects of several. Java has threads of its own."""


@dataclass(eq=False)
class Lucene:
    """BM25 over a Lucene index; safe to use from several threads.

    Java starts now, and a prebuilt index that is not there is downloaded; an index is opened at the first query. `UserError` if
    Java or Pyserini is missing, there is no such index, the folder holds none, or there is no network.
    """

    index_path: str | None = None
    """A folder made by `toolformer index`, or any Lucene index of Anserini's or Pyserini's that stores the raw documents;
    goes before `prebuilt`."""
    prebuilt: str | None = KILT
    """One of Pyserini's indexes by name."""
    passage_words: int | None = 100
    """A longer text is narrowed to its best piece of so many words; None leaves it whole."""
    threads: int | None = None
    """Of Java that search a batch side by side; None is one for each core of this process."""

    def __post_init__(self) -> None:
        java.java_class("java.lang.Object")
        if self.index_path is not None:
            self.folder = Path(self.index_path).expanduser()
            index.check(self.folder, BACKEND)
        elif self.prebuilt is None:
            raise UserError("search: name an index: retriever.index_path=FOLDER or retriever.prebuilt=NAME")
        else:
            self.folder = _prebuilt(self.prebuilt)
        self.threads = self.threads or len(os.sched_getaffinity(0))

    def __len__(self) -> int:
        return int(self._searcher.get_total_num_docs())

    @cached_property
    def _searcher(self) -> Any:
        try:
            searcher = java.java_class("io.anserini.search.SimpleSearcher")(str(self.folder))
        except Exception as error:  # jnius has one class for whatever Java throws
            reason = one_line(error, 200)
            raise UserError(f"search: the Lucene index {self.folder} cannot be opened ({reason})") from error
        searcher.set_bm25(K1, B)
        return searcher

    def retrieve(self, queries: Sequence[str], k: int, documents: Sequence[Document]) -> list[list[Passage]]:
        """See `Retriever`."""
        asked = {n: plain_line(query[:LONGEST_QUERY]) for n, query in enumerate(queries) if query.strip()}

        def search(numbers: Sequence[int], k: int) -> list[list[Passage]]:
            return self._ranked([asked[n] for n in numbers], k)

        with _bridge:
            try:
                return others(documents, list(asked), k, len(self), search)
            finally:
                java.leave_thread()

    def _ranked(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The `k` best passages for each query, best first; passages of the same score by their ids."""
        texts, numbers = (java.java_class("java.util.ArrayList")() for _ in range(2))
        for n, query in enumerate(queries):
            texts.add(query)
            numbers.add(str(n))
        hits = self._searcher.batch_search(texts, numbers, k, self.threads)
        found: list[list[Passage]] = []
        for n, query in enumerate(queries):
            passages = [
                passage_of(hit.docid, hit.lucene_document.get("raw"), hit.score) for hit in hits.get(str(n))
            ]
            found.append([best_piece(passage, query, self.passage_words) for passage in passages])
        return found


def passage_of(docid: str, raw: str | None, score: float) -> Passage:
    """What an index stores of a document: our own rows, KILT's, or any with `contents`, its first line the title.

    `UserError` if it stores no raw documents.
    """
    try:
        row = json.loads(raw or "")
        if not isinstance(row, dict):
            raise ValueError
    except ValueError:
        raise UserError(f"search: the index stores no JSON for {docid}; build it with -storeRaw") from None
    head, _, rest = str(row.get("contents", "")).partition("\n")
    title = row.get("title") or row.get("wikipedia_title") or head.strip('" ')
    text = row.get("text") or rest or head
    return Passage(docid, plain_line(str(title)), clean(str(text)), float(score), row.get("article"))


def build(passages: Iterable[Passage], folder: Path, threads: int | None = None) -> int:
    """Writes an index of the passages into a folder, a thousand at a time; returns how many there are."""
    arguments = ["-index", str(folder), "-collection", "JsonCollection", "-input", "", "-storeRaw"]
    arguments += ["-threads", str(threads or len(os.sched_getaffinity(0)))]
    indexer = java.java_class("io.anserini.index.SimpleIndexer")(arguments)
    stream, count = iter(passages), 0
    try:
        while batch := list(itertools.islice(stream, BATCH)):
            taken = indexer.addRawDocuments([_stored(passage) for passage in batch])
            if taken != len(batch):
                raise UserError(f"index: Lucene took {taken} of {len(batch)} passages after {count}")
            count += taken
    finally:
        indexer.close()
    return count


def _stored(passage: Passage) -> str:
    row = index.row(passage)
    # `contents` is what Lucene searches; the text alone would be stored twice.
    row["contents"] = f"{passage.title}\n{row.pop('text')}"
    return json.dumps({"id": row.pop("passage_id"), **row})


def _prebuilt(name: str) -> Path:
    """The folder of a prebuilt index, fetched into Pyserini's own cache first if need be (PYSERINI_CACHE moves it)."""
    # Pyserini's table starts a Java by itself, any that it finds, unless one is there.
    from pyserini.prebuilt_index_info import TF_INDEX_INFO
    from pyserini.util import download_prebuilt_index, get_cache_home

    if name not in TF_INDEX_INFO:
        raise UserError(
            f"search: retriever.prebuilt: Pyserini has no BM25 index {name!r}; the paper's is {KILT}"
        )
    try:
        # Its words are no result: whoever reads our standard output waits for one.
        with locked(Path(get_cache_home()) / f"{name}.lock"), contextlib.redirect_stdout(sys.stderr):
            return Path(download_prebuilt_index(name, verbose=False))
    except (OSError, ValueError, AssertionError) as error:
        reason = f"{one_line(error, 200)}); fetch it elsewhere and give retriever.index_path=FOLDER"
        raise UserError(f"search: the index {name} cannot be downloaded ({reason}") from error
