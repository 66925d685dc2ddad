"""The annotation of a corpus as shared work: its chunks are shards of texts, each written with its results."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer.annotation.shards import ShardStore
from toolformer.data import Document, content_hash
from toolformer.data.heldout import split
from toolformer.jobs import instantiate, share
from toolformer.jobs.config import Config
from toolformer.progress import Bar
from toolformer.tools.runtime import usages

if TYPE_CHECKING:
    from toolformer.annotation.pipeline import Annotation, Annotator
    from toolformer.lm.memory import BatchSize

log = logging.getLogger(__name__)

HELD_OUT = "held out"
"""Why a document of the corpus is not annotated that is kept for the held-out perplexity."""


class Texts:
    """The texts to annotate, read anew at each iteration: (name, documents) of each shard.

    A name is made of the shard's place and content, so that texts that are appended to a corpus change no other shard.
    """

    def __init__(self, config: Config) -> None:
        self.heldout: list[Document] = []
        """The documents that the latest reading held out of the corpus."""
        self._config = config
        self._share = 0.0 if config.heldout.source else config.heldout_share
        self._corpus = instantiate.corpus(config.corpus)

    def __reduce__(self) -> Any:
        return Texts, (self._config,)

    def __iter__(self) -> Iterator[tuple[str, list[Document]]]:
        documents = self._annotated()
        for number in itertools.count():
            if not (shard := list(itertools.islice(documents, self._config.generate.shard_size))):
                return
            yield f"{number:06d}-{content_hash(shard)}", shard

    def _annotated(self) -> Iterator[Document]:
        self.heldout = []
        for document, is_held_out in split(self._corpus, self._share):
            if is_held_out:
                self.heldout.append(document)
            else:
                yield document

    def sizes(self) -> dict[str, int]:
        """The number of documents of each shard, by its name. UserError if the corpus cannot be read or has no text."""
        with Bar(unit="texts", desc="generate, reading") as bar:
            sizes: dict[str, int] = {}
            for name, documents in self:
                sizes[name] = len(documents)
                bar.update(len(documents))
        return sizes

    def skipped(self) -> dict[str, int]:
        """Rows that the latest reading left out, by reason, once it has come to its end."""
        held_out = {HELD_OUT: len(self.heldout)} if self.heldout else {}
        return {**self._corpus.skipped(), **held_out}


@dataclass(frozen=True)
class Annotating:
    """The shards of texts in a folder.

    Args:
        on_step: hears which step of a shard has begun; only where shards are done in this process.
    """

    config: Config
    folder: Path
    texts: Texts
    on_step: Callable[[str], object] | None = None

    @property
    def store(self) -> ShardStore:
        return ShardStore(self.folder)

    def chunks(self) -> Iterator[share.Chunk]:
        return (share.Chunk(name, documents) for name, documents in self.texts)

    def finished(self) -> set[str]:
        return self.store.names()

    def has(self, name: str) -> bool:
        return self.store.has(name)

    def claim(self, name: str) -> AbstractContextManager[bool]:
        return self.store.claim(name)

    def load(self) -> tuple[Annotator, BatchSize]:
        import torch

        from toolformer.annotation.pipeline import Annotator
        from toolformer.lm import memory
        from toolformer.lm.memory import BatchSize
        from toolformer.lm.text_generator import load_model

        config = self.config
        if config.engine.threads:
            torch.set_num_threads(config.engine.threads)
        language_model = load_model(config.model, config.lm.dtype, config.lm.device)
        language_model.graphs = config.lm.graphs
        size = config.engine.batch_tokens
        size = memory.batch_tokens(language_model.device) if size == "auto" else size
        batch_tokens = BatchSize("engine.batch_tokens", size)
        log.info(
            "generate: engine.threads=%d, engine.batch_tokens=%d, dtype %s",
            torch.get_num_threads(), batch_tokens.value, str(language_model.dtype).removeprefix("torch."),
        )  # fmt: skip
        annotator = Annotator(
            language_model,
            [instantiate.tool_settings(config, key) for key in config.tools],
            instantiate.tools(config),
            seed=config.sampling_seed,
            paragraphs=config.corpus.paragraphs,
            floor=self.store.floor,
            pre_filters=config.screen,
        )
        return annotator, batch_tokens

    def do(self, replica: tuple[Annotator, BatchSize], chunk: share.Chunk) -> None:
        annotator, batch_tokens = replica

        def annotate() -> Annotation:
            annotator.language_model.batch_tokens = batch_tokens.value
            return annotator.annotate(chunk.content, self.on_step or (lambda step: None))

        started = time.monotonic()
        annotation = batch_tokens.attempt(annotate)
        self.store.write(
            chunk.name,
            annotation.rows,
            annotation.funnel,
            chunk.content,
            time.monotonic() - started,
            usages(annotator.tools),
            annotation.tokens,
        )


@dataclass(frozen=True)
class Speed:
    """What this command and its workers did."""

    documents: int = 0
    tokens: int = 0
    """Of the documents' texts."""
    seconds: float = 0.0


def annotate(
    config: Config,
    folder: Path,
    texts: Texts,
    sizes: Mapping[str, int],
    on_speed: Callable[[int, float], object],
) -> Speed:
    """Does every shard that is not done; ends when all are there, also those of other processes.

    Args:
        sizes: as `Texts.sizes`.
        on_speed: hears the number of documents done so far and how many a second the shard just finished took.

    Raises:
        UserError: bad input, a folder that cannot be written, workers that die again and again.
    """
    store = ShardStore(folder)
    if sizes.keys() <= store.names():
        return Speed()
    _check_work(config)
    started, done, tokens = time.monotonic(), 0, 0
    with Bar(unit="texts", desc="generate", smoothing=0.1, total=sum(sizes.values())) as bar:

        def on_done(name: str, is_new: bool) -> None:
            nonlocal done, tokens
            if not is_new:  # what was there, or others did, does not count for our rate
                bar.initial += sizes[name]
                bar.update(sizes[name])
                return
            seconds, of_shard = store.cost(name)
            if not done:
                bar.restart(seconds)  # loading the model counts for no rate
            done, tokens = done + sizes[name], tokens + of_shard
            bar.update(sizes[name])
            if seconds:
                on_speed(done, sizes[name] / seconds)

        work = Annotating(config, folder, texts, None if share.is_pooled(config) else bar.set_postfix_str)
        share.do_all(work, sizes, on_done)
    return Speed(done, tokens, time.monotonic() - started)


def _check_work(config: Config) -> None:
    """Says what cannot work before a model is loaded."""
    from toolformer.lm import loading

    if config.engine.address is None:  # a cluster's workers have devices of their own
        loading.choose_device(config.lm.device)
    loading.load_config(config.model)
    instantiate.tools(config)
