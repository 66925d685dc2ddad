"""A `TextGenerator` for tools: a language model served by an OpenAI-compatible endpoint."""

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import openai

from toolformer.credentials import is_address, is_variable, shown_address
from toolformer.lm.endpoint import LONGEST_TOKEN, NoAnswer, key_from, open_client, post
from toolformer.lm.stop import cut_at
from toolformer.tools.base import Part, Result, encodable
from toolformer.tools.threads import Threads

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EndpointGenerator(Part):
    """Greedy continuations by a served model.

    Requests run in parallel; a request that fails for good is a fault and does not affect the others. An address that ends
    in `/chat/completions` gets each prompt as a user message, any other the plain prompt. The key is read from the
    environment for each batch and never stored. ValueError for invalid arguments.
    """

    url: str = ""
    """The whole address, such as http://127.0.0.1:8000/v1/completions."""
    model: str = ""
    """The model's name on the server."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable with the key; if it is not set, no key is sent."""
    concurrency: int = 4
    """Parallel requests per batch."""
    timeout: float = 60.0
    """Seconds to wait for the server."""
    tries: int = 5
    """Attempts per request."""
    request: Mapping[str, Any] | None = None
    """Fields to add to a request, or to remove (None)."""

    VERSION = 1
    is_remote = True

    def __post_init__(self) -> None:
        if not self.url or not self.model:
            raise ValueError(
                "url and model are missing; name the server, http://.../v1/completions, and its model"
            )
        if not is_address(self.url):
            raise ValueError("url must begin with http:// or https:// and hold no user name and no password")
        if not is_variable(self.key_variable):
            raise ValueError(
                "key_variable must be the name of an environment variable in capitals, not the key itself"
            )
        for name in ("concurrency", "timeout", "tries"):
            value = getattr(self, name)
            if not 0 < value < float("inf") or (name != "timeout" and value != int(value)):
                raise ValueError(f"{name} is {value}; it must be a number above 0")

    def __call__(
        self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()
    ) -> list[str | Result]:
        """See `TextGenerator`; equal prompts are sent once."""
        distinct = list(dict.fromkeys(prompts))
        with open_client(key_from(self.key_variable), self.timeout, self.tries) as client:
            jobs = [functools.partial(self._ask, client, text, max_new_tokens, stop) for text in distinct]
            answers = dict(zip(distinct, Threads(self.concurrency).run(jobs), strict=True))
        faults = [answer.reason for answer in answers.values() if isinstance(answer, Result)]
        if faults:
            log.warning(
                "%s: %d of %d requests failed, the last: %s",
                *(shown_address(self.url), len(faults), len(answers), faults[-1]),
            )
        return [cast(str | Result, answers[prompt]) for prompt in prompts]  # none is late without a limit

    def _ask(
        self, client: openai.OpenAI, prompt: str, max_new_tokens: int, stop: Sequence[str]
    ) -> str | Result:
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

        def written(answer: Any) -> str:
            choice = answer["choices"][0]
            text = (choice["message"]["content"] or "") if is_chat else choice["text"]
            return encodable(text)[: LONGEST_TOKEN * max_new_tokens]

        try:
            return cut_at(post(client, self.url, body, written), stop)
        except NoAnswer as error:
            return Result(reason=f"endpoint {error}", fault=True)
