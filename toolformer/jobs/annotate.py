"""The annotation of a corpus as shared work: its chunks are shards of texts, each written with its results."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer.annotation.results import KeepRules, examples
from toolformer.annotation.shards import BrokenShard, Record, ShardStore
from toolformer.data import Document, content_hash
from toolformer.data.heldout import split
from toolformer.errors import UserError
from toolformer.jobs import corpora, instantiate, share, steps
from toolformer.jobs.config import Config
from toolformer.progress import Bar
from toolformer.results.provenance import git_commit
from toolformer.tools.runtime import Usage, usages

if TYPE_CHECKING:
    from toolformer.annotation.pipeline import Annotation, Annotator

log = logging.getLogger(__name__)

HELD_OUT = "held out"
"""Why a document of the corpus is not annotated that is kept for the held-out perplexity."""


class Texts:
    """The texts to annotate, read again at each iteration: (name, documents) of each shard.

    A name is made of the shard's place and content, so that texts that are appended to a corpus change no other shard.
    """

    def __init__(self, config: Config) -> None:
        self.heldout: list[Document] = []
        """The documents that are held out of the corpus, once `sizes` has counted the others."""
        self.known: set[str] = set()
        """Of `date` and `source_id`, what any of the others has."""
        self._config = config
        self._share = 0.0 if config.heldout.source else config.heldout_share
        self._corpus = corpora.corpus(config.corpus)

    def __reduce__(self) -> Any:
        return Texts, (self._config,)

    def __iter__(self) -> Iterator[tuple[str, list[Document]]]:
        return self._shards()

    def _shards(self, heldout: list[Document] | None = None) -> Iterator[tuple[str, list[Document]]]:
        documents = self._annotated(heldout)
        for number in itertools.count():
            if not (shard := list(itertools.islice(documents, self._config.generate.shard_size))):
                return
            yield f"{number:06d}-{content_hash(shard)}", shard

    def _annotated(self, heldout: list[Document] | None = None) -> Iterator[Document]:
        for document, is_held_out in split(self._corpus, self._share, self._config.heldout_limit):
            if not is_held_out:
                yield document
            elif heldout is not None:
                heldout.append(document)

    def sizes(self) -> dict[str, int]:
        """The number of documents of each shard, by its name. UserError if the corpus cannot be read or has no text."""
        heldout: list[Document] = []
        with Bar(unit="texts", desc="generate, reading") as bar:
            sizes: dict[str, int] = {}
            for name, documents in self._shards(heldout):
                sizes[name] = len(documents)
                self.known |= {"date"} if any(document.date for document in documents) else set()
                self.known |= {"source_id"} if any(document.source_id for document in documents) else set()
                bar.update(len(documents))
        self.heldout = heldout
        return sizes

    def skipped(self) -> dict[str, int]:
        """Rows that the latest reading left out, by reason, once it has come to its end."""
        held_out = {HELD_OUT: len(self.heldout)} if self.heldout else {}
        return {**self._corpus.skipped(), **held_out}


@dataclass(frozen=True)
class Annotating:
    """The shards of texts, with calls of each tool; a chunk is a shard with calls of one tool, `TOOL/SHARD`.

    Args:
        config: as the stage uses it, with each tool's threshold.
        folders: of the shards of each tool, by its key.
        on_step: hears which step of a chunk has begun; only where chunks are done in this process.
    """

    config: Config
    folders: Mapping[str, Path]
    texts: Texts
    rules: KeepRules
    on_step: Callable[[str], object] | None = None

    @property
    def stores(self) -> dict[str, ShardStore]:
        return {key: ShardStore(folder) for key, folder in self.folders.items()}

    def is_missing(self, shards: Collection[str]) -> bool:
        """Whether a tool lacks any of these shards."""
        return any(not store.names().issuperset(shards) for store in self.stores.values())

    def ready(self) -> Annotating:
        """The work with as many workers as the model's size allows. UserError for what cannot work, before a model is loaded."""
        from toolformer.lm import loading

        config = self.config
        if config.engine.address is None:
            config = share.fitted(config, instantiate.placement(config, config.model))
        else:  # a cluster's workers have devices of their own
            loading.load_config(config.model)
        instantiate.tools(config)
        return replace(self, config=config)

    def chunks(self) -> Iterator[share.Chunk]:
        """All chunks, of a tool that has its examples (`generate.limit_per_tool`) no more."""
        counts = {key: _Examples(store, self.rules) for key, store in self.stores.items()}
        for name, documents in self.texts:
            for key, found in counts.items():
                if not found.are_enough():
                    yield share.Chunk(f"{key}/{name}", documents)
                    found.passed[name] = documents

    def finished(self) -> set[str]:
        return {f"{key}/{name}" for key, store in self.stores.items() for name in store.names()}

    def has(self, name: str) -> bool:
        store, shard = self._place(name)
        return store.has(shard)

    def claim(self, name: str) -> AbstractContextManager[bool]:
        store, shard = self._place(name)
        return store.claim(shard)

    def record(self, name: str) -> Record:
        """How a finished chunk was made."""
        store, shard = self._place(name)
        return store.record(shard)

    def _place(self, name: str) -> tuple[ShardStore, str]:
        key, _, shard = name.partition("/")
        return ShardStore(self.folders[key]), shard

    def load(self) -> Replica:
        return Replica(self.config)

    def do(self, replica: Replica, chunk: share.Chunk) -> None:
        store, shard = self._place(chunk.name)
        key = chunk.name.partition("/")[0]
        started = time.monotonic()
        annotation, used = replica.annotate(key, store, chunk.content, self.on_step or (lambda step: None))
        seconds = time.monotonic() - started
        record = Record(
            annotation.funnel, round(seconds, 3), annotation.tokens, used, git_commit(), replica.dtype
        )
        store.write(shard, annotation.rows, record)


@dataclass
class _Examples:
    """Counts the examples of a tool among the finished shards up to a place in the corpus.

    However many workers there are, and whatever they have finished, none leaves out a shard that is before the last example.
    """

    store: ShardStore
    rules: KeepRules
    count: int = 0
    passed: dict[str, list[Document]] = field(default_factory=dict)
    """The documents of the shards that are not counted yet, since others may be at them."""

    def are_enough(self) -> bool:
        if self.rules.limit is None:
            self.passed.clear()
            return False
        for name in [name for name in self.passed if self.store.has(name)]:
            with suppress(BrokenShard):  # found when the results are written
                rows, _ = self.store.read(name)
                self.count += examples(rows.to_pylist(), self.passed.pop(name), self.rules)
        return self.count >= self.rules.limit


class Replica:
    """A model with tools, each made when it is needed."""

    def __init__(self, config: Config) -> None:
        import torch

        from toolformer.lm import memory
        from toolformer.lm.memory import BatchSize
        from toolformer.lm.text_generator import load_model

        if config.engine.threads:
            torch.set_num_threads(config.engine.threads)
        self.config = config
        self.language_model = load_model(config.model, config.lm.dtype, config.lm.device)
        self.language_model.graphs = config.lm.graphs
        tokens = config.engine.batch_tokens
        tokens = memory.batch_tokens(self.language_model.device) if tokens == "auto" else tokens
        self.batch_tokens = BatchSize("engine.batch_tokens", tokens)
        self._annotators: dict[str, Annotator] = {}
        self.dtype = str(self.language_model.dtype).removeprefix("torch.")
        log.info(
            "generate: engine.threads=%d, engine.batch_tokens=%d, dtype %s",
            *(torch.get_num_threads(), tokens, self.dtype),
        )

    def annotate(
        self, key: str, store: ShardStore, documents: Sequence[Document], on_step: Callable[[str], object]
    ) -> tuple[Annotation, Usage]:
        """The annotation of documents with calls of a tool, and counts of the calls that were made."""
        if key not in self._annotators:
            self._annotators[key] = self._annotator(key, store)
        annotator = self._annotators[key]

        def annotate() -> Annotation:
            self.language_model.batch_tokens = self.batch_tokens.value
            return annotator.annotate(documents, on_step)

        return self.batch_tokens.attempt(annotate), usages({key: annotator.tool})[key]

    def _annotator(self, key: str, store: ShardStore) -> Annotator:
        from toolformer.annotation.pipeline import Annotator

        if steps.annotate(self.config, key).key() != store.folder.name:
            raise UserError(
                f"tool.{key}: its files have changed since this command began; give the command again"
            )
        return Annotator(
            self.language_model,
            instantiate.tool_settings(self.config, key),
            instantiate.tools(self.config, [key])[key],
            seed=self.config.sampling_seed,
            paragraphs=self.config.corpus.paragraphs,
            floor=store.floor,
            pre_filters=self.config.screen,
        )


@dataclass(frozen=True)
class Speed:
    """Work done by this command and its workers."""

    documents: float = 0.0
    """Each counts for as much as it has of the tools."""
    tokens: float = 0.0
    """Tokens of these documents' texts."""
    seconds: float = 0.0


def annotate(work: Annotating, sizes: Mapping[str, int], on_speed: Callable[[int, float], object]) -> Speed:
    """Does every chunk that is not done; ends when all are there, also those of other processes.

    Args:
        sizes: as `Texts.sizes`.
        on_speed: hears the number of documents done so far and how many a second the chunk just finished took.

    Raises:
        UserError: bad input, a folder that cannot be written, workers that die again and again.
    """
    if not work.is_missing(sizes.keys()):
        return Speed()
    tools = len(work.folders)
    started, done, tokens = time.monotonic(), 0, 0
    what = "generate" if tools == 1 else f"generate, {tools} tools"
    with Bar(unit="texts", desc=what, smoothing=0.1, total=tools * sum(sizes.values())) as bar:

        def on_done(name: str, is_new: bool) -> None:
            nonlocal done, tokens
            if not (size := sizes.get(name.partition("/")[2], 0)):  # of another corpus
                return
            if not is_new:  # what was there, or others did, does not count for our rate
                bar.initial += size
                bar.update(size)
                return
            record = work.record(name)
            if not done:
                bar.restart(record.seconds)  # loading the model counts for no rate
            done, tokens = done + size, tokens + record.tokens
            bar.update(size)
            if record.seconds:
                on_speed(done, size / record.seconds)

        if not share.is_pooled(work.config):
            work = replace(work, on_step=bar.set_postfix_str)
        share.do_all(work, on_done)
    return Speed(done / tools, tokens / tools, time.monotonic() - started)
