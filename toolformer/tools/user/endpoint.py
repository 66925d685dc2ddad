"""A `TextGenerator` for tools: a language model served by an OpenAI-compatible endpoint."""

import functools
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

import openai

from toolformer.credentials import is_address, is_variable, shown_address
from toolformer.lm.endpoint import LONGEST_TOKEN, NoAnswer, key_from, open_client, post
from toolformer.lm.stop import cut_at
from toolformer.step import NOTHING, Server
from toolformer.tools.base import Part, Result, encodable
from toolformer.tools.threads import Threads

log = logging.getLogger(__name__)

_NAMES = r"(?:\w+:)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection|scratch_?pad)"
_OPENS = (
    rf"<{_NAMES}>|<\|(?:begin_(?:of_)?|start_)?{_NAMES}\|>|\[THINK\]|◁think▷|<\|channel\|>analysis|<unused94>"
)
_MENTION = re.compile(_OPENS, re.IGNORECASE)
_THOUGHT = re.compile(rf"^[ \t]*(?:{_OPENS})|(?-i:\Aanalysis(?=[A-Z]))", re.IGNORECASE | re.MULTILINE)
"""A mark opens a thought at the beginning of a line; elsewhere it is only mentioned. Some servers leave only the words of GPT-OSS's marks."""
_THOUGHT_END = re.compile(
    rf"</{_NAMES}>|<\|(?:end_(?:of_)?|/){_NAMES}\|>|\[/THINK\]|◁/think▷|<\|channel\|>final<\|message\|>|<unused95>"
    r"|(?-i:\Aanalysis(?=[A-Z])(?s:.*?)assistantfinal)",
    re.IGNORECASE,
)
"""Closing mark of a thought, where a server does not remove thoughts from the text."""
_ANSWER = r"(?:answer|solution|response|output)"
_WRAPPING = re.compile(
    rf"^\s*(?:<{_ANSWER}>|<\|(?:begin|start)_(?:of_)?{_ANSWER}\|>)|(?:</{_ANSWER}>|<\|end_(?:of_)?{_ANSWER}\|>)\s*$",
    re.IGNORECASE,
)
"""The marks around the answer, after a thought."""
_REMEDY = (
    "turn its thinking off, request='{chat_template_kwargs: {enable_thinking: false}}', or give it more tokens, "
    "request='{max_tokens: 2048}'"
)


@dataclass(frozen=True)
class EndpointGenerator(Part):
    """Greedy continuations by a served model.

    Requests run in parallel; a request that fails for good is a fault and does not affect the others. An address that ends
    in `/chat/completions` gets each prompt as a user message, any other the plain prompt. The key is read from the
    environment for each batch and never stored. ValueError for invalid arguments.
    """

    url: Annotated[str, Server()] = ""
    """The whole address, such as http://127.0.0.1:8000/v1/completions."""
    model: str = ""
    """The model's name on the server."""
    key_variable: Annotated[str, NOTHING] = "OPENAI_API_KEY"
    """The environment variable with the key; if it is not set, no key is sent."""
    concurrency: Annotated[int, NOTHING] = 4
    """Parallel requests per batch."""
    timeout: Annotated[float, NOTHING] = 60.0
    """Seconds to wait for the server."""
    tries: Annotated[int, NOTHING] = 5
    """Attempts per request."""
    request: Mapping[str, Any] | None = None
    """Fields to add to a request, or to remove (None)."""

    VERSION = 2
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

    @classmethod
    def describe(cls, settings: Mapping[str, Any]) -> str:
        """See `Part`."""
        return f"{settings.get('model')} behind an endpoint"

    def __call__(
        self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()
    ) -> list[str | Result]:
        """See `TextGenerator`; equal prompts are sent once."""
        distinct = list(dict.fromkeys(prompts))
        with open_client(key_from(self.key_variable), self.timeout, self.tries) as client:
            jobs = [functools.partial(self._ask, client, text, max_new_tokens, stop) for text in distinct]
            answers = dict(zip(distinct, Threads(self.concurrency).run(jobs), strict=True))
        faults = [answer for answer in answers.values() if isinstance(answer, NoAnswer)]
        if faults:
            log.warning(
                "%s: %d of %d requests failed, the last: %s",
                *(shown_address(self.url), len(faults), len(answers), faults[-1].described()),
            )
        results: dict[str, str | Result] = {
            prompt: Result(reason=f"endpoint {answer}", fault=True)
            if isinstance(answer, NoAnswer)
            else cast(str, answer)  # none is late without a limit
            for prompt, answer in answers.items()
        }
        return [results[prompt] for prompt in prompts]

    def _ask(
        self, client: openai.OpenAI, prompt: str, max_new_tokens: int, stop: Sequence[str]
    ) -> str | NoAnswer:
        text = encodable(prompt)
        is_chat = self.url.partition("?")[0].rstrip("/").endswith("/chat/completions")
        fields = {
            **({"messages": [{"role": "user", "content": text}]} if is_chat else {"prompt": text}),
            "model": self.model,
            "max_tokens": max_new_tokens,
            "temperature": 0,
            # A chat model may begin with an empty line, or with a thought of several lines: its text is cut here.
            "stop": None if is_chat else list(stop) or None,
            **(self.request or {}),
        }
        body = {name: value for name, value in fields.items() if value is not None}

        def written(answer: Any) -> str:
            return encodable(answer_text(answer["choices"][0], is_chat))[: LONGEST_TOKEN * max_new_tokens]

        try:
            return cut_at(post(client, self.url, body, written), stop)
        except NoAnswer as error:
            return error


def answer_text(choice: Mapping[str, Any], is_chat: bool) -> str:
    """The text of a completion, without what a model that thinks wrote before it.

    `NoAnswer` if the model was still thinking at the limit of tokens, had written nothing by then, or refuses, also by a filter.
    """
    thought = ""
    refusal = False
    if is_chat:
        message = choice["message"]
        thought = message.get("reasoning_content") or message.get("reasoning") or ""
        text, refusal = message["content"] or "", bool(message.get("refusal"))
        if not isinstance(text, str):  # in parts
            refusal = refusal or any(part.get("type") == "refusal" for part in text)
            text = "".join(part["text"] for part in text if part.get("type") == "text")
    else:
        text = choice["text"]
    if refusal or choice.get("finish_reason") == "content_filter":
        raise NoAnswer("refuses to answer")
    before, text = text[: (end := _thought_end(text))], text[end:]
    is_thinking = _THOUGHT.search(text) is not None
    if is_thinking or not text.strip() and (thought or before):
        raise NoAnswer("is still thinking at the limit of tokens", detail=_REMEDY)
    if not text.strip() and choice.get("finish_reason") == "length":
        raise NoAnswer("writes nothing up to the limit of tokens")
    if not text.strip() and choice.get("finish_reason") in ("tool_calls", "function_call"):
        raise NoAnswer("calls a function in place of an answer")
    text = _WRAPPING.sub("", text) if before else text
    return text.lstrip() if is_chat or before else text


def _thought_end(text: str) -> int:
    """Where the last thought of a text ends; 0 if it has none. Some servers leave out the mark that opens it."""
    end = max((mark.end() for mark in _THOUGHT_END.finditer(text)), default=0)
    is_mentioned = _MENTION.search(text, 0, end) and not _THOUGHT.search(text, 0, end)
    return 0 if is_mentioned else end
