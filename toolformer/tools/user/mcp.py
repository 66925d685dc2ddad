"""Tools of MCP servers, over standard input and output or HTTP, with the official client library.

A server's output is used only as text, in prompts, results and messages.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import hashlib
import importlib.util
import json
import logging
import math
import os
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import CancelledError, wait
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Union

from pydantic import TypeAdapter

from toolformer.credentials import printable, shown_address, without_credentials
from toolformer.errors import UserError, one_line
from toolformer.step import NOTHING, Content, Words
from toolformer.tools.base import Result
from toolformer.tools.runtime import Seconds
from toolformer.tools.threads import start
from toolformer.tools.user.arguments import Parameter
from toolformer.tools.user.describe import Description, one_sentence
from toolformer.tools.user.functions import UserTool, from_environment, to_result

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal
    from mcp import Client
    from mcp.types import CallToolResult, Tool

log = logging.getLogger(__name__)
logging.getLogger("mcp").setLevel(
    logging.CRITICAL
)  # it logs tracebacks; failures are logged here in one line

MAX_PARALLEL_CALLS = 8
"""Parallel calls of a tool."""
MOST_BYTES = 1 << 24
"""Maximum bytes of an answer or a line to read, as of an endpoint."""
MOST_PAGES = 1000
"""Pages of a listing of tools."""
PAUSE_SECONDS = 30.0
"""Seconds to wait before restarting a server that failed to start."""
ENDED = "tool server ended"

_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list[Any],
    "object": dict[str, Any],
    "null": None,
}


@dataclass
class McpServer:
    """A server: the program to start, or its address."""

    command: Annotated[str | None, Words()] = None
    """MCP over standard input and output: the server's program."""
    args: Annotated[list[str], Words()] = field(default_factory=list)
    """command: its arguments; $NAME is replaced by an environment variable."""
    env: dict[str, str] = field(default_factory=dict)
    """command: environment variables beside the few that every program gets; $NAME as above."""
    url: str | None = None
    """MCP over HTTP: the server's address."""
    headers: dict[str, str] = field(default_factory=dict)
    """url: headers of every request; $NAME as above."""
    timeout: Annotated[Seconds, NOTHING] = 30.0
    """MCP: seconds that an answer may take."""
    start_timeout: Annotated[Seconds, NOTHING] = 60.0
    """MCP: seconds until the server must have answered for the first time, and listed its tools."""

    @property
    def label(self) -> str:
        """Its name in messages; without arguments, which may hold secrets."""
        return f"the MCP server {shown_address(self.url) if self.url else self.command}"


class McpTool(UserTool):
    """A tool of an MCP server.

    Args:
        tool: its name on the server.
        name: its name in a call; by default the same.
        version: any text; results are cached under it, and never without one.
        schema: a hash of the tool's description and schema, so that the configuration changes when they do.
        files: the files and folders that its program reads.
        server: the fields of `McpServer`.

    `UserError` if the server does not answer, or has no such tool.
    """

    VERSION = 3
    FURTHER: ClassVar[type] = McpServer
    """The dataclass of its further arguments."""
    max_parallel_calls = MAX_PARALLEL_CALLS
    is_remote = True

    def __init__(
        self,
        tool: str,
        name: str | None = None,
        version: str | None = None,
        schema: str | None = None,
        files: Annotated[Sequence[str], Content()] = (),
        **server: Any,
    ) -> None:
        self.tool = tool
        self.name = name or tool
        self.version = version or ""
        self.connection = connection(McpServer(**server))
        _, listed = self.connection.open()
        if tool not in listed:
            raise UserError(
                f"{self.connection.server.label} has no tool {tool!r}; it has {', '.join(listed)}"
            )
        listing = listed[tool]
        self.parameters = _parameters(listing.input_schema)
        meanings = _properties(listing.input_schema).items()
        self.description = Description(
            one_sentence((listing.description or listing.title or tool).strip().split("\n\n")[0]),
            tuple((key, one_sentence(str(value.get("description") or ""))) for key, value in meanings),
        )

    def call(self, arguments: dict[str, Any]) -> Result:
        """The server's answer."""
        return self.connection.call(self.tool, arguments)


def schemas(server: McpServer) -> dict[str, str]:
    """A hash of description and schema per tool of a server; `UserError` if the server does not answer."""
    digests = {}
    for name, tool in connection(server).open()[1].items():
        description = json.dumps([tool.description, tool.input_schema], sort_keys=True)
        if all(character.isalnum() or character in "_-./ " for character in name):
            digests[name] = hashlib.sha256(description.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        else:
            log.warning("%s: the tool %.60r is skipped: its name does not fit a call", server.label, name)
    return digests


# ------------------------------------------------------------------- connections


@cache
def _portal() -> BlockingPortal:
    """The event loop of all connections, on a daemon thread; at exit it cancels them, which ends their servers."""
    from anyio.from_thread import start_blocking_portal

    stack = contextlib.ExitStack()
    portal = stack.enter_context(start_blocking_portal(name="tool servers"))
    atexit.register(stack.close)
    atexit.register(portal.call, portal.stop, True)  # runs first
    return portal


_connections: dict[str, Connection] = {}


def connection(server: McpServer) -> Connection:
    """This process's connection to a server; `UserError` if the client library is missing."""
    if importlib.util.find_spec("mcp") is None:
        raise UserError("an MCP server needs the package mcp: make setup EXTRA=mcp")
    return _connections.setdefault(repr(server), Connection(server))


class Connection:
    """A client that connects when needed, and reconnects after its server has ended or hung. Thread-safe."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self._lock = threading.Lock()
        self._session: tuple[Client, dict[str, Tool]] | None = None
        self._stack = contextlib.ExitStack()
        self._failed_at = float("-inf")

    def open(self) -> tuple[Client, dict[str, Tool]]:
        """The connected client, and the server's tools by name; `UserError` if the server does not answer."""
        with self._lock:
            if self._session is None:
                if time.monotonic() < self._failed_at + PAUSE_SECONDS:
                    raise UserError(f"{self.server.label} does not answer (its last start just failed)")
                http = _Http()
                stderr = _LastWords()
                session = _portal().wrap_async_context_manager(_session(self.server, stderr.file, http))
                try:
                    with stderr.file:  # the server has a copy
                        self._session = self._stack.enter_context(session)
                except TimeoutError:
                    self._failed_at = time.monotonic()
                    reason = f"nothing within {self.server.start_timeout:g} s"
                    raise UserError(f"{self.server.label} does not answer ({reason})") from None
                except (Exception, asyncio.CancelledError) as error:
                    self._failed_at = time.monotonic()
                    last = stderr.last_line()
                    reason = f"its last words: {last}" if last else http.reason or _described(error)
                    raise UserError(f"{self.server.label} does not answer ({reason})") from error
            return self._session

    def call(self, tool: str, arguments: dict[str, Any]) -> Result:
        """The answer to a call, or a fault."""
        import anyio
        from mcp.types import CONNECTION_CLOSED

        client: Client | None = None
        try:
            client, _ = self.open()
            future = _portal().start_task_soon(client.call_tool, tool, arguments)
            try:
                answer = future.result(self.server.timeout)
            finally:
                future.cancel()
            self._warn_of(tool, answer)
            return _result(answer)
        except (TimeoutError, CancelledError):  # the latter as the process ends
            reason = "timeout"  # the server may still be busy with that call
        except UserError as error:
            log.warning("%s", error)
            reason = ENDED
        except Exception as error:  # a server may answer anything
            log.warning("%s: %s: %s", self.server.label, tool, _described(error))
            gone = isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError)
            if not gone and getattr(error, "code", None) != CONNECTION_CLOSED:
                return Result(reason=f"tool server failed ({type(error).__name__})", fault=True)
            reason = ENDED
        self.close(client)
        return Result(reason=reason, fault=True)

    def _warn_of(self, tool: str, answer: CallToolResult) -> None:
        """Logs the text of an error."""
        said = " ".join(
            text for block in answer.content if isinstance(text := getattr(block, "text", None), str)
        )
        if answer.is_error:
            shown = printable(without_credentials(" ".join(said.split())))[:200]
            log.warning("%s: %s: %s", self.server.label, tool, shown or "an error without a text")

    def close(self, client: Client | None) -> None:
        """Closes this client's connection, and the server that was started for it."""
        with self._lock:
            if self._session is not None and client is self._session[0]:
                self._session = None
                with contextlib.suppress(Exception, asyncio.CancelledError):
                    self._stack.close()


class _LastWords:
    """A file for a program's standard error, of which only the end is kept."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self.file = os.fdopen(writing, "w")
        self._end = b""
        self._ended = start(functools.partial(self._read, reading))

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            while chunk := pipe.read(1 << 16):
                self._end = (self._end + chunk)[-2000:]

    def last_line(self) -> str:
        """Its last line, printable and short; waits a moment for a program that has just ended."""
        wait([self._ended], 1.0)
        text = without_credentials(self._end.decode("utf-8", "replace").strip())
        return printable(text.rpartition("\n")[2].strip())[:200]


@dataclass
class _Http:
    """Facts about a server's answers over HTTP that the protocol lacks: the status, and the way that they come."""

    reason: str = ""

    def client(self, headers: Mapping[str, str], timeout: float) -> Any:
        """A client for at most `MOST_BYTES` of each body; a small packed one may unpack to a huge one, so none is unpacked."""
        import httpx2

        async def note(response: httpx2.Response) -> None:
            if response.status_code >= 300 and response.request.method == "POST":
                self.reason = self.reason or f"HTTP {response.status_code}"
            response.headers.pop("Content-Encoding", None)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                response.stream = _Bounded(response.stream)

        class _Bounded(httpx2.AsyncByteStream):
            def __init__(self, stream: Any) -> None:
                self.stream = stream

            async def __aiter__(self) -> AsyncIterator[bytes]:
                size = 0
                async for chunk in self.stream:
                    size += len(chunk)
                    if size > MOST_BYTES:
                        raise httpx2.ReadError(f"an answer of more than {MOST_BYTES} bytes")
                    yield chunk

            async def aclose(self) -> None:
                await self.stream.aclose()

        return httpx2.AsyncClient(
            headers={**headers, "Accept-Encoding": "identity"},
            timeout=timeout,
            event_hooks={"response": [note]},
        )

    async def look_for_sse(self, client: Any, url: str) -> None:
        """Notes it if the server that did not take a message offers MCP's former transport at this address."""
        import anyio

        with contextlib.suppress(Exception), anyio.move_on_after(3.0):
            async with client.stream("GET", url, headers={"Accept": "text/event-stream"}) as response:
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    self.reason = (
                        f"{self.reason}; its transport is SSE, which MCP has replaced: name its address for Streamable HTTP, "
                        "often .../mcp"
                    )


@functools.cache
def _bounded_lines() -> Any:
    """The library's client for programs, which ends at a line of more than `MOST_BYTES` characters: it would keep all of it."""
    import anyio
    from mcp.client import stdio

    class Bounded(stdio.TextReceiveStream):
        _length = 0

        async def receive(self) -> str:
            text: str = await super().receive()
            self._length = len(text.rpartition("\n")[2]) + (0 if "\n" in text else self._length)
            if self._length > MOST_BYTES:
                raise anyio.BrokenResourceError
            return text

    stdio.TextReceiveStream = Bounded  # type: ignore[misc]
    return stdio.stdio_client


@contextlib.asynccontextmanager
async def _session(
    server: McpServer, stderr: Any, http: _Http
) -> AsyncIterator[tuple[Client, dict[str, Tool]]]:
    """A connected client and the server's tools; the standard error of the server's program goes to `stderr`."""
    import anyio
    from mcp import Client, StdioServerParameters
    from mcp.client.streamable_http import streamable_http_client

    def filled(values: Mapping[str, str]) -> dict[str, str]:
        return {key: from_environment(value, server.label) for key, value in values.items()}

    with anyio.fail_after(server.start_timeout) as scope:
        async with contextlib.AsyncExitStack() as stack:
            if server.command is not None:
                parameters = StdioServerParameters(
                    command=os.path.expanduser(server.command),
                    args=[from_environment(word, server.label) for word in server.args],
                    env=filled(server.env),
                )
                transport = _bounded_lines()(parameters, errlog=stderr)
            else:
                assert server.url is not None  # one of the two is
                connected = http.client(filled(server.headers), server.timeout)
                await stack.enter_async_context(connected)
                transport = streamable_http_client(server.url, http_client=connected)
            try:
                client = await stack.enter_async_context(Client(transport))
                tools = await _list(client)
            except Exception:
                if server.url is not None and http.reason:
                    await http.look_for_sse(connected, server.url)
                raise
            _accept_any_structure(client, server.label)
            scope.deadline = math.inf
            yield client, tools


def _accept_any_structure(client: Client, label: str) -> None:
    """Makes an answer count that does not fit the schema its tool has promised: the texts in it are what is read."""
    session, warned = client.session, set()
    check = session.validate_tool_result

    async def lenient(name: str, result: Any) -> None:
        try:
            await check(name, result)
        except RuntimeError as error:
            if name not in warned:
                warned.add(name)
                log.warning(
                    "%s: %s; the answer counts", label, _described(error).removeprefix("RuntimeError: ")
                )

    session.validate_tool_result = lenient  # type: ignore[method-assign]


async def _list(client: Client) -> dict[str, Tool]:
    """The server's tools by name. The listing ends at an empty or repeated cursor, and with `MOST_PAGES`."""
    page = await client.list_tools()
    tools = {tool.name: tool for tool in page.tools}
    cursors: set[str] = set()
    while page.next_cursor and page.next_cursor not in cursors and len(cursors) < MOST_PAGES:
        cursors.add(page.next_cursor)
        page = await client.list_tools(cursor=page.next_cursor)
        tools |= {tool.name: tool for tool in page.tools}
    return tools


def _described(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {one_line(error)}"


# -------------------------------------------------------------- answers and schemas


def _result(answer: CallToolResult) -> Result:
    """The texts and embedded text resources in order, or else structured content as JSON; no result for an error."""
    if answer.is_error:
        return Result(reason="tool answered with an error")
    blocks = [block.resource if block.type == "resource" else block for block in answer.content]
    texts = [text for block in blocks if isinstance(text := getattr(block, "text", None), str)]
    if not texts:
        is_structured = answer.content == []
        return (
            to_result(answer.structured_content) if is_structured else Result(reason="no text in the answer")
        )
    text = "\n".join(texts)
    if text.lstrip()[:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            return to_result(json.loads(text))
    return to_result(text)


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    properties = (schema.get("properties") or {}).items()
    return {key: value if isinstance(value, Mapping) else {} for key, value in properties}


def _parameters(schema: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """The parameters of a JSON schema; the server checks further constraints."""
    needed = schema.get("required") or ()
    # Required ones first: positional arguments begin with them.
    properties = sorted(_properties(schema).items(), key=lambda item: item[0] not in needed)
    return tuple(Parameter(name, TypeAdapter(_type(value)), name in needed) for name, value in properties)


def _type(schema: Mapping[str, Any]) -> Any:
    """A Python type for simple JSON schemas; `Any` for others."""
    kinds = schema.get("anyOf") or schema.get("type")
    if isinstance(kinds, str):
        return _TYPES.get(kinds, Any)
    if not isinstance(kinds, list):
        return Any
    types = [_type(kind if isinstance(kind, Mapping) else {"type": kind}) for kind in kinds]
    return Any if Any in types or not types else Union[tuple(types)]  # noqa: UP007
