"""Who annotates the shards of a corpus: this machine (`local`) or many (`ray`).

Every engine calls the same function on a shard (`work.Worker`), so that the bytes do not depend on the engine. Several
processes may be at the same shards: each takes what nobody has claimed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field

from toolformer.annotation.shards import ShardStore
from toolformer.errors import UserError
from toolformer.progress import Bar
from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.stages.engine.plan import Plan
from toolformer.stages.engine.work import Outcome
from toolformer.tools.runtime import Usage, added

__all__ = ["Plan", "Work", "annotate", "check", "check_work"]

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
DEATHS = 3
"""How often in a row workers may die before a shard is finished; once more, and it is no accident."""


@dataclass(frozen=True)
class Work:
    """What this process and its workers did."""

    documents: int = 0
    tokens: int = 0
    seconds: float = 0.0
    tools: Mapping[str, Usage] = field(default_factory=dict)
    """What became of the calls of each tool, by key."""
    per_second: float = 0.0
    """Documents, in the shard that was done just now."""


def check(config: Config) -> None:
    """Whether the engine can work, before anything is read.

    Raises:
        UserError: its library is not installed, its cluster does not answer, or it asks for more than there is.
    """
    if config.engine.kind == "ray":
        from toolformer.stages.engine import ray

        ray.check(config.engine)


def check_work(config: Config) -> None:
    """Whether there are the device, the model and the tools, before one is loaded or a run is begun.

    Raises:
        UserError: it is not so.
    """
    from toolformer.lm import loading

    if config.engine.kind == "local":  # Ray's workers have devices of their own
        loading.choose_device(config.lm.device)
    loading.load_config(config.model)
    instantiate.tools(config)


def annotate(config: Config, store: ShardStore, plan: Plan) -> Iterator[Work]:
    """Does every shard of the plan that is missing; ends when all are there, whoever did them.

    Yields the work so far, after each shard that was done here.

    Raises:
        UserError: bad input, a folder that cannot be written, workers that die again and again.
    """
    work, started = Work(), time.monotonic()
    there = plan.total - sum(plan.documents[name] for name in plan.missing)
    with Bar(total=plan.total, initial=there, unit="doc", desc="generate", smoothing=0.1) as bar:
        for outcome in _outcomes(config, store, plan, bar):
            count = plan.documents[outcome.name]
            bar.update(count)
            work = Work(
                work.documents + count,
                work.tokens + outcome.tokens,
                time.monotonic() - started,
                added(work.tools, outcome.tools),
                count / outcome.seconds,
            )
            yield work


def _outcomes(config: Config, store: ShardStore, plan: Plan, bar: Bar) -> Iterator[Outcome]:
    """The outcome of every shard that was done here."""
    from toolformer.stages.engine import local, ray

    deaths = 0
    while plan.missing:
        names = sorted(plan.missing)
        outcomes = (
            ray.run(config, store.folder, names)
            if config.engine.kind == "ray"
            else local.run(config, store.folder, names, bar.set_postfix_str)
        )
        try:
            with closing(outcomes):
                for outcome in outcomes:
                    if outcome.error:
                        raise UserError(outcome.error)
                    if outcome.annotated:
                        deaths = 0
                        plan.missing.discard(outcome.name)
                        yield outcome
        except BrokenProcessPool as error:
            deaths += 1
            if deaths > DEATHS:
                raise UserError(
                    f"engine: worker processes died {deaths} times in a row, perhaps for want of memory; lower "
                    "engine.workers or generate.shard_size; finished shards are kept"
                ) from error
            log.warning("generate: a worker process died; its shards are done again")
        else:
            _wait_for_others(store, plan, bar)


def _wait_for_others(store: ShardStore, plan: Plan, bar: Bar) -> None:
    """Until other processes have done all that is missing, or have left some of it to us."""
    is_logged = False
    while True:
        there = {name for name in plan.missing if store.is_there(name)}
        plan.missing -= there
        bar.update(sum(plan.documents[name] for name in there))
        if not all(map(store.is_claimed, plan.missing)) or not plan.missing:
            return
        if not is_logged:
            log.info("generate: other processes are working on the last %d shards", len(plan.missing))
            is_logged = True
        time.sleep(POLL_SECONDS)
