"""engine=local: shards in this process, or with `engine.workers` above one in as many processes of this machine."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.stages.engine.plan import POLL_SECONDS, Plan
from toolformer.stages.engine.work import Outcome, Worker, devices, threads, use_device

_worker: Worker | None = None
"""The replica of a worker process."""


def run(
    config: Config, folder: Path, plan: Plan, on_step: Callable[[str], object]
) -> Generator[Outcome | None]:
    """Does the shards of the plan; an outcome each, as they are finished, and None where there is none for a while.

    `on_step` hears which step of a shard has begun, where a single worker does them in this process.

    Raises:
        BrokenProcessPool: a worker process died; what the others had finished is kept.
    """
    if config.engine.workers == 1:
        worker = Worker(config, folder, threads(config, 1), on_step)
        while not plan.is_given_out:
            name = plan.take(POLL_SECONDS)
            yield worker(name) if name else None
        return
    context = multiprocessing.get_context("spawn")  # a forked child would share torch's threads and locks
    free = context.SimpleQueue()
    for device in devices(config):
        free.put(device)
    pool = ProcessPoolExecutor(
        config.engine.workers,
        mp_context=context,
        initializer=_start,
        initargs=(config, folder, threads(config, config.engine.workers), free),
    )
    others = set(multiprocessing.active_children())
    running: set[Future[Outcome]] = set()
    try:
        while running or not plan.is_given_out:
            # One more than there are workers: none of them waits for us.
            while len(running) <= config.engine.workers and (
                name := plan.take(0 if running else POLL_SECONDS)
            ):
                running.add(pool.submit(_do, name))
            finished, running = wait(running, POLL_SECONDS, FIRST_COMPLETED)
            yield from (future.result() for future in finished)
            if not finished:
                yield None
    except BaseException as error:
        # Ctrl-C or a fault: nobody waits for shards that will be done again.
        if not isinstance(error, BrokenProcessPool):
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start(config: Config, folder: Path, count: int | None, free: "SimpleQueue[str | None]") -> None:
    """In a new worker process, which takes a free device."""
    global _worker
    follow_parent()
    use_device(free.get())
    instantiate.apply_paths(config)
    _worker = Worker(config, folder, count)


def follow_parent() -> None:
    """In a worker process: leaves Ctrl-C to the parent, which ends us, and ends with a parent that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do(name: str) -> Outcome:
    assert _worker is not None
    return _worker(name)
