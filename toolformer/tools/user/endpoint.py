"""A language model behind an OpenAI-compatible endpoint, for a tool to write with (a `TextGenerator`)."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from toolformer.credentials import is_address, is_variable, key_from, shown_address
from toolformer.errors import UserError
from toolformer.lm.text_generator import cut_at
from toolformer.tools.base import Result, encodable
from toolformer.tools.threads import Threads

if TYPE_CHECKING:
    import httpx2
    from openai import OpenAI

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 20
"""Bytes of an answer that are read."""
_NO_KEY = "none"
"""In place of a key, which the client insists on; it is not sent."""


@dataclass(frozen=True)
class EndpointGenerator:
    """Greedy continuations by a served model.

    Requests run side by side and are repeated as the `openai` client does it; one that fails for good is a fault beside
    the texts of the others. An address that ends in `/chat/completions` gets each prompt as one message of the user, any
    other the bare prompt. The key is read from the environment at each batch, and kept nowhere. Redirects are not
    followed: they would take the key elsewhere.

    Raises:
        ValueError: an argument with which nothing could be asked.
    """

    url: str = ""
    """The whole address, such as http://127.0.0.1:8000/v1/completions."""
    model: str = ""
    """The model's name there."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; where it is not set, none is sent."""
    concurrency: int = 4
    """Requests at once, in each batch."""
    timeout: float = 60.0
    """Seconds to wait for the server, and again for its answer's last byte."""
    tries: int = 5
    """How often a request is made."""
    request: Mapping[str, Any] | None = None
    """Fields to add to what is sent, or with None to take out."""

    elsewhere: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.url or not self.model:
            raise ValueError(
                "url and model are missing; name the server, http://.../v1/completions, and its model"
            )
        if not is_address(self.url) or "@" in self.url.split("/")[2]:
            raise ValueError("url must begin with http:// or https:// and hold no user name and no password")
        if not is_variable(self.key_variable):
            raise ValueError("key_variable must be the name of an environment variable, not the key itself")
        for name in ("concurrency", "timeout", "tries"):
            value = getattr(self, name)
            if not 0 < value < float("inf") or (name != "timeout" and value != int(value)):
                raise ValueError(f"{name} is {value}; it must be a number above 0")

    def __call__(
        self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()
    ) -> list[str | Result]:
        """See `TextGenerator`; an equal prompt is asked once."""
        distinct = list(dict.fromkeys(prompts))
        with self._client() as client:
            jobs = [functools.partial(self._ask, client, text, max_new_tokens, stop) for text in distinct]
            answers = dict(zip(distinct, Threads(self.concurrency).run(jobs), strict=True))
        faults = [answer.reason for answer in answers.values() if isinstance(answer, Result)]
        if faults:
            log.warning(
                "%s: %d of %d requests failed, the last: %s",
                *(shown_address(self.url), len(faults), len(answers), faults[-1]),
            )
        return [cast(str | Result, answers[prompt]) for prompt in prompts]  # none is late without a limit

    def _client(self) -> OpenAI:
        import httpx2
        import openai

        try:
            key = key_from(self.key_variable)
        except ValueError as error:
            raise UserError(f"key of {shown_address(self.url)}: {error}") from None
        http = httpx2.Client(
            timeout=self.timeout,
            headers={"Accept-Encoding": "identity"},
            follow_redirects=False,
            trust_env=False,
            event_hooks={"response": [functools.partial(_bound, seconds=self.timeout)]},
        )
        return openai.OpenAI(
            api_key=key or _NO_KEY,
            http_client=http,
            timeout=self.timeout,
            max_retries=self.tries - 1,
        )

    def _ask(self, client: OpenAI, prompt: str, max_new_tokens: int, stop: Sequence[str]) -> str | Result:
        import httpx2
        import openai

        text = encodable(prompt)
        is_chat = self.url.partition("?")[0].rstrip("/").endswith("/chat/completions")
        fields = {
            **({"messages": [{"role": "user", "content": text}]} if is_chat else {"prompt": text}),
            "model": self.model,
            "max_tokens": max_new_tokens,
            "temperature": 0,
            "stop": list(stop) or None,
            **(self.request or {}),
        }
        body = {name: value for name, value in fields.items() if value is not None}
        options: Any = {"headers": {"Authorization": openai.Omit()}} if client.api_key == _NO_KEY else {}
        try:
            answer = client.post(self.url, body=body, cast_to=httpx2.Response, options=options)
            choice = json.loads(answer.content)["choices"][0]
            written = (choice["message"]["content"] or "") if is_chat else choice["text"]
            return cut_at(encodable(written), stop)
        except openai.APITimeoutError:
            reason = f"endpoint does not answer within {self.timeout:g} s"
        except openai.APIConnectionError as error:
            # Without its text: it may hold the request's headers.
            reason = f"endpoint does not answer ({type(error.__cause__ or error).__name__})"
        except openai.APIStatusError as error:
            reason = f"endpoint answers HTTP {error.status_code}"
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            reason = "endpoint's answer is no completion"
        return Result(reason=reason, fault=True)


def _bound(response: httpx2.Response, seconds: float) -> None:
    """Reads no more of an answer than `MOST_BYTES`, nor for longer than `seconds`: a server may go on for ever."""
    import httpx2

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
