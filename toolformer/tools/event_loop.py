"""One event loop of this process for tools that are asynchronous, in a thread of its own.

So a tool's connections outlive a call, and a caller may have an event loop of its own. It knows no tool.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

LIMIT: ContextVar[float | None] = ContextVar("seconds a call", default=None)
"""Seconds that a call of the tool in this thread may take, where it is run within a limit."""


class TooLate(Exception):
    """A call took longer than it may, and was cancelled."""


async def bounded(work: Awaitable[T]) -> T:
    """What `work` returns; it is cancelled where it takes longer than `LIMIT`.

    Raises:
        TooLate: it did.
    """
    scope = asyncio.timeout(LIMIT.get())
    try:
        async with scope:
            return await work
    except TimeoutError:
        if scope.expired():
            raise TooLate from None
        raise


def run(work: Coroutine[Any, Any, T]) -> T:
    """Waits for `work`, which the loop's thread does; its exceptions come back. Ctrl-C cancels it."""
    future = start(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def start(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Has the loop's thread begin with `work`."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


_mutex = threading.Lock()
_running: tuple[int, threading.Thread, asyncio.AbstractEventLoop] | None = None


def _loop() -> asyncio.AbstractEventLoop:
    """This process's loop; another one where a fork has left its thread behind, or something has ended it."""
    global _running
    with _mutex:
        if _running is None or _running[0] != os.getpid() or not _running[1].is_alive():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="asynchronous tools", daemon=True)
            thread.start()
            _running = os.getpid(), thread, loop
        return _running[2]


def _anew() -> None:
    """In a forked process, whose parent may have held the lock."""
    global _mutex
    _mutex = threading.Lock()


os.register_at_fork(after_in_child=_anew)
