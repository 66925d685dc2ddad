"""engine=local: shards in this process, or with `engine.workers` above one in as many processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Set
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from toolformer import build
from toolformer.config import Config
from toolformer.documents import Document
from toolformer.engine.work import Outcome, Worker, threads, wanted

_worker: Worker | None = None
"""The replica of a worker process."""


def run(config: Config, folder: Path, names: Set[str], tell: Callable[[str], object]) -> Generator[Outcome]:
    """Does the shards of these names; an outcome each, as they are finished.

    Args:
        tell: hears which step of a shard has begun, where a single worker does them in this process.

    Raises:
        BrokenProcessPool: a worker process died; what the others had finished is kept.
    """
    if config.engine.workers == 1:
        worker = Worker(config, folder, threads(config, 1), tell)
        for name, documents in wanted(config, names):
            yield worker(name, documents)
        return
    yield from _in_processes(config, folder, names)


def _in_processes(config: Config, folder: Path, names: Set[str]) -> Generator[Outcome]:
    workers = min(config.engine.workers, len(names))
    pool = ProcessPoolExecutor(
        workers,
        # A forked child would share torch's threads and locks with us.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=(config, folder, threads(config, config.engine.workers)),
    )
    others = set(multiprocessing.active_children())
    pending: set[Future[Outcome]] = set()
    try:
        for name, documents in wanted(config, names):
            pending.add(pool.submit(_do, name, documents))
            # Two a worker: none waits for us, and the corpus stays on disk.
            while len(pending) >= 2 * workers:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        while pending:
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in finished)
    except BaseException as error:
        # Ctrl-C or a fault: nobody waits for shards that will be done again.
        if not isinstance(error, BrokenProcessPool):
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start(config: Config, folder: Path, count: int | None) -> None:
    """In a new worker process."""
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    build.apply_paths(config)
    _worker = Worker(config, folder, count)


def _end_with_parent() -> None:
    """A killed parent tells nobody; a worker that waited for its next shard would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do(name: str, documents: list[Document]) -> Outcome:
    assert _worker is not None
    return _worker(name, documents)
