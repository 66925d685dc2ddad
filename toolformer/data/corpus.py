"""A corpus as it is annotated and trained on: each document once, up to a limit; and the hash of its content."""

import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from toolformer.data.document import Document, content_id
from toolformer.data.row_corpus import RowCorpus
from toolformer.data.sampling import hash64
from toolformer.storage import content_digest

log = logging.getLogger(__name__)

_REPEATED = "repeated text"
"""Why a row is skipped that has the id and text of an earlier one; without an id, the text is its id."""


@dataclass(frozen=True)
class Bundled:
    """Documents of a file that belongs to this package or is fetched for it.

    Args:
        read: makes the documents.
        file: finds the file.
    """

    read: Callable[[], Iterable[Document]]
    file: Callable[[], Path]

    def __iter__(self) -> Iterator[Document]:
        return iter(self.read())

    def digest(self) -> str:
        return content_digest(self.file())


class Corpus:
    """Documents, streamed from their source at each iteration, each id once.

    Of several rows with the same id and text, the first is kept; a different text under a known id gets another id, made
    of both. A reading takes 125 bytes of memory per document: 1.2 GB for ten million.

    Args:
        source: the documents, or a function that returns them.
        limit: documents at most; None for all.
        key: the name of the corpus in messages.

    UserError for a reading without documents, or without a field that was named.
    """

    def __init__(
        self,
        source: Iterable[Document] | Callable[[], Iterable[Document]],
        limit: int | None = None,
        key: str = "corpus",
    ) -> None:
        self.source = source
        self.limit = limit
        self.key = key
        self._repeated = 0
        self._level = logging.WARNING

    def __iter__(self) -> Iterator[Document]:
        documents, renamed = 0, 0
        self._repeated = 0
        for document, is_renamed in itertools.islice(self._distinct(), self.limit):
            documents += 1
            renamed += is_renamed
            yield document
        level, self._level = self._level, logging.DEBUG
        if self._repeated:
            log.log(level, "%s: rows skipped: %d %s", self.key, self._repeated, _REPEATED)
        if renamed:
            log.log(
                level,
                "%s: texts with the id of another text, kept with a hash added to it: %d",
                self.key,
                renamed,
            )
        if isinstance(self.source, RowCorpus):
            self.source.check(documents)

    def _distinct(self) -> Iterator[tuple[Document, bool]]:
        """Documents, and whether each was given another id."""
        seen: dict[int, int] = {}  # the hash of an id -> that of its text
        for document in self.source() if callable(self.source) else self.source:
            doc_id, text = document.doc_id, hash64(document.text)
            while (known := seen.setdefault(hash64(doc_id), -1)) not in (-1, text):
                doc_id = f"{doc_id}#{content_id(document.text)}"
            if known == text:
                self._repeated += 1
                continue
            seen[hash64(doc_id)] = text
            is_renamed = doc_id != document.doc_id
            yield replace(document, doc_id=doc_id) if is_renamed else document, is_renamed

    def digest(self) -> str:
        """Digest of the texts' content, which distinguishes them from other sources, whatever the limit; reads no
        text."""
        if isinstance(self.source, RowCorpus | Bundled):
            return self.source.digest()
        raise TypeError(f"{type(self.source).__name__} has no digest")

    def skipped(self) -> dict[str, int]:
        """Rows that the latest reading skipped, by reason, as far as it went (`limit` ends it early)."""
        counts = dict(getattr(self.source, "skipped", {}))
        return {**counts, _REPEATED: self._repeated} if self._repeated else counts


def content_hash(documents: Iterable[Document]) -> str:
    """A name for documents, by everything that can change their annotation."""
    digest = hashlib.sha256()
    for document in documents:
        deciding = {key: value for key, value in asdict(document).items() if key != "title"}
        digest.update(json.dumps(deciding, sort_keys=True, default=str).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:12]
