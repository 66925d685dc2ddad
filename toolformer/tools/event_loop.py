"""The event loops of this process for tools that are asynchronous, each in a thread of its own.

So a tool's connections outlive a call, and a caller may have an event loop of its own. Functions of a user's have another
loop than servers: one that blocks it holds up no server, and its loop is given up for a fresh one. It knows no tool.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

LIMIT: ContextVar[float | None] = ContextVar("seconds a call", default=None)
"""Seconds that a call of the tool in this thread may take, where it is run within a limit."""


class TooLate(Exception):
    """A call took longer than it may, and was cancelled."""


class Blocked(Exception):
    """Something on the loop has kept it from everything else for longer than a call may take; the loop is given up."""

    def __init__(self, by: asyncio.Task[Any] | None) -> None:
        super().__init__("the event loop is blocked")
        self.by = by
        """The task that was at it."""


async def bounded(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns; it is cancelled where it takes longer than `LIMIT`, and not waited for then.

    Raises:
        TooLate: it did.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=LIMIT.get())
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not task.done():
        task.cancel()
        # Whatever it still does, also if it goes on all the same, is of no interest.
        task.add_done_callback(lambda late: late.cancelled() or late.exception())
        raise TooLate
    if task.cancelled():
        raise RuntimeError("it has cancelled itself")
    return task.result()


class Loop:
    """One event loop, made when it is needed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._mutex = threading.Lock()
        self._running: tuple[int, threading.Thread, asyncio.AbstractEventLoop] | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for `work`, which the loop's thread does; its exceptions come back. Ctrl-C cancels it.

        Raises:
            Blocked: there is a `LIMIT`, and the loop has done nothing for that long.
        """
        loop = self.now()
        future = asyncio.run_coroutine_threadsafe(work, loop)
        limit = LIMIT.get()
        try:
            while not wait([future], limit).done:
                if limit is not None and not _beats(loop, limit):
                    raise Blocked(self._given_up(loop))
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Has the loop's thread begin with `work`."""
        return asyncio.run_coroutine_threadsafe(work, self.now())

    def now(self) -> asyncio.AbstractEventLoop:
        """This process's loop; another one where a fork has left its thread behind, or something has ended it."""
        with self._mutex:
            if self._running is None or self._running[0] != os.getpid() or not self._running[1].is_alive():
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=loop.run_forever, name=self.name, daemon=True)
                thread.start()
                self._running = os.getpid(), thread, loop
            return self._running[2]

    def _given_up(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[Any] | None:
        """Has the next call make a new loop; this one ends once it is free. Returns the task that is at it."""
        with self._mutex:
            if self._running is not None and self._running[2] is loop:
                self._running = None
        loop.call_soon_threadsafe(_end, loop)
        return asyncio.current_task(loop)


def _beats(loop: asyncio.AbstractEventLoop, seconds: float) -> bool:
    """Whether the loop does anything within this time."""
    beat = threading.Event()
    loop.call_soon_threadsafe(beat.set)
    return beat.wait(seconds)


def _end(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.call_soon(loop.stop)


SERVERS = Loop("tool servers")
FUNCTIONS = Loop("asynchronous tools")


def _anew() -> None:
    """In a forked process, whose parent may have held a lock."""
    for loop in (SERVERS, FUNCTIONS):
        loop._mutex = threading.Lock()


os.register_at_fork(after_in_child=_anew)
