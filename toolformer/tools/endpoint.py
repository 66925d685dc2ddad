"""A language model behind an OpenAI-compatible endpoint, for a tool to write with (a `TextGenerator`).

Requests side by side, each within a time and a size; one that fails is made again after a growing, random pause, and
one that fails for good is a fault with its reason, beside the texts of the others. Knows no tool.
"""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from toolformer.credentials import is_address, is_variable, key_from, shown_address
from toolformer.errors import UserError
from toolformer.tools import event_loop
from toolformer.tools.base import Result

log = logging.getLogger(__name__)

FIRST_WAIT = 0.5
"""Seconds before the second try (and up to as many more at random), doubled with each further one."""
LONGEST_WAIT = 60.0
"""Seconds between two tries at most, whatever the server asks for."""
MOST_IN_VAIN = 3
"""Requests in a row that may fail for good, for reasons of the server's, before those behind them are not made."""
DOWN_SECONDS = 30.0
"""For how long none is made then; the first that fails afterwards begins the next pause."""
MOST_BYTES = 1 << 20
"""Bytes of an answer at most; a longer one is a fault."""
_PASSING = {408, 409, 425, 429}
"""Statuses, beside those from 500 up, after which another try may do."""


class EndpointGenerator:
    """Greedy continuations by a served model.

    An address that ends in `/chat/completions` gets each prompt as one message of the user, any other the bare prompt.
    `request` adds fields to what is sent, or with null takes them out. The key is read from the environment at each
    batch, and kept nowhere.
    """

    elsewhere = True

    def __init__(
        self,
        url: str | None = None,
        model: str | None = None,
        key_variable: str = "OPENAI_API_KEY",
        concurrency: int = 4,
        timeout: float = 60.0,
        tries: int = 5,
        request: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Args:
            url: the whole address, such as http://127.0.0.1:8000/v1/completions.
            model: the model's name there.
            key_variable: the environment variable that holds the key; where it is not set, none is sent.
            concurrency: requests under way at once.
            timeout: seconds a request may take, from connecting to the last byte.
            tries: how often a request is made.

        Raises:
            ValueError: an argument with which nothing could be asked.
        """
        if not url or not model:
            raise ValueError(
                "url and model are missing; name the server, http://.../v1/completions, and its model"
            )
        if not is_address(url) or "@" in url.split("/")[2]:
            raise ValueError("url must begin with http:// or https:// and hold no user name and no password")
        if not is_variable(key_variable):
            raise ValueError("key_variable must be the name of an environment variable, not the key itself")
        for name, value in (("concurrency", concurrency), ("timeout", timeout), ("tries", tries)):
            if not 0 < value < float("inf") or (name != "timeout" and value != int(value)):
                raise ValueError(f"{name} is {value}; it must be a number above 0")
        self.url = url
        self.model = model
        self.key_variable = key_variable
        self.concurrency = concurrency
        self.timeout = timeout
        self.tries = tries
        self.request = dict(request or {})
        self.chat = url.partition("?")[0].rstrip("/").endswith("/chat/completions")
        self._server = _Server(concurrency)

    def __call__(
        self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()
    ) -> list[str | Result]:
        """See `TextGenerator`; an equal prompt is asked once."""
        try:
            key = key_from(self.key_variable)
        except ValueError as error:
            raise UserError(f"key of {shown_address(self.url)}: {error}") from None
        distinct = list(dict.fromkeys(prompts))
        answers = dict(
            zip(
                distinct,
                event_loop.SERVERS.run(_Batch(self, key, max_new_tokens, stop).ask(distinct)),
                strict=True,
            )
        )
        faults = [answer.reason for answer in answers.values() if isinstance(answer, Result)]
        if faults:
            place = shown_address(self.url)
            log.warning(
                "%s: %d of %d requests failed, the last: %s", place, len(faults), len(answers), faults[-1]
            )
        return [answers[prompt] for prompt in prompts]


class _Failed(Exception):
    """Why a request has no answer: whether another try may do, whether any other request would fare the same, and how
    many seconds the server wants to be left alone."""

    def __init__(self, reason: str, again: bool = True, alike: bool = True, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.again, self.alike, self.seconds = reason, again, alike, seconds


class _Server:
    """What all batches of a generator know of its server, whichever threads they come from.

    Used by the event loop's thread only.
    """

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self._in_vain = 0
        """Requests in a row that failed for good, and not because of their prompts."""
        self._down_until = 0.0
        self._room: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    @property
    def room(self) -> asyncio.Semaphore:
        """Places for requests under way; a child process has a loop, and so places, of its own."""
        loop = asyncio.get_running_loop()
        if self._room is None or self._room[0] is not loop:
            self._room = loop, asyncio.Semaphore(self.concurrency)
        return self._room[1]

    @property
    def is_down(self) -> bool:
        return self._in_vain >= MOST_IN_VAIN and time.monotonic() < self._down_until

    def failed(self) -> None:
        self._in_vain += 1
        self._down_until = time.monotonic() + DOWN_SECONDS

    def answered(self) -> None:
        self._in_vain = 0


class _Batch:
    """The requests of one call of a generator."""

    def __init__(self, to: EndpointGenerator, key: str, max_new_tokens: int, stop: Sequence[str]) -> None:
        self.to = to
        self.server = to._server
        self.stop = list(stop)
        self.headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"
        self.fields = {
            "model": to.model,
            "max_tokens": max_new_tokens,
            "temperature": 0,
            "stop": self.stop or None,
        }

    async def ask(self, prompts: Sequence[str]) -> list[str | Result]:
        """A text or a fault for each."""
        timeout = aiohttp.ClientTimeout(total=self.to.timeout)
        connector = aiohttp.TCPConnector(limit=self.to.concurrency)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=self.headers, auto_decompress=False
        ) as session:

            async def one(prompt: str) -> str | Result:
                async with self.server.room:
                    return await self._answer(session, prompt)

            return list(await asyncio.gather(*map(one, prompts)))

    async def _answer(self, session: aiohttp.ClientSession, prompt: str) -> str | Result:
        if self.server.is_down:
            # It would otherwise cost every prompt of a run all its tries.
            return Result(reason="endpoint is down (not asked)", fault=True, final=True)
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.to.tries),
            wait=_wait,
            retry=retry_if_exception(lambda error: isinstance(error, _Failed) and error.again),
            reraise=True,
        )
        try:
            text: str = await retrying(self._once, session, prompt)
        except _Failed as error:
            if error.alike:
                self.server.failed()
            return Result(reason=error.reason, fault=True)
        self.server.answered()
        return text

    async def _once(self, session: aiohttp.ClientSession, prompt: str) -> str:
        clean = prompt.encode("utf-8", "replace").decode("utf-8")
        asked = {"messages": [{"role": "user", "content": clean}]} if self.to.chat else {"prompt": clean}
        sent = {**asked, **self.fields, **self.to.request}
        payload = {name: value for name, value in sent.items() if value is not None}
        try:
            # A redirect would take the key elsewhere.
            async with session.post(self.to.url, json=payload, allow_redirects=False) as response:
                if response.status != 200:
                    raise _refused(response.status, response.headers.get("Retry-After"))
                body = b""
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > MOST_BYTES:
                        raise _Failed("endpoint's answer is too long", again=False, alike=False)
        except TimeoutError:
            raise _Failed(f"endpoint does not answer within {self.to.timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            # Without its text and its cause: they may hold the request's headers.
            raise _Failed(f"endpoint does not answer ({type(error).__name__})") from None
        return self._text(body)

    def _text(self, body: bytes) -> str:
        """The text of an answer, cut before the first stop text."""
        try:
            choice = json.loads(body)["choices"][0]
            text = choice["message"]["content"] if self.to.chat else choice["text"]
            if text is None and self.to.chat:  # a refusal
                text = ""
            text = text.encode("utf-8", "replace").decode("utf-8")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise _Failed("endpoint's answer is no completion") from None
        return str(text[: min([text.find(end) for end in self.stop if end in text], default=len(text))])


def _refused(status: int, retry_after: str | None) -> _Failed:
    if status in (401, 403):
        return _Failed(f"endpoint refuses the key (HTTP {status})", again=False)
    if status == 404:
        return _Failed("endpoint has no such address or model (HTTP 404)", again=False)
    if status == 429:
        return _Failed("endpoint limits its rate (HTTP 429)", seconds=_seconds(retry_after))
    if status in _PASSING or status >= 500:
        return _Failed(f"endpoint fails (HTTP {status})", seconds=_seconds(retry_after))
    return _Failed(f"endpoint refuses the request (HTTP {status})", again=False, alike=False)


def _seconds(retry_after: str | None) -> float:
    """What a Retry-After header asks for: seconds, or a date."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        when = email.utils.parsedate_to_datetime(text)
        return max(0.0, when.timestamp() - datetime.datetime.now().timestamp())
    except (ValueError, TypeError, OverflowError):
        return 0.0


_growing = wait_exponential(FIRST_WAIT, LONGEST_WAIT) + wait_random(0, FIRST_WAIT)


def _wait(state: RetryCallState) -> float:
    """Seconds before the next try: what the server asks for if that is longer, within reason."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.seconds if isinstance(error, _Failed) else 0.0
    return min(LONGEST_WAIT, max(asked, float(_growing(state))))
