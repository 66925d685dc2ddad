"""Who annotates the shards of a corpus: this machine (`local`) or many (`ray`).

Every engine calls the same function on a shard (`work.Worker`), so that the bytes do not depend on the engine. Several
processes may be at the same shards: each takes what nobody has claimed, and all wait until everything is done.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping, Set
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from toolformer.annotation.shards import ShardStore
from toolformer.bars import Bar
from toolformer.config import Config
from toolformer.engine.work import Outcome, shards, wanted
from toolformer.errors import UserError
from toolformer.tools.runtime import Usage, added

__all__ = ["Outcome", "Work", "annotate", "check", "shards", "wanted"]

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


def check(config: Config) -> None:
    """Whether the engine can work, before anything is read.

    Raises:
        UserError: its library is not installed, its cluster does not answer, or it asks for more than there is.
    """
    if config.engine.kind == "ray":
        from toolformer.engine import ray

        ray.check(config.engine)


def annotate(
    config: Config,
    store: ShardStore,
    plan: Mapping[str, int],
    on_shard: Callable[[Outcome, int, Work], None] | None = None,
) -> Work:
    """Does every shard of the plan that is not done; returns when all are there, whoever did them.

    Args:
        plan: the shards' names, each with its number of documents.
        on_shard: called after each shard done here with its outcome, its documents and the work so far.

    Raises:
        UserError: bad input, a folder that cannot be written, workers that die again and again.
    """
    missing = _missing(store, plan)
    done, deaths, started = Work(), 0, time.monotonic()
    with Bar(total=sum(plan.values()), unit="doc", desc="generate", smoothing=0.1) as bar:
        _found(bar, sum(plan.values()) - sum(plan[name] for name in missing))
        while missing:
            try:
                with closing(_run(config, store.folder, missing, bar.set_postfix_str)) as outcomes:
                    for outcome in outcomes:
                        if outcome.error:
                            raise UserError(outcome.error)
                        if not outcome.annotated:
                            continue
                        deaths = 0
                        missing.discard(outcome.name)
                        count = plan[outcome.name]
                        bar.update(count)
                        seconds = time.monotonic() - started
                        tools = added(done.tools, outcome.tools)
                        done = Work(done.documents + count, done.tokens + outcome.tokens, seconds, tools)
                        if on_shard:
                            on_shard(outcome, count, done)
            except BrokenProcessPool as error:
                deaths += 1
                if deaths > DEATHS:
                    raise UserError(
                        f"engine: worker processes died {deaths} times in a row, perhaps for want of memory; lower "
                        "engine.workers or generate.shard_size; finished shards are kept"
                    ) from error
                log.warning("generate: a worker process died; its shards are done again")
            else:
                _wait(store, plan, missing, bar)
    return done


def _run(config: Config, folder: Path, names: Set[str], tell: Callable[[str], object]) -> Generator[Outcome]:
    # A copy: the caller strikes names off while the engine still reads them.
    if config.engine.kind == "ray":
        from toolformer.engine import ray

        return ray.run(config, folder, frozenset(names))
    from toolformer.engine import local

    return local.run(config, folder, frozenset(names), tell)


def _missing(store: ShardStore, plan: Mapping[str, int]) -> set[str]:
    """The shards to do: absent ones, and broken ones with a word."""
    missing = set()
    for name in plan:
        if not store.is_there(name):
            missing.add(name)
        elif fault := store.fault(name):
            log.warning("generate: %s: it is done again", fault)
            missing.add(name)
    return missing


def _wait(store: ShardStore, plan: Mapping[str, int], missing: set[str], bar: Bar) -> None:
    """Until another process has done all that is missing, or has left some of it to us."""
    said = False
    while True:
        there = {name for name in missing if store.is_there(name) and store.fault(name) is None}
        missing -= there
        _found(bar, sum(plan[name] for name in there))
        if not missing or any(not store.is_claimed(name) for name in missing):
            return
        if not said:
            log.info("generate: the last %d shards are in work in other processes", len(missing))
            said = True
        time.sleep(POLL_SECONDS)


def _found(bar: Bar, documents: int) -> None:
    """Counts what others did, without crediting our own rate with it."""
    if not bar.disable:  # not drawn, it keeps no such count
        bar.initial += documents
        bar.update(documents)
