"""What every engine does with a shard, in whichever process: claim it, annotate it, write it.

A `Worker` is one replica of the model with its tools; it loads them when the first shard is really to be done.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from toolformer import build
from toolformer.annotation.shards import ShardStore
from toolformer.config import Config
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.tools.runtime import Usage, usages

if TYPE_CHECKING:
    from toolformer.annotation.pipeline import Annotator

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What became of one shard in one worker."""

    name: str
    annotated: bool = False
    """Whether this worker did it; if not, another process holds or has finished it."""
    tokens: int = 0
    """Tokens of its documents' texts, if annotated."""
    seconds: float = 0.0
    error: str | None = None
    """Bad input or a full disk, in one line: carried as a value, since engines wrap exceptions in their own."""
    tools: Mapping[str, Usage] = field(default_factory=dict)
    """What became of the calls of each tool, by key."""


def shards(config: Config, corpus: Iterable[Document] | None = None) -> Iterator[tuple[str, list[Document]]]:
    """The corpus cut into shards, each under a name made from its place and its documents; streamed."""
    batch: list[Document] = []
    number = 0
    for document in build.documents(config.corpus) if corpus is None else corpus:
        batch.append(document)
        if len(batch) == config.generate.shard_size:
            yield f"{number:06d}-{build.content_hash(batch)}", batch
            batch, number = [], number + 1
    if batch:
        yield f"{number:06d}-{build.content_hash(batch)}", batch


def wanted(config: Config, names: Set[str]) -> Iterator[tuple[str, list[Document]]]:
    """The shards of these names, read from the corpus again.

    Raises:
        UserError: the corpus has them no more.
    """
    left = set(names)
    for name, batch in shards(config):
        if name in left:
            left.remove(name)
            yield name, batch
            if not left:
                return
    if left:
        raise UserError(
            f"corpus: it changed while it was read ({len(left)} shards are gone); give the same command again"
        )


class Worker:
    """A replica of the model at work on shards."""

    def __init__(
        self,
        config: Config,
        folder: Path,
        threads: int | None = None,
        tell: Callable[[str], object] = lambda step: None,
    ) -> None:
        self._config = config
        self._tell = tell
        self._store = ShardStore(folder)
        self._threads = threads
        self._annotator: Annotator | None = None

    def __call__(self, name: str, documents: list[Document]) -> Outcome:
        """Does a shard, unless another process holds it or has done it."""
        try:
            with self._store.claim(name) as ours:
                if not ours or self._store.fault(name) is None:
                    return Outcome(name)
                annotator = self._annotator = self._annotator or self._load()
                started = time.monotonic()
                annotation = annotator.annotate(documents, self._tell)
                seconds = time.monotonic() - started
                self._store.took(name, seconds)  # first: what is there has its time
                self._store.write(name, annotation.rows, annotation.funnel)
                return Outcome(name, True, annotation.tokens, seconds, tools=usages(annotator.tools))
        except UserError as error:
            return Outcome(name, error=str(error))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT):
                raise
            return Outcome(name, error=f"{error}; finished shards are kept")

    def _load(self) -> Annotator:
        import torch

        from toolformer.annotation.pipeline import Annotator
        from toolformer.batching import TOKENS_PER_BATCH
        from toolformer.loading import number_format
        from toolformer.text_generator import load

        config = self._config
        count = str(self._threads or torch.get_num_threads())
        batch_tokens = str(config.engine.batch_tokens or TOKENS_PER_BATCH)
        dtype = number_format(config.lm.dtype, config.lm.device)
        torch.set_num_threads(int(self._alike("engine.threads", count, config.engine.threads is None)))
        dtype = self._alike("lm.dtype", dtype, config.lm.dtype == "auto")
        language_model = load(config.model, dtype, config.lm.device)
        language_model.batch_tokens = int(
            self._alike("engine.batch_tokens", batch_tokens, config.engine.batch_tokens is None)
        )
        return Annotator(
            language_model,
            [build.tool_settings(config, key) for key in config.tools],
            build.tools(config),
            seed=config.seed,
            score_dtype=config.score.dtype,
        )

    def _alike(self, key: str, ours: str, is_left_open: bool) -> str:
        """What this worker has of a setting that moves rounding: where it is left open, what the run began with."""
        kept = self._store.begun_with(key.rpartition(".")[2], ours) or ours
        if kept == ours:
            return ours
        if is_left_open:
            log.info("generate: %s=%s, as this run began", key, kept)
            return kept
        log.warning(
            "generate: %s=%s, and this run began with %s: what it does from here on may be rounded differently",
            *(key, ours, kept),
        )
        return ours


def threads(config: Config, workers_here: int) -> int | None:
    """Torch threads of a worker: as configured, else this machine's cores shared out; None leaves torch its own."""
    if config.engine.threads is not None or workers_here == 1:
        return config.engine.threads
    return max(1, len(os.sched_getaffinity(0)) // workers_here)
