"""Requests to a server with OpenAI's API, repeated as the `openai` client does it. No error shows the key."""

import contextlib
import functools
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import openai

from toolformer.errors import UserError

MOST_BYTES = 1 << 24
"""Bytes of an answer that are read."""
LONGEST_TOKEN = 128
"""Characters of the longest token in the usual vocabularies (of blanks)."""
_NO_KEY = "none"
"""In place of a key, which the client insists on; it is not sent."""


class NoAnswer(Exception):
    """A request that has no answer, or not the one wanted: the message is what the server does, in a few words."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status
        """That of HTTP where it is a fault, else 0."""


def key_from(variable: str) -> str:
    """The key in an environment variable; empty if it is not set. UserError if it cannot be sent in a header."""
    key = os.environ.get(variable, "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise UserError(f"endpoint: ${variable} holds blanks or characters that a key cannot have")
    return key


def open_client(key: str, timeout: float, tries: int) -> openai.OpenAI:
    """What requests are made with, each up to `tries` times; the key, if it is not empty, is a bearer token.

    `timeout` is in seconds, to wait for the server, and again for its answer's last byte. Redirects are not followed: they
    would take prompts and key elsewhere.
    """
    http = httpx2.Client(
        timeout=timeout,
        headers={"Accept-Encoding": "identity"},
        follow_redirects=False,
        event_hooks={"response": [functools.partial(_bound, seconds=timeout)]},
    )
    return openai.OpenAI(api_key=key or _NO_KEY, timeout=timeout, max_retries=tries - 1, http_client=http)


def _bound(response: httpx2.Response, seconds: float) -> None:
    """Reads no more of an answer than `MOST_BYTES`, nor for longer than `seconds`: a server may go on for ever."""
    body, deadline = b"", time.monotonic() + seconds
    stream: Any = response.stream
    with contextlib.closing(stream):
        for chunk in stream:
            if time.monotonic() > deadline:
                raise httpx2.ReadTimeout("a byte now and then")
            body += chunk
            if len(body) > MOST_BYTES:
                break
    response.headers.pop("Content-Encoding", None)  # little may unpack to much
    response.stream = httpx2.ByteStream(body[:MOST_BYTES])


def post(
    client: openai.OpenAI,
    url: str,
    body: Mapping[str, Any],
    read: Callable[[Any], Any],
    lacks: str = "is no completion",
) -> Any:
    """What `read` takes from the JSON that a request is answered with.

    `NoAnswer` if there is none, or `read` does not find what it looks for (then it `lacks` something).
    """
    options: Any = {"headers": {"Authorization": openai.Omit()}} if client.api_key == _NO_KEY else {}
    try:
        answer = client.post(url, body=body, cast_to=httpx2.Response, options=options)
        return read(json.loads(answer.content))
    except openai.APIStatusError as error:
        raise NoAnswer(f"answers HTTP {error.status_code}", error.status_code) from None
    except openai.APIConnectionError as error:
        # Without the cause: its text may hold the key.
        raise NoAnswer(f"does not answer ({type(error.__cause__ or error).__name__})") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NoAnswer(f"gives an answer that {lacks} ({type(error).__name__})") from None
