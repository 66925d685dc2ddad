"""BM25 by Lucene, as in the paper: an index on disk of any size, prebuilt (KILT's Wikipedia) or your own."""

import contextlib
import itertools
import json
import logging
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from toolformer.data import Document
from toolformer.errors import UserError, one_line
from toolformer.step import NOTHING, Content
from toolformer.storage import locked
from toolformer.tools.base import Need
from toolformer.tools.retrieval import index, java
from toolformer.tools.retrieval.passages import (
    K1,
    LONGEST_QUERY,
    B,
    Passage,
    Retriever,
    best_piece,
    passage_of_row,
    plain_line,
    retrieve_excluding_self,
)
from toolformer.tools.retrieval.words import unsplit_by_lucene

log = logging.getLogger(__name__)

BACKEND = "lucene"
KILT = "wikipedia-kilt-doc"
"""KILT's Wikipedia of August 2019, 5.9 million articles, as Pyserini publishes it: 11 GB to download."""
BATCH = 1000
"""Passages per call of Java."""
_ROOM = "make room or name another folder"


_bridge = threading.Lock()
"""Held by the thread that calls Java: the bridge mixes up objects of several threads. Java's threads are not concerned."""


@dataclass(eq=False)
class Lucene(Retriever):
    """BM25 over a Lucene index. Thread-safe.

    Java starts at once, and a missing prebuilt index is downloaded; the index is opened by `check` or at the first query.
    `UserError` if Java, Pyserini, the index or the network is missing.
    """

    VERSION = 4
    index_path: Annotated[str | None, Content()] = None
    """An index made by `toolformer index`, or any Lucene index by Anserini or Pyserini that stores the raw documents;
    overrides `prebuilt`."""
    prebuilt: str | None = KILT
    """The name of one of Pyserini's indexes."""
    passage_words: int | None = 100
    """Longer texts are narrowed to their best piece of this many words; None leaves them whole."""
    threads: Annotated[int | None, NOTHING] = None
    """Java threads that search a batch; None is one per core of this process."""

    def __post_init__(self) -> None:
        java.java_class("java.lang.Object")
        if self.index_path is not None:
            self.folder = Path(self.index_path).expanduser()
            index.check_index(self.folder, BACKEND)
        elif self.prebuilt is None:
            raise UserError("search: name an index: retriever.index_path=FOLDER or retriever.prebuilt=NAME")
        else:
            self.folder = _prebuilt(self.prebuilt)
        self.threads = self.threads or len(os.sched_getaffinity(0))

    @classmethod
    def describe(cls, settings: Mapping[str, Any]) -> str:
        """See `Part`."""
        if settings.get("index_path"):
            folder = Path(settings["index_path"]).expanduser()
            count = (index.manifest_of(folder) or {}).get("passages")
            return f"BM25 by Lucene over {folder.name}" + (f" ({count:,} passages)" if count else "")
        name = settings.get("prebuilt", KILT)
        return f"BM25 by Lucene over {name}" + (" (5.9 million articles)" if name == KILT else "")

    @classmethod
    def needs(cls, settings: Mapping[str, Any]) -> Sequence[Need]:
        """Java, Pyserini and the index."""
        found = [java.need()]
        if settings.get("index_path"):
            folder = Path(settings["index_path"]).expanduser()
            try:
                index.check_index(folder, BACKEND)
                found.append(Need(f"the index {folder}"))
            except UserError as error:
                found.append(Need(f"the index {folder}", str(error)))
        elif name := settings.get("prebuilt", KILT):
            cache = Path(os.environ.get("PYSERINI_CACHE") or "~/.cache/pyserini").expanduser() / "indexes"
            is_there = any(cache.glob(f"*{name}*"))
            size = "11 GB to fetch, some 2 GB of memory" if name == KILT else ""
            found.append(
                Need(f"the index {name}", "" if is_there else "not fetched yet", size, is_fetched=True)
            )
        return found

    def check(self) -> None:
        """UserError if this Lucene cannot open the index."""
        len(self)

    def __len__(self) -> int:
        return int(self._searcher.get_total_num_docs())

    @cached_property
    def _searcher(self) -> Any:
        try:
            searcher = java.java_class("io.anserini.search.SimpleSearcher")(str(self.folder))
        except Exception as error:  # jnius has one class for whatever Java throws
            reason = one_line(error, 200)
            raise UserError(
                f"search: the Lucene index {self.folder} cannot be opened ({reason}); if another version of Lucene made it, build it "
                "again: toolformer index index.backend=lucene"
            ) from error
        searcher.set_bm25(K1, B)
        return searcher

    def retrieve(self, queries: Sequence[str], k: int, documents: Sequence[Document]) -> list[list[Passage]]:
        """See `Retriever`."""
        lines = {n: plain_line(query[:LONGEST_QUERY]) for n, query in enumerate(queries) if query.strip()}

        def search(numbers: Sequence[int], k: int) -> list[list[Passage]]:
            return self._ranked([lines[n] for n in numbers], k)

        with _bridge:
            try:
                return retrieve_excluding_self(documents, list(lines), k, len(self), search)
            finally:
                java.leave_thread()

    def _ranked(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The `k` best passages for each query, best first; ties by id."""
        texts, numbers = (java.java_class("java.util.ArrayList")() for _ in range(2))
        for n, query in enumerate(queries):
            texts.add(query)
            numbers.add(str(n))
        hits = self._searcher.batch_search(texts, numbers, k, self.threads)
        ranked: list[list[Passage]] = []
        for n, query in enumerate(queries):
            passages = [
                passage_of(hit.docid, hit.lucene_document.get("raw"), hit.score) for hit in hits.get(str(n))
            ]
            ranked.append([best_piece(passage, query, self.passage_words) for passage in passages])
        return ranked


def passage_of(docid: str, raw: str | None, score: float) -> Passage:
    """The passage of a stored document: our rows, KILT's, or any with `contents`, whose first line is the title.

    `UserError` if the index stores no raw documents.
    """
    try:
        row = json.loads(raw or "")
        if not isinstance(row, dict):
            raise ValueError
    except ValueError:
        raise UserError(f"search: the index stores no JSON for {docid}; build it with -storeRaw") from None
    return passage_of_row(row, docid, float(score))


def build(passages: Iterable[Passage], folder: Path, threads: int | None = None) -> int:
    """Writes an index of the passages into a folder; returns their number. UserError if it cannot be written."""
    arguments = ["-index", str(folder), "-collection", "JsonCollection", "-input", "", "-storeRaw"]
    arguments += ["-threads", str(threads or len(os.sched_getaffinity(0)))]
    with _writing():
        indexer = java.java_class("io.anserini.index.SimpleIndexer")(arguments)
    stream, count, unsplit = iter(passages), 0, 0
    try:
        while batch := list(itertools.islice(stream, BATCH)):
            with _writing():
                taken = indexer.addRawDocuments([_stored(passage) for passage in batch])
            if taken != len(batch):
                raise UserError(
                    f"index: Lucene took {taken} of {len(batch)} passages after {count}, perhaps because the disk is full; {_ROOM}"
                )
            count += taken
            unsplit += sum(unsplit_by_lucene(f"{passage.title} {passage.text}") for passage in batch)
    except BaseException:
        with contextlib.suppress(UserError), _writing():  # the first error is the one to report
            indexer.close()
        raise
    with _writing():
        indexer.close()
    if unsplit:
        log.warning(
            "index: %d passages are in a script without blanks that Lucene's English analyzer does not split (Thai, Lao, "
            "Khmer or Burmese): a search finds only whole clauses of them; use index.backend=bm25",
            unsplit,
        )
    return count


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Makes one line of whatever Java throws while it writes an index: jnius has one class for all of it."""
    try:
        yield
    except Exception as error:
        raise UserError(f"index: Lucene cannot write ({one_line(error, 200)}); {_ROOM}") from error


def _stored(passage: Passage) -> str:
    row = index.row(passage)
    # Lucene searches `contents`; with `text` too the text would be stored twice.
    row["contents"] = f"{passage.title}\n{row.pop('text')}"
    return json.dumps({"id": row.pop("passage_id"), **row})


def _prebuilt(name: str) -> Path:
    """The folder of a prebuilt index, downloaded into Pyserini's cache if needed (PYSERINI_CACHE moves it)."""
    # Importing Pyserini's table starts any Java it finds, unless one is running.
    from pyserini.prebuilt_index_info import TF_INDEX_INFO
    from pyserini.util import download_prebuilt_index, get_cache_home

    if name not in TF_INDEX_INFO:
        raise UserError(
            f"search: retriever.prebuilt: Pyserini has no BM25 index {name!r}; the paper's is {KILT}"
        )
    try:
        # Its messages must not mix with results on standard output.
        with locked(Path(get_cache_home()) / f"{name}.lock"), contextlib.redirect_stdout(sys.stderr):
            return Path(download_prebuilt_index(name, verbose=False))
    except (OSError, ValueError, AssertionError) as error:
        reason = f"{one_line(error, 200)}); fetch it elsewhere and give retriever.index_path=FOLDER"
        raise UserError(f"search: the index {name} cannot be downloaded ({reason}") from error
