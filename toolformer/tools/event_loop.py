"""One event loop of this process for tools that are asynchronous, in a thread of its own.

So a tool's connections outlive a call, and a caller may have an event loop of its own. It knows no tool.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future
from contextvars import ContextVar
from functools import cache
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
    """Waits for `work`, which the loop's thread does; its exceptions come back."""
    return start(work).result()


def start(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Has the loop's thread begin with `work`."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="asynchronous tools", daemon=True).start()
    return loop
