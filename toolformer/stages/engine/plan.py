"""The shards of a corpus, and which of them are still to be done.

A plan is kept beside the work, named by the files that it was made of: while they stay as they are, what has been done is
known without reading them again.
"""

from __future__ import annotations

import datetime
import itertools
import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from toolformer.annotation.shards import ShardStore
from toolformer.errors import UserError
from toolformer.progress import Bar
from toolformer.stages import instantiate
from toolformer.stages.config import Config, fingerprint
from toolformer.storage import locked, write_whole


class Plan:
    """The shards of a corpus: as they are kept, or empty until `read`.

    Raises:
        UserError: there is no such corpus.
    """

    def __init__(self, config: Config) -> None:
        self.documents: dict[str, int] = {}
        """The number of documents by shard; a name is made of the shard's place and content."""
        self.skipped: dict[str, int] = {}
        """Rows that reading the corpus left out, by reason."""
        self.missing: set[str] = set()
        """Shards that are not done."""
        self._size = config.generate.shard_size
        self._corpus = instantiate.Corpus(config.corpus)
        self._folder = Path(config.paths.root) / "generate" / "plans"
        self._path = self._kept_path()
        with suppress(OSError, ValueError):  # there is none, or it was damaged
            self.documents, self.skipped = json.loads(self._path.read_bytes()) if self._path else ({}, {})

    @property
    def total(self) -> int:
        """Documents."""
        return sum(self.documents.values())

    def _kept_path(self) -> Path | None:
        """Where the plan of the corpus as it is now is kept; None for one that may change unseen."""
        state, config = self._corpus.state(), self._corpus.config
        if state is None:
            return None
        # Without a latest date the day of the reading decides which dates of URLs are believed.
        day = config.latest_date or datetime.datetime.now(datetime.UTC).date()
        return self._folder / f"{fingerprint('plan', asdict(config), day, self._size, state)}.json"

    def read(self, store: ShardStore | None = None) -> None:
        """Reads the corpus, unless every shard of a kept plan is done; documents of those that are not wait in the store.

        Raises:
            UserError: the corpus cannot be read, or holds no document; the folder cannot be written.
        """
        if store and self.documents and all(map(store.is_there, self.documents)):
            return
        self.documents = {}
        documents = iter(Bar(self._corpus, desc="corpus", unit="doc", leave=False))
        while batch := list(itertools.islice(documents, self._size)):
            name = f"{len(self.documents):06d}-{instantiate.content_hash(batch)}"
            self.documents[name] = len(batch)
            if store and store.add(name, batch):
                self.missing.add(name)
        if not self.documents:
            raise UserError(
                "corpus: it holds no document with text; give another corpus or corpus.path, or name the field in "
                "corpus.text_field"
            )
        self.skipped = self._corpus.skipped()
        if store and self._path and self._path == self._kept_path():  # nobody wrote to it meanwhile
            with locked(self._folder / "lock"):  # others may be at the same plan
                write_whole(self._path, json.dumps([self.documents, self.skipped]).encode())
