"""Connections to MCP servers, over standard input and output or HTTP, through the official client library.

A server is started or connected to once a process, and again when it has ended or hung. Whatever it does, a call costs
`timeout` seconds at most, or the limit it is run within (`event_loop.LIMIT`) where that is less, and gets a result or a
reason; where the server must be started, a batch takes up to `start_timeout` more. Secrets are
named (`$NAME`), so that none need stand in a configuration. This module does not know what an answer means.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib.util
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from toolformer.credentials import said, shown_address, without_credentials
from toolformer.errors import UserError
from toolformer.tools import event_loop
from toolformer.tools.base import Result, too_late
from toolformer.tools.functions import from_environment

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, Tool

log = logging.getLogger(__name__)

SIDE_BY_SIDE = 8
"""Calls of one server at once."""
RESTARTS = 3
"""How often in a row a server that ends is started again for one batch of calls."""
MOST_TOOLS = 1000
_CLOSING_SECONDS = 10.0
ENDED = "tool server ended"
TIMEOUT = "timeout"


@dataclass(frozen=True)
class McpServer:
    """How a server is reached. Values may hold `$NAME` for an environment variable."""

    command: str | None
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    url: str | None
    headers: tuple[tuple[str, str], ...]
    timeout: float
    """Seconds that an answer may take."""
    start_timeout: float
    """Seconds until it must have answered for the first time, and listed its tools."""

    @classmethod
    def of(
        cls,
        command: str | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        start_timeout: float = 60.0,
    ) -> McpServer:
        """From configuration.

        Raises:
            UserError: its program is not there, or the client library is not installed.
        """
        if importlib.util.find_spec("mcp") is None:
            raise UserError("an MCP server needs the package mcp: pip install 'toolformer[mcp]'")
        if command is not None and shutil.which(os.path.expanduser(command)) is None:
            raise UserError(f"there is no command {command!r}; install it, or give its whole path")
        pairs = [tuple(sorted((one or {}).items())) for one in (env, headers)]
        return cls(command, tuple(args), pairs[0], url, pairs[1], float(timeout), float(start_timeout))

    @property
    def shown(self) -> str:
        """What the user knows it by; without arguments, which may hold anything."""
        return f"the MCP server {shown_address(self.url) if self.url else self.command}"


def connection(server: McpServer) -> Connection:
    """This process's connection to a server."""
    return _connection(server, os.getpid())


@cache
def _connection(server: McpServer, process: int) -> Connection:
    made = Connection(server)
    OPEN.append(made)
    atexit.register(made.close)
    return made


OPEN: list[Connection] = []
"""Every connection of this process, whatever became of it."""


class Connection:
    """A client that connects when it is asked, and again after its server has ended or hung."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._closing: asyncio.Event | None = None
        self._task: Future[None] | None = None
        self._left = threading.Event()
        """Set when the task has left its server, which has ended then."""
        self._listed: dict[str, Tool] | None = None

    def listed(self) -> dict[str, Tool]:
        """The server's tools by name, asked once.

        Raises:
            UserError: it does not answer.
        """
        with self._lock:
            if self._listed is None:
                self._open()
                try:
                    self._listed = event_loop.SERVERS.run(
                        asyncio.wait_for(self._list(), self.server.start_timeout)
                    )
                except Exception as error:
                    self._close()
                    raise UserError(f"{self.server.shown} did not list its tools ({_said(error)})") from error
        return self._listed

    def call(
        self, tool: str, calls: Mapping[int, dict[str, Any]], read: Callable[[CallToolResult], Result]
    ) -> dict[int, Result]:
        """The results of calls of one tool, read from the server's answers, under the calls' numbers.

        A call under which the server ends takes others down with it: those are made again one by one.
        """
        with self._lock:
            results = self._attempt(tool, calls, read)
            restarts = 0
            for n in sorted(calls):
                if results[n].reason == ENDED and len(calls) > 1 and restarts < RESTARTS:
                    results |= self._attempt(tool, {n: calls[n]}, read)
                    restarts = restarts + 1 if results[n].reason == ENDED else 0
            return results

    def close(self) -> None:
        """Ends the connection, and a server that was started for it."""
        with self._lock:
            self._close()

    def _attempt(
        self, tool: str, calls: Mapping[int, dict[str, Any]], read: Callable[[CallToolResult], Result]
    ) -> dict[int, Result]:
        if not calls:
            return {}
        try:
            self._open()
        except UserError as error:
            log.warning("%s", error)
            return dict.fromkeys(calls, Result(reason=ENDED, fault=True))
        results = event_loop.SERVERS.run(self._call_all(tool, calls, read))
        if any(result.reason in (ENDED, TIMEOUT) or result.final for result in results.values()):
            # A server that has not answered in time may be at that call still.
            self._close()
        return results

    async def _call_all(
        self, tool: str, calls: Mapping[int, dict[str, Any]], read: Callable[[CallToolResult], Result]
    ) -> dict[int, Result]:
        free = asyncio.Semaphore(SIDE_BY_SIDE)

        async def call(arguments: dict[str, Any]) -> Result:
            async with free:
                return await self._call(tool, arguments, read)

        return dict(zip(calls, await asyncio.gather(*map(call, calls.values())), strict=True))

    async def _call(
        self, tool: str, arguments: dict[str, Any], read: Callable[[CallToolResult], Result]
    ) -> Result:
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        if self._client is None or self._task is None or self._task.done():
            return Result(reason=ENDED, fault=True)
        try:
            work = asyncio.wait_for(self._client.call_tool(tool, arguments), self.server.timeout)
            return read(await event_loop.bounded(work))
        except TimeoutError:
            return Result(reason=TIMEOUT, fault=True)
        except event_loop.TooLate:
            return Result(reason=too_late(event_loop.LIMIT.get()), fault=True, final=True)
        except MCPError as error:
            log.warning("%s: %s: %s", self.server.shown, tool, _said(error))
            if error.code == CONNECTION_CLOSED:
                return Result(reason=ENDED, fault=True)
            return Result(reason=f"tool server refused ({error.code})", fault=True)
        except Exception as error:  # a server may answer anything
            log.warning("%s: %s: %s", self.server.shown, tool, _said(error))
            return Result(reason=f"tool server failed ({type(error).__name__})", fault=True)

    async def _list(self) -> dict[str, Tool]:
        assert self._client is not None  # it is open
        found: dict[str, Tool] = {}
        cursor = None
        while True:
            page = await self._client.list_tools(cursor=cursor)
            found.update({tool.name: tool for tool in page.tools})
            cursor = page.next_cursor
            if cursor is None or len(found) > MOST_TOOLS or not page.tools:
                return found

    # The client must be left by the task that entered it: one task holds it open until it is told to end.

    def _open(self) -> None:
        if self._task is not None and not self._task.done():
            return
        opened: Future[None] = Future()
        self._left.clear()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as words:
            self._task = event_loop.SERVERS.start(self._hold(opened, words))
            try:
                opened.result(self.server.start_timeout)
            except Exception as error:
                self._close()
                words.seek(0)
                last = " ".join(without_credentials(words.read()[-2000:].strip().split("\n")[-1]).split())[
                    :200
                ]
                if isinstance(error, TimeoutError):
                    why = f"nothing within {self.server.start_timeout:g} s"
                else:
                    why = f"its last words: {last}" if last else _said(error)
                raise UserError(f"{self.server.shown} does not answer ({why})") from error

    async def _hold(self, opened: Future[None], words: Any) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                self._client = await stack.enter_async_context(await self._connect(stack, words))
                self._closing = asyncio.Event()
                opened.set_result(None)
                await self._closing.wait()
        except BaseException as error:
            if not opened.done():
                opened.set_exception(_first(error))
            elif not isinstance(error, Exception):
                raise
        finally:
            self._client = self._closing = None
            self._left.set()

    async def _connect(self, stack: contextlib.AsyncExitStack, words: Any) -> Client:
        import httpx2
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client
        from mcp.client.streamable_http import streamable_http_client

        server = self.server
        if server.command is not None:
            environment = {key: from_environment(value, server.shown) for key, value in server.env}
            parameters = StdioServerParameters(
                command=os.path.expanduser(server.command), args=list(server.args), env=environment
            )
            return Client(stdio_client(parameters, errlog=words))
        assert server.url is not None  # one of the two is
        headers = {key: from_environment(value, server.shown) for key, value in server.headers}
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=server.timeout))
        return Client(streamable_http_client(server.url, http_client=http))

    def _close(self) -> None:
        task, self._task = self._task, None
        if task is None or task.done():
            return
        if (closing := self._closing) is not None:
            event_loop.SERVERS.run(_set(closing))
        else:
            task.cancel()
        try:
            task.result(_CLOSING_SECONDS)
        except BaseException as error:
            log.debug("%s: %s", self.server.shown, _said(error))
            task.cancel()
            # Its future ends at once, the task only after it has ended the server that it had started.
            self._left.wait(_CLOSING_SECONDS)


async def _set(event: asyncio.Event) -> None:
    event.set()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error if isinstance(error, Exception) else RuntimeError(type(error).__name__)


def _said(error: BaseException) -> str:
    first = _first(error)
    words = said(first)
    return f"{type(first).__name__}: {words}" if words else type(first).__name__
