"""Requests to a server with OpenAI's API, with the `openai` client's retries. No error shows the key."""

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
"""Maximum bytes of an answer to read."""
LONGEST_TOKEN = 128
"""Characters of the longest token in the usual vocabularies (of blanks)."""
_NO_KEY = "none"
"""Placeholder for the key that the client requires; never sent."""


class NoAnswer(Exception):
    """A request without a usable answer; the message says what the server does, in a few words."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status
        """HTTP status of an error, else 0."""


def key_from(variable: str) -> str:
    """The key in an environment variable; empty if it is not set. UserError if it cannot be sent in a header."""
    key = os.environ.get(variable, "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise UserError(f"endpoint: ${variable} holds blanks or characters that a key cannot have")
    return key


def open_client(key: str, timeout: float, tries: int) -> openai.OpenAI:
    """A client that makes each request up to `tries` times; a key that is not empty is sent as a bearer token.

    `timeout` is in seconds, for the server to respond, and again for the last byte of its answer. Redirects are not
    followed: they would send prompts and key elsewhere.
    """
    http = httpx2.Client(
        timeout=timeout,
        headers={"Accept-Encoding": "identity"},
        follow_redirects=False,
        event_hooks={"response": [functools.partial(_bound, seconds=timeout)]},
    )
    return openai.OpenAI(api_key=key or _NO_KEY, timeout=timeout, max_retries=tries - 1, http_client=http)


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
    lacks: str = "is no completion",
) -> Any:
    """The result of `read` on the JSON of the answer.

    `NoAnswer` if there is none, or `read` fails on it (then the message ends with `lacks`).
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
