"""What every engine does with a shard, in whichever process: claim, annotate and write it.

A `Worker` is one replica of the model with its tools; it loads them when the first shard is really to be done.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolformer.annotation.shards import ShardStore
from toolformer.errors import UserError
from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.tools.runtime import usages

if TYPE_CHECKING:
    from toolformer.annotation.pipeline import Annotation, Annotator
    from toolformer.lm.memory import BatchSize

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one shard in one worker."""

    name: str
    annotated: bool = False
    """Whether this worker did it; if not, another process holds or has finished it."""
    tokens: int = 0
    """Tokens of its documents' texts, if annotated."""
    seconds: float = 0.0
    error: str | None = None
    """Bad input, in one line: carried as a value, since engines wrap exceptions in their own."""


class Worker:
    """A replica of the model at work on shards."""

    def __init__(
        self,
        config: Config,
        folder: Path,
        threads: int | None = None,
        on_step: Callable[[str], object] = lambda step: None,
    ) -> None:
        self._config = config
        self._on_step = on_step
        self._store = ShardStore(folder)
        self._threads = threads
        self._loaded: tuple[Annotator, BatchSize] | None = None

    def __call__(self, name: str) -> Outcome:
        """Does a shard of the plan, unless another process holds it or has done it."""
        try:
            with self._store.claim(name) as ours:
                if not ours or self._store.is_there(name):
                    return Outcome(name)
                documents = self._store.documents(name)
                annotator, batch_tokens = self._loaded = self._loaded or self._load()

                def annotate() -> Annotation:
                    annotator.language_model.batch_tokens = batch_tokens.value
                    return annotator.annotate(documents, self._on_step)

                started = time.monotonic()
                annotation = batch_tokens.attempt(annotate)
                seconds = time.monotonic() - started
                used = usages(annotator.tools)
                self._store.write(name, annotation.rows, annotation.funnel, documents, seconds, used)
                return Outcome(name, True, annotation.tokens, seconds)
        except UserError as error:
            return Outcome(name, error=str(error))

    def _load(self) -> tuple[Annotator, BatchSize]:
        import torch

        from toolformer.annotation.pipeline import Annotator
        from toolformer.lm.memory import BatchSize
        from toolformer.lm.text_generator import load_model

        config, engine = self._config, self._config.engine
        torch.set_num_threads(engine.threads or self._threads or torch.get_num_threads())
        language_model = load_model(config.model, config.lm.dtype, config.lm.device)
        if config.lm.graphs:
            language_model.use_graphs()
        batch_tokens = BatchSize("engine.batch_tokens", instantiate.batch_tokens(config, language_model))
        log.info(
            "generate: engine.threads=%d, engine.batch_tokens=%d, dtype %s",
            torch.get_num_threads(), batch_tokens.value, str(language_model.dtype).removeprefix("torch."),
        )  # fmt: skip
        annotator = Annotator(
            language_model,
            [instantiate.tool_settings(config, key) for key in config.tools],
            instantiate.tools(config),
            seed=config.seed,
            paragraphs=config.corpus.paragraphs,
            floor=self._store.floor,
            pre_filters=config.screen,
        )
        return annotator, batch_tokens


def threads(config: Config, workers_here: int) -> int | None:
    """Torch threads of a worker: as configured, else this machine's cores shared out; None leaves torch its own."""
    if config.engine.threads is not None or workers_here == 1:
        return config.engine.threads
    return max(1, len(os.sched_getaffinity(0)) // workers_here)


def devices(config: Config) -> list[str | None]:
    """CUDA_VISIBLE_DEVICES of each local worker: the GPUs in turn; None leaves it as it is."""
    from toolformer.lm.loading import gpus

    count = gpus(config.lm.device)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
    names = [name.strip() for name in visible.split(",")[:count]]
    return [names[rank % len(names)] if names else None for rank in range(config.engine.workers)]


def use_device(device: str | None) -> None:
    """Leaves this process one GPU, for its tools' models and threads too; only before CUDA is first used."""
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
