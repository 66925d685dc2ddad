"""Who does the shards of a job: this process, or several workers as Ray actors, on this machine or on a cluster.

Either calls the same function on a shard (`work.Worker`), so that results do not depend on who did it. Several processes may
be at the same shards: each does what nobody has claimed.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import time
from collections.abc import Generator
from contextlib import closing
from typing import Any

from toolformer.errors import UserError
from toolformer.jobs import instantiate
from toolformer.jobs.cluster import check_cluster, connected
from toolformer.jobs.config import Config, EngineConfig
from toolformer.jobs.engine.plan import POLL_SECONDS, Queue
from toolformer.jobs.engine.work import Job, Outcome, Worker, threads_per_worker

log = logging.getLogger(__name__)

RETRIES = 3
"""How often a shard may take its worker with it before the run ends."""


def check_engine(engine: EngineConfig) -> None:
    """UserError unless Ray is installed and its cluster answers, if it is needed."""
    check_cluster(engine)
    if engine.workers != 1 and importlib.util.find_spec("ray") is None:
        raise UserError(
            f"engine.workers={engine.workers} needs Ray, which is not installed: make setup EXTRA=ray"
        )


def is_pooled(config: Config) -> bool:
    """Whether there are several workers, or those of a cluster."""
    return config.engine.workers != 1 or config.engine.address is not None


def finish(job: Job, queue: Queue, replica: Any = None) -> Generator[Outcome | None]:
    """Does every shard of the queue that is missing; ends when none is, also by the work of other processes.

    Yields the outcome of every shard that was done here, and None where there is none for a while.

    Args:
        replica: does the shards in this process, if it is given.

    Raises:
        UserError: bad input, a folder that cannot be written, workers that die again and again.
    """
    while queue.missing:
        in_process = replica is not None or not is_pooled(job.config)
        run = _in_process(job, queue, replica) if in_process else _by_ray(job, queue)
        with closing(run) as outcomes:
            for outcome in outcomes:
                if outcome and outcome.error:
                    raise UserError(outcome.error)
                if outcome and outcome.is_done:
                    queue.missing.discard(outcome.name)
                    yield outcome
                else:
                    yield None
        yield from _wait_for_others(job, queue)
        queue.give_out_again()


def _in_process(job: Job, queue: Queue, replica: Any) -> Generator[Outcome | None]:
    worker = Worker(job, replica=replica)
    while not queue.is_given_out:
        name = queue.take()
        yield worker(name) if name else None


def _by_ray(job: Job, queue: Queue) -> Generator[Outcome | None]:
    engine = job.config.engine
    gpus = _gpus(job.config)
    with connected(engine.address, gpus):
        import ray
        from ray.exceptions import RayError

        # On this machine workers reserve no CPU, so that they never wait for one.
        share = 1 / math.ceil(engine.workers / gpus) if gpus else 0.0
        is_here = engine.address is None
        actor_class = ray.remote(
            num_cpus=0 if is_here else engine.cpus_per_worker,
            num_gpus=share if is_here else engine.gpus_per_worker,
            max_restarts=-1,
            max_task_retries=RETRIES,
        )(_Actor)
        actors: list[Any] = [actor_class.remote(job, os.getcwd()) for _ in range(engine.workers)]
        # An actor that the cluster has no room for never gets ready, and is given nothing.
        running: dict[Any, Any] = {actor.ready.remote(): actor for actor in actors}
        idle: list[Any] = []
        unfinished = 0
        try:
            while unfinished or not queue.is_given_out:
                while idle and (name := queue.take()):
                    actor = idle.pop(0)
                    running[actor.do_shard.remote(name)] = actor
                    unfinished += 1
                finished, _ = ray.wait(list(running), timeout=POLL_SECONDS) if running else ([], [])
                for reference in finished:
                    actor, outcome = running.pop(reference), ray.get(reference)
                    idle.append(actor)
                    unfinished -= outcome is not None  # the answer of `ready` is None
                    yield outcome
                if not finished:
                    yield None
        except RayError as error:
            last = str(error).strip().rpartition("\n")[2].strip()[:300]
            raise UserError(
                f"engine: Ray gave up ({type(error).__name__}: {last}), as if workers run out of memory (lower "
                "engine.workers); the same command resumes"
            ) from error


def _gpus(config: Config) -> int:
    """The GPUs that workers on this machine share; of a cluster Ray counts them."""
    from toolformer.lm.loading import gpus

    return gpus(config.lm.device) if config.engine.address is None else 0


class _Actor:
    """A worker as an actor of Ray."""

    def __init__(self, job: Job, folder: str) -> None:
        self._job, self._folder = job, folder
        self._worker: Worker | None = None

    def ready(self) -> None:
        """Answers as soon as the actor runs."""

    def do_shard(self, name: str) -> Outcome:
        try:
            self._worker = self._worker or self._start()
        except UserError as error:
            return Outcome(name, error=str(error))
        return self._worker(name)

    def _start(self) -> Worker:
        config, engine = self._job.config, self._job.config.engine
        try:
            os.chdir(self._folder)  # so that relative paths mean the same here
        except OSError as error:
            raise UserError(
                f"engine: the node {os.uname().nodename} has no folder {self._folder} ({error.strerror}); start the run in a "
                "folder that all nodes share"
            ) from error
        instantiate.apply_paths(config)
        is_here = engine.address is None
        return Worker(
            self._job, threads_per_worker(engine.workers) if is_here else max(1, int(engine.cpus_per_worker))
        )


def _wait_for_others(job: Job, queue: Queue) -> Generator[None]:
    """Until other processes have done all that is missing, or have left some of it to us."""
    is_logged = False
    while True:
        queue.done_by_others({name for name in queue.missing if job.is_there(name)})
        yield None
        if not queue.missing or any(not job.is_claimed(name) for name in queue.missing):
            return
        if not is_logged:
            log.info("engine: other processes are working on the last %d shards", len(queue.missing))
            is_logged = True
        time.sleep(POLL_SECONDS)
