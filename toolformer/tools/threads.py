"""Jobs on daemon threads, within a time limit.

A thread cannot be stopped: a late one is abandoned, and the process does not wait for it at exit, as the executors of the
standard library would.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from enum import Enum
from typing import TypeVar

T = TypeVar("T")

MAX_LATE = 8
"""Abandoned threads that still run before new ones are refused; twice the workers if that is more.

With one worker and a job that hangs, the ninth and later jobs are `Late.NOT_BEGUN`, until an abandoned thread ends.
"""


class Late(Enum):
    """Why a job has no result: it took too long, or was not begun because too many abandoned threads still run."""

    RUNNING = "running"
    NOT_BEGUN = "not begun"


class Threads:
    """Runs jobs on at most `workers` threads at once, not counting abandoned ones."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._slots = threading.Semaphore(workers + max(MAX_LATE, 2 * workers))

    def run(self, jobs: Sequence[Callable[[], T]], seconds: float | None = None) -> list[T | Late]:
        """The result of each job, which may take `seconds` from its start.

        If too many abandoned threads run, waits `seconds` for one to end, then gives up on the remaining jobs. The first
        exception of a job is raised at once.
        """
        results: list[T | Late] = [Late.NOT_BEGUN] * len(jobs)
        waiting = deque(range(len(jobs)))
        running: dict[Future[T], tuple[int, float]] = {}
        while waiting or running:
            if waiting and len(running) < self.workers:
                if self._slots.acquire(timeout=0 if running else seconds):
                    n = waiting.popleft()
                    running[start(self._releasing(jobs[n]))] = n, time.monotonic() + (seconds or 0)
                    continue
                if not running:
                    break
            left = min(deadline for _, deadline in running.values()) - time.monotonic()
            done, _ = wait(running, max(0.0, left) if seconds else None, FIRST_COMPLETED)
            now = time.monotonic()
            for future, (n, deadline) in list(running.items()):
                if future in done or (seconds and now >= deadline):
                    del running[future]
                    results[n] = future.result() if future in done else Late.RUNNING
        return results

    def _releasing(self, job: Callable[[], T]) -> Callable[[], T]:
        """The job, which gives its slot back at its end."""

        def work() -> T:
            try:
                return job()
            finally:
                self._slots.release()

        return work


def start(job: Callable[[], T]) -> Future[T]:
    """Runs a job on a thread that the process does not wait for at exit."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(job())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future
