"""Requests to a server with OpenAI's API, with the `openai` client's retries. No error shows the key."""

import contextlib
import functools
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import openai

from toolformer.credentials import MASK, printable, without_credentials
from toolformer.errors import UserError

MOST_BYTES = 1 << 24
"""Maximum bytes of an answer to read."""
LONGEST_TOKEN = 128
"""Characters of the longest token in the usual vocabularies (of blanks)."""
_NO_KEY = "none"
"""Placeholder for the key that the client requires; never sent."""


class NoAnswer(Exception):
    """A request without a usable answer; the message says what the server does, in a few words."""

    def __init__(self, reason: str, status: int = 0, detail: str = "") -> None:
        super().__init__(reason)
        self.status = status
        """HTTP status of an error, else 0."""
        self.detail = detail
        """The server's message, for a log: one line without the key."""

    def described(self) -> str:
        """The reason with the detail."""
        return f"{self}: {self.detail}" if self.detail else str(self)


def key_from(variable: str) -> str:
    """The key in an environment variable; empty if it is not set. UserError if it cannot be sent in a header."""
    key = os.environ.get(variable, "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise UserError(f"endpoint: ${variable} holds blanks or characters that a key cannot have")
    return key


def open_client(key: str, timeout: float, tries: int) -> openai.OpenAI:
    """A client that makes each request up to `tries` times; a key that is not empty is sent as a bearer token.

    `timeout` is in seconds, for the server to respond, headers and all, and again for the last byte of its answer. Redirects
    are not followed: they would send prompts and key elsewhere.
    """
    http = httpx2.Client(
        timeout=timeout,
        # Of a connection that is used again nothing tells the socket, which `_watch` needs.
        limits=httpx2.Limits(max_keepalive_connections=0),
        headers={"Accept-Encoding": "identity"},
        follow_redirects=False,
        event_hooks={
            "request": [functools.partial(_watch, seconds=timeout)],
            "response": [functools.partial(_bound, seconds=timeout)],
        },
    )
    return openai.OpenAI(api_key=key or _NO_KEY, timeout=timeout, max_retries=tries - 1, http_client=http)


def _watch(request: httpx2.Request, seconds: float) -> None:
    """Ends the connection if the headers of the answer take longer: each byte of them restarts the client's own timeout."""
    connection: list[Any] = []
    timers: list[threading.Timer] = []

    def end() -> None:
        with contextlib.suppress(OSError):  # it has ended by itself
            connection[-1].get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def trace(event: str, info: Mapping[str, Any]) -> None:
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            connection.append(info["return_value"])
        elif event.endswith(".receive_response_headers.started") and connection:
            # Where nothing comes at all, the client's own timeout is first.
            timers.append(threading.Timer(seconds + 1, end))
            timers[-1].daemon = True
            timers[-1].start()
        elif ".receive_response_headers." in event and timers:
            timers[-1].cancel()

    request.extensions["trace"] = trace


def _bound(response: httpx2.Response, seconds: float) -> None:
    """Reads at most `MOST_BYTES` of an answer, for at most `seconds`: a server may never stop."""
    body, deadline = b"", time.monotonic() + seconds
    stream: Any = response.stream
    with contextlib.closing(stream):
        for chunk in stream:
            if time.monotonic() > deadline:
                raise httpx2.ReadTimeout("a byte now and then")
            body += chunk
            if len(body) > MOST_BYTES:
                break
    response.headers.pop("Content-Encoding", None)  # a small body may unpack to a huge one
    response.stream = httpx2.ByteStream(body[:MOST_BYTES])


def post(
    client: openai.OpenAI,
    url: str,
    body: Mapping[str, Any],
    read: Callable[[Any], Any],
    lacks: str = "is not a completion",
) -> Any:
    """The result of `read` on the JSON of the answer.

    `NoAnswer` if there is none, or `read` fails on it (then the message ends with `lacks`).
    """
    options: Any = {"headers": {"Authorization": openai.Omit()}} if client.api_key == _NO_KEY else {}
    try:
        content = json.loads(client.post(url, body=body, cast_to=httpx2.Response, options=options).content)
        if isinstance(content, Mapping) and content.get("error"):  # some answer so with HTTP 200
            raise NoAnswer("answers with an error", detail=_said(content, client.api_key))
        return read(content)
    except openai.APIStatusError as error:
        said = _said(error.body, client.api_key)
        raise NoAnswer(f"answers HTTP {error.status_code}", error.status_code, said) from None
    except openai.APIConnectionError as error:
        # Without the cause: its text may hold the key.
        raise NoAnswer(f"does not answer ({type(error.__cause__ or error).__name__})") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NoAnswer(f"gives an answer that {lacks} ({type(error).__name__})") from None


def _said(body: Any, key: str) -> str:
    """The text of a server's error in one short line, without the key, which some servers repeat."""
    while isinstance(body, Mapping):
        body = next((body[name] for name in ("error", "message", "detail") if body.get(name)), "")
    text = " ".join(str(body or "").split())
    if key != _NO_KEY:
        text = text.replace(key, MASK)
    return printable(without_credentials(re.sub(r"\bsk-[\w*.-]+", MASK, text)))[:200]
