"""Shards in a queue; those of a corpus, which is read once, in the background, may be done as soon as they are known.

A finished plan is kept beside the work, named by the files that it was made of: while they stay as they are, what has been
done is known without reading them again.
"""

import datetime
import itertools
import json
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from toolformer.annotation.shards import ShardStore
from toolformer.data import Document, content_hash
from toolformer.data.heldout import split
from toolformer.jobs import instantiate
from toolformer.jobs.config import Config
from toolformer.step import Step
from toolformer.storage import atomic_write, locked

HELD_OUT = "held out"
"""Why a document of the corpus is not annotated that is kept for the held-out perplexity."""
POLL_SECONDS = 0.5
"""How long is waited for news at a time."""
STOP_SECONDS = 5.0
"""How long the end of a run waits for its reader, which may wait for a network."""


class Queue:
    """Shards that are to be done, by name; several threads may use it."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.missing = set(names)
        """Shards that are not done."""
        self.is_complete = True
        """Whether all shards are known."""
        self._todo = deque(sorted(self.missing))
        self._changed = threading.Condition()
        self._error: BaseException | None = None

    def wait(self, seconds: float) -> bool:
        """Waits until all shards are known; returns whether they are. Raises what finding them has raised."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_complete or self._error, seconds)
        if self._error:
            raise self._error
        return self.is_complete

    def take(self, seconds: float = 0.0) -> str | None:
        """The next shard to be done; None if none becomes known within the time. Raises what finding them has raised."""
        with self._changed:
            self._changed.wait_for(lambda: self._todo or self.is_complete or self._error, seconds)
            if self._error:
                raise self._error
            return self._todo.popleft() if self._todo else None

    @property
    def is_given_out(self) -> bool:
        """Whether every shard has been taken."""
        return self.is_complete and not self._todo

    def give_out_again(self) -> None:
        """All that are missing may be taken again: they were lost with their workers, or others left them."""
        with self._changed:
            self._todo = deque(sorted(self.missing))

    def done_by_others(self, names: Collection[str]) -> None:
        """Takes shards off that another process has finished."""
        self.missing -= set(names)


class Plan(Queue):
    """The shards of a corpus as far as it has been read, and which of them are still to be done."""

    def __init__(self, config: Config, shard_size: int) -> None:
        super().__init__()
        self.documents: dict[str, int] = {}
        """The number of documents by shard; a name is made of the shard's place and content."""
        self.heldout: list[Document] = []
        """The documents that are held out of the corpus, once it is read."""
        self.heldout_hash: str | None = None
        """Of their content; None if there are none."""
        self.skipped: dict[str, int] = {}
        """Rows that reading the corpus left out, by reason; known when the plan is complete."""
        self.total = 0
        """Documents."""
        self.there = 0
        """Documents of shards that were done before, or by other processes."""
        self.is_complete = False
        self._size = shard_size
        self._config = config.corpus
        self._share = 0.0 if config.heldout.source else config.heldout_share
        self._corpus = instantiate.corpus(config.corpus)
        self._is_stopped = False
        self._folder = Path(config.paths.root) / "annotate" / "plans"
        self._path = self._kept_path()
        with suppress(OSError, ValueError, TypeError, AttributeError):  # there is none, or it was damaged
            documents, skipped, heldout = (
                json.loads(self._path.read_bytes()) if self._path else ({}, {}, None)
            )
            self.documents, self.skipped = (
                {name: int(count) for name, count in counts.items()} for counts in (documents, skipped)
            )
            self.heldout_hash = None if heldout is None else str(heldout)
            self.is_complete = bool(self.documents)

    def _kept_path(self) -> Path | None:
        """Where the plan of the corpus as it is now is kept; None for one that may change unseen."""
        state, config = self._corpus.state(), self._config
        if not state:
            return None
        # Without a latest date the day of the reading decides which dates in URLs are ignored.
        day = config.latest_date or datetime.datetime.now(datetime.UTC).date()
        inputs = {"day": str(day), "size": self._size, "files": state, "heldout_share": self._share}
        step = Step("plan", 1, asdict(config), inputs)
        return self._folder / f"{step.key()}.json"

    def read(self, store: ShardStore | None = None) -> None:
        """Reads the corpus to its end; documents of shards that are not done wait in the store, if one is given.

        UserError if the corpus cannot be read or holds no document.
        """
        self.heldout = []
        documents = self._annotated()
        while batch := list(itertools.islice(documents, self._size)):
            if self._is_stopped:
                return
            name = f"{len(self.documents):06d}-{content_hash(batch)}"
            is_missing = store is not None and store.add(name, batch)
            with self._changed:
                self.documents[name] = len(batch)
                self.total += len(batch)
                if is_missing:
                    self.missing.add(name)
                    self._todo.append(name)
                else:
                    self.there += len(batch)
                self._changed.notify_all()
        self.skipped = self._corpus.skipped()
        self.heldout_hash = content_hash(self.heldout) if self.heldout else None
        if self.heldout:
            self.skipped[HELD_OUT] = len(self.heldout)
        if store and self._path and self._path == self._kept_path():  # nobody wrote to it meanwhile
            with locked(self._folder / "lock"):  # others may be at the same plan
                atomic_write(
                    self._path, json.dumps([self.documents, self.skipped, self.heldout_hash]).encode()
                )
        self.is_complete = True

    def _annotated(self) -> Iterator[Document]:
        """The documents to annotate; the others are held out."""
        for document, is_held_out in split(self._corpus, self._share):
            if is_held_out:
                self.heldout.append(document)
            else:
                yield document

    @contextmanager
    def reading(self, store: ShardStore) -> Iterator[None]:
        """Reads the corpus in the background for as long as the block lasts, unless every shard of a kept plan is there."""
        if self.is_complete and all(map(store.is_there, self.documents)):
            self.total = self.there = sum(self.documents.values())
            yield
            return
        self.documents, self.is_complete = {}, False
        reader = threading.Thread(target=self._read_aside, args=(store,), daemon=True)
        reader.start()
        try:
            yield
        finally:
            self._is_stopped = True
            reader.join(STOP_SECONDS)

    def _read_aside(self, store: ShardStore) -> None:
        try:
            self.read(store)
        except BaseException as error:  # raised where the plan is waited for
            self._error = error
        with self._changed:
            self._changed.notify_all()

    def done_by_others(self, names: Collection[str]) -> None:
        super().done_by_others(names)
        self.there += sum(self.documents[name] for name in names)
