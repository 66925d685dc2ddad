"""engine=local: work in this process, or with `engine.workers` above one in as many processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.stages.engine.work import Outcome, Worker, threads

_worker: Worker | None = None
"""The replica of a worker process."""


def run(
    config: Config, folder: Path, names: Sequence[str], on_step: Callable[[str], object]
) -> Generator[Outcome]:
    """Does these shards; an outcome each, as they are finished.

    `on_step` hears which step of a shard has begun, where a single worker does them in this process.

    Raises:
        BrokenProcessPool: a worker process died; what the others had finished is kept.
    """
    count = config.engine.workers
    if count == 1:
        yield from map(Worker(config, folder, threads(config, 1), on_step), names)
        return
    with processes(min(count, len(names))) as pool:
        arguments = config, folder, threads(config, count)
        for future in as_completed([pool.submit(_do, name, *arguments) for name in names]):
            yield future.result()


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes that end with the block, and with this process."""
    # A forked child would share torch's threads and locks with us.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_start)
    try:
        yield pool
    except BaseException as error:
        # Ctrl-C or a fault: nobody waits for work that will be done again.
        if not isinstance(error, BrokenProcessPool):
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start() -> None:
    """In a new worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent tells nobody; a worker that waited for its next shard would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do(name: str, config: Config, folder: Path, count: int | None) -> Outcome:
    global _worker
    if _worker is None:
        instantiate.apply_paths(config)
        _worker = Worker(config, folder, count)
    return _worker(name)
