"""The annotation of a corpus as a job: its shards are of texts, and each is written with its results."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolformer.annotation.shards import ShardStore
from toolformer.jobs import instantiate
from toolformer.jobs.config import Config
from toolformer.jobs.engine import pool
from toolformer.jobs.engine.plan import POLL_SECONDS, Plan
from toolformer.jobs.engine.work import Outcome
from toolformer.progress import Bar
from toolformer.tools.runtime import usages

if TYPE_CHECKING:
    from toolformer.annotation.pipeline import Annotation, Annotator
    from toolformer.lm.memory import BatchSize

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """The work of this process and its workers so far."""

    documents: int = 0
    tokens: int = 0
    seconds: float = 0.0
    per_second: float | None = None
    """Documents per second of the shard just finished, else None."""


@dataclass(frozen=True)
class Annotating:
    """The shards of texts in a folder.

    Args:
        on_step: hears which step of a shard has begun; only where shards are done in this process.
    """

    config: Config
    folder: Path
    on_step: Callable[[str], object] | None = None

    @property
    def store(self) -> ShardStore:
        return ShardStore(self.folder)

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        with self.store.claim(name) as ours:
            yield ours and not self.store.is_there(name)

    def is_claimed(self, name: str) -> bool:
        return self.store.is_claimed(name)

    def is_there(self, name: str) -> bool:
        return self.store.is_there(name)

    def load_replica(self) -> tuple[Annotator, BatchSize]:
        import torch

        from toolformer.annotation.pipeline import Annotator
        from toolformer.lm.memory import BatchSize
        from toolformer.lm.text_generator import load_model

        config = self.config
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
            seed=config.sampling_seed,
            paragraphs=config.corpus.paragraphs,
            floor=self.store.floor,
            pre_filters=config.screen,
        )
        return annotator, batch_tokens

    def do_shard(self, replica: tuple[Annotator, BatchSize], name: str) -> Outcome:
        annotator, batch_tokens = replica
        documents = self.store.documents(name)

        def annotate() -> Annotation:
            annotator.language_model.batch_tokens = batch_tokens.value
            return annotator.annotate(documents, self.on_step or (lambda step: None))

        started = time.monotonic()
        annotation = batch_tokens.attempt(annotate)
        seconds, used = time.monotonic() - started, usages(annotator.tools)
        self.store.write(name, annotation.rows, annotation.funnel, documents, seconds, used)
        return Outcome(name, True, annotation.tokens, seconds, used)


def annotate(config: Config, folder: Path, plan: Plan) -> Generator[Progress]:
    """Does every shard of the plan that is not done; ends when all are there, also those of other processes.

    Yields the work so far, after each shard and whenever there was none to finish for a while; once the plan is complete
    at least once more.

    Raises:
        UserError: bad input, a folder that cannot be written, workers that die again and again.
    """
    while not plan.wait(POLL_SECONDS) and not plan.missing:
        yield Progress()
    if plan.missing:
        _check_work(config)
    yield Progress()
    done, started, there, shards = Progress(), time.monotonic(), 0, 0
    with Bar(unit="texts", desc="generate", smoothing=0.1) as bar:
        bar.estimates = False
        job = Annotating(config, folder, None if pool.is_pooled(config) else bar.set_postfix_str)
        with closing(pool.finish(job, plan)) as outcomes:
            for outcome in outcomes:
                bar.total = plan.total
                if not bar.disable:  # what others did counts, but not for our rate
                    new = plan.there - there  # read once, as a thread raises it
                    bar.initial += new
                    bar.update(new)
                    there += new
                reading = "" if plan.is_complete else ", reading on"
                bar.set_description_str(f"generate{reading}", refresh=False)
                if outcome:
                    count, shards = plan.documents[outcome.name], shards + 1
                    if shards == 1:
                        bar.restart(outcome.seconds)
                    # One shard of each worker has a rate, once the number of documents is known.
                    bar.estimates = plan.is_complete and shards >= config.engine.workers
                    bar.update(count)
                    done = Progress(
                        done.documents + count,
                        done.tokens + outcome.tokens,
                        time.monotonic() - started,
                        count / outcome.seconds,
                    )
                yield done if outcome else replace(done, per_second=None)


def _check_work(config: Config) -> None:
    """Says what cannot work before a model is loaded or a run is begun."""
    from toolformer.lm import loading

    if config.engine.address is None:  # a cluster's workers have devices of their own
        loading.choose_device(config.lm.device)
    loading.load_config(config.model)
    instantiate.tools(config)
