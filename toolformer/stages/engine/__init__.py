"""Who annotates the shards of a corpus: this machine (`local`) or many (`ray`).

Every engine calls the same function on a shard (`work.Worker`), so that the bytes do not depend on the engine. Several
processes may be at the same shards: each takes what nobody has claimed.
"""

import logging
import time
from collections.abc import Callable, Generator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, replace

from toolformer.annotation.shards import ShardStore
from toolformer.errors import UserError
from toolformer.progress import Bar
from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.stages.engine import local, ray
from toolformer.stages.engine.plan import HELD_OUT, POLL_SECONDS, Plan
from toolformer.stages.engine.work import Outcome

__all__ = ["HELD_OUT", "Plan", "Work", "annotate", "check"]

log = logging.getLogger(__name__)

DEATHS = 3
"""How often in a row workers may die before a shard is finished; one more and we give up."""


@dataclass(frozen=True)
class Work:
    """What this process and its workers did."""

    documents: int = 0
    tokens: int = 0
    seconds: float = 0.0
    per_second: float | None = None
    """Documents per second of the shard just finished, else None."""


def check(config: Config) -> None:
    """UserError if the engine cannot work, before anything is read."""
    if config.engine.kind == "ray":
        ray.check(config.engine)


def annotate(config: Config, store: ShardStore, plan: Plan) -> Generator[Work]:
    """Does every shard of the plan that is not done; ends when all are there, whoever did them.

    Yields the work so far, after each shard and whenever there was none to finish for a while; once the plan is complete
    at least once more.

    Raises:
        UserError: bad input, a folder that cannot be written, workers that die again and again.
    """
    done, started, there = Work(), time.monotonic(), 0
    with (
        Bar(unit="doc", desc="generate", smoothing=0.1) as bar,
        closing(_outcomes(config, store, plan, bar.set_postfix_str)) as outcomes,
    ):
        for outcome in outcomes:
            bar.total = plan.total
            if not bar.disable:  # what others did counts, but not for our rate
                new = plan.there - there  # read once, as a thread raises it
                bar.initial += new
                bar.update(new)
                there += new
            bar.set_description_str("generate" if plan.is_complete else "generate, reading on", refresh=False)
            if outcome:
                count = plan.documents[outcome.name]
                bar.update(count)
                done = Work(
                    done.documents + count,
                    done.tokens + outcome.tokens,
                    time.monotonic() - started,
                    count / outcome.seconds,
                )
            yield done if outcome else replace(done, per_second=None)


def _outcomes(
    config: Config, store: ShardStore, plan: Plan, on_step: Callable[[str], object]
) -> Generator[Outcome | None]:
    """The outcome of every shard that was done here; None where there is none for a while."""
    while not plan.wait(POLL_SECONDS) and not plan.missing:
        yield None
    if plan.missing:
        _check_work(config)
    yield None
    deaths = 0
    while plan.missing or not plan.is_complete:
        if config.engine.kind == "ray":
            run = ray.run(config, store.folder, plan)
        else:
            run = local.run(config, store.folder, plan, on_step)
        try:
            with closing(run) as outcomes:
                for outcome in outcomes:
                    if outcome and outcome.error:
                        raise UserError(outcome.error)
                    if outcome and outcome.annotated:
                        deaths = 0
                        plan.missing.discard(outcome.name)
                        yield outcome
                    else:
                        yield None
        except BrokenProcessPool as error:
            deaths += 1
            if deaths > DEATHS:
                raise UserError(
                    f"engine: workers died {deaths} times in a row, possibly out of memory; lower engine.workers"
                ) from error
            log.warning("generate: a worker process died; its shards are done again")
        else:
            yield from _others(store, plan)
        plan.give_out_again()


def _check_work(config: Config) -> None:
    """Says what cannot work before a model is loaded or a run is begun."""
    from toolformer.lm import loading

    if config.engine.kind == "local":  # Ray's workers have devices of their own
        loading.choose_device(config.lm.device)
    loading.load_config(config.model)
    instantiate.tools(config)


def _others(store: ShardStore, plan: Plan) -> Generator[None]:
    """Until other processes have done all that is missing, or have left some of it to us."""
    is_logged = False
    while True:
        there = {name for name in plan.missing if store.is_there(name)}
        plan.missing -= there
        plan.there += sum(plan.documents[name] for name in there)
        yield None
        if not plan.missing or any(not store.is_claimed(name) for name in plan.missing):
            return
        if not is_logged:
            log.info("generate: other processes are working on the last %d shards", len(plan.missing))
            is_logged = True
        time.sleep(POLL_SECONDS)
