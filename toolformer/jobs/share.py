"""Workers are equal: each goes through the chunks of a work, claims one that nobody has claimed, and does it.

The loop is `share`. It runs in this process, in several processes of this machine (`engine.workers`, one per GPU), or as
tasks of a Ray cluster (`engine.address`); and the same command may be started again, here or on another machine. Results
do not depend on who did a chunk. A claim ends with its process, so that a chunk of a worker that died is done by another.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Protocol
from unittest import mock

from toolformer import progress
from toolformer.errors import UserError
from toolformer.jobs.cluster import connected
from toolformer.jobs.config import Config
from toolformer.jobs.config.validate import apply_cache
from toolformer.training.distributed import end_with_parent

if TYPE_CHECKING:
    from toolformer.lm.placement import Placement

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
"""How long is waited for news at a time."""
AT_WORK = "at work"
RETRIES = 3
"""How many workers may die in a row, without any chunk finished in between, before the run ends."""


@dataclass(frozen=True)
class Chunk:
    """A part of a work that is done and written as a whole."""

    name: str
    content: Any


class Chunked(Protocol):
    """Work in chunks; it can be sent to another process."""

    @property
    def config(self) -> Config: ...

    def chunks(self) -> Iterable[Chunk]:
        """All chunks, also finished ones, in the same order in every process."""

    def finished(self) -> Collection[str]:
        """The names of the chunks that are finished."""

    def has(self, name: str) -> bool:
        """Whether the chunk is finished."""

    def claim(self, name: str) -> AbstractContextManager[bool]:
        """Yields whether this process has the chunk to itself until the end of the block."""

    def load(self) -> Any:
        """A replica of the model with its tools."""

    def do(self, replica: Any, chunk: Chunk) -> None:
        """Does a claimed chunk, and writes it."""


OnDone = Callable[[str, bool], object]
"""Hears the name of each chunk that is finished, and whether it was just now done by this command."""


def _ignore(name: str, is_ours: bool) -> None: ...


def share(work: Chunked, on_done: OnDone = _ignore) -> None:
    """Does the chunks that nobody has done or claimed; ends when all are finished, also those of other processes.

    The model is loaded when the first chunk is really to be done.
    """
    replica: Any = None
    held: deque[Chunk] = deque()
    for chunk in chain(work.chunks(), _again(held)):
        if work.has(chunk.name):
            on_done(chunk.name, False)
            continue
        with work.claim(chunk.name) as ours:
            is_new = ours and not work.has(chunk.name)
            if is_new:
                replica = work.load() if replica is None else replica
                work.do(replica, chunk)
        if ours:
            on_done(chunk.name, is_new)
        else:
            held.append(chunk)
            while work.has(held[0].name):  # no more are kept than others are at
                on_done(held.popleft().name, False)
                if not held:
                    break


def _again(held: deque[Chunk]) -> Iterator[Chunk]:
    """The chunks that others have claimed, again and again until they are finished or left to us."""
    if held:
        log.info("engine: other processes are working on the last %d chunks", len(held))
    while held:
        for _ in range(len(held)):
            if held:
                yield held.popleft()
        if held:
            time.sleep(POLL_SECONDS)


def fitted(config: Config, model: Placement) -> Config:
    """The configuration with one worker where this model's layers are spread over all GPUs of this machine.

    UserError if the GPUs have no room for its replicas.
    """
    engine = config.engine
    if engine.address is not None:  # the nodes have others
        return config
    if not model.is_spread(int(engine.workers)) or engine.workers == 1:
        return config
    log.info("engine: %s is spread over all GPUs, so there is one worker", model.name)
    return replace(config, engine=replace(engine, workers=1))


def is_pooled(config: Config) -> bool:
    """Whether there are several workers, or those of a cluster."""
    return config.engine.workers != 1 or config.engine.address is not None


def do_all(work: Chunked, on_done: OnDone = _ignore) -> None:
    """Does all chunks: in this process, or by the configured workers.

    Raises:
        UserError: bad input, a folder that cannot be written, workers that die again and again.
    """
    if not is_pooled(work.config):
        share(work, on_done)
        return
    known = {*work.finished()}
    is_missing = False
    for chunk in work.chunks():
        if chunk.name in known:
            on_done(chunk.name, False)
        is_missing |= chunk.name not in known
    if is_missing:
        with _workers(work) as workers:
            _watch(work, known, workers, on_done)


def _watch(work: Chunked, known: set[str], workers: list[_Worker], on_done: OnDone) -> None:
    """Until a worker has ended well, since then nothing is missing; starts those that died again."""
    deaths = 0
    while True:
        time.sleep(POLL_SECONDS)
        states = [worker.state() for worker in workers]
        new = {*work.finished()} - known
        known |= new
        for name in sorted(new):
            on_done(name, True)
        if not all(states):
            return
        deaths = 0 if new else deaths
        for worker, state in zip(workers, states, strict=True):
            if state != AT_WORK:
                deaths += 1
                if deaths > RETRIES:
                    raise UserError(
                        f"engine: {deaths} workers died in a row (the last: {state}), probably out of memory; lower "
                        "engine.workers; the same command resumes"
                    )
                log.warning("engine: a worker died (%s); another takes its place", state)
                worker.start()


class _Worker(Protocol):
    """A process that shares a work."""

    def start(self) -> None:
        """Starts it, or another in its place."""

    def state(self) -> str:
        """`AT_WORK`; why it died; or nothing once it has ended well. Raises what it has raised."""

    def stop(self) -> None:
        """Ends it at once."""


@contextmanager
def _workers(work: Chunked) -> Iterator[list[_Worker]]:
    """The configured workers, at work; they are stopped at the end of the block."""
    engine = work.config.engine
    count = int(engine.workers)
    with ExitStack() as stack:
        workers: list[_Worker]
        if engine.address is None:
            devices = _devices(work.config)
            threads = engine.threads or max(1, len(os.sched_getaffinity(0)) // count)
            workers = [
                _LocalWorker(work, threads, devices[n % len(devices)] if devices else None)
                for n in range(count)
            ]
        else:
            stack.enter_context(connected(engine.address))
            workers = [_ClusterWorker(work) for _ in range(count)]
        for worker in workers:
            stack.callback(worker.stop)
            worker.start()
        yield workers


def _devices(config: Config) -> list[str]:
    """The GPUs that workers on this machine share, as `CUDA_VISIBLE_DEVICES` names them."""
    from toolformer.lm.devices import gpus

    count = gpus(config.lm.device)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible else [str(n) for n in range(count)]


class _LocalWorker:
    """A process of this machine, which ends with the one that started it.

    Args:
        threads: of PyTorch.
        device: the GPU that it sees; None leaves all.
    """

    def __init__(self, work: Chunked, threads: int, device: str | None) -> None:
        self._work, self._threads, self._device = work, threads, device
        self._process: Any = None
        self._news: Connection | None = None

    def start(self) -> None:
        self.stop()
        context = multiprocessing.get_context("spawn")
        self._news, theirs = context.Pipe(duplex=False)
        seen = {} if self._device is None else {"CUDA_VISIBLE_DEVICES": self._device}
        with mock.patch.dict(os.environ, seen):
            self._process = context.Process(
                target=_work_here, args=(self._work, self._threads, theirs), daemon=True
            )
            self._process.start()
        theirs.close()

    def state(self) -> str:
        assert self._news
        if self._process.is_alive():
            return AT_WORK
        with suppress(EOFError):
            if self._news.poll() and (error := self._news.recv()):
                raise error
        code = self._process.exitcode
        return "" if code == 0 else f"signal {-code}" if code < 0 else f"exit code {code}"

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()


def _work_here(work: Chunked, threads: int, news: Connection) -> None:
    """The life of a worker on this machine."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the one that started it, which stops it
    end_with_parent()
    progress.configure(quiet=True)
    torch.set_num_threads(threads)
    if error := _shared(work):
        news.send(error)


def _shared(work: Chunked) -> Exception | None:
    """Shares the work; returns what it raised, as a value that another process can read."""
    try:
        share(work)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return RuntimeError(f"{type(error).__name__}: {error}")
        return error
    return None


class _ClusterWorker:
    """A task of a Ray cluster, which places it."""

    def __init__(self, work: Chunked) -> None:
        self._work = work
        self._task: Any = None

    def start(self) -> None:
        import ray

        engine = self._work.config.engine
        task = ray.remote(num_cpus=engine.cpus_per_worker, num_gpus=engine.gpus_per_worker, max_retries=0)(
            _work_there
        )
        self._task = task.remote(self._work, os.getcwd())

    def state(self) -> str:
        import ray
        from ray.exceptions import RayError

        # One that the cluster has no room for is never ready.
        if not ray.wait([self._task], timeout=0)[0]:
            return AT_WORK
        try:
            error = ray.get(self._task)
        except RayError as lost:
            return f"{type(lost).__name__}: {str(lost).strip().rpartition(chr(10))[2].strip()[:300]}"
        if error:
            raise error
        return ""

    def stop(self) -> None:
        import ray
        from ray.exceptions import RayError

        with suppress(RayError, ValueError):
            ray.cancel(self._task, force=True)


def _work_there(work: Chunked, folder: str) -> Exception | None:
    """The life of a worker on a node of a cluster, which works in the folder in which the run was started."""
    engine = work.config.engine
    try:
        os.chdir(folder)  # so that relative paths mean the same here
    except OSError as error:
        return UserError(
            f"engine: the node {os.uname().nodename} has no folder {folder} ({error.strerror}); start the run in a folder "
            "that all nodes share"
        )
    import torch

    torch.set_num_threads(engine.threads or max(1, int(engine.cpus_per_worker)))
    apply_cache(work.config)
    return _shared(work)
