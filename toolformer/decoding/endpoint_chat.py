"""A served chat model that calls tools: it writes a call, the same tools answer, it is asked again."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from threading import Lock
from typing import Any

from toolformer.calls import ApiCall, CallSyntaxError
from toolformer.data import Document
from toolformer.decoding.call_state import Completion, execute
from toolformer.decoding.chat import WRAPPING, Talk, converse
from toolformer.decoding.endpoint import NO_TEXT, ServedModel
from toolformer.decoding.offers import Offer, Request, requested
from toolformer.decoding.recording import Question
from toolformer.decoding.settings import Decoding, Endpoint
from toolformer.errors import UserError
from toolformer.tools.base import Result, Tool, encodable

MOST_CHARACTERS = 10_000
"""Of a message; the rest of a longer one is not kept."""


class ServedChat(ServedModel):
    """A served chat model with tools, by key, each of which runs one call at a time.

    Results are cut where the served model's tokenizer is named.

    Args:
        offers: the tools, as the model is offered them.
        decoding: limits of calls.
    """

    def __init__(
        self, endpoint: Endpoint, tools: Mapping[str, Tool], offers: Mapping[str, Offer], decoding: Decoding
    ) -> None:
        super().__init__(endpoint)
        self.tools = tools
        self._offers, self._limits = offers, decoding
        self._locks = {tool.name: Lock() for tool in tools.values()}

    def cache_key(self, question: Question) -> Any:
        """Everything besides the model that decides the answer to a question."""
        limits = [self._limits.max_calls, self._limits.max_call_tokens, self._limits.max_result_tokens]
        offers = {name: offer.schema() for name, offer in self._offers.items()}
        return ["chat", offers, limits, *self.text_settings, asdict(question)]

    def score_texts(self, texts: Sequence[str]) -> list[tuple[float, int]]:
        """Chat completions give no log-probabilities of a prompt."""
        raise UserError("endpoint.api: chat gives no log-probabilities; use completions for perplexity")

    def _cut(self, prompt: str, reserved: int) -> str:
        """As much of a prompt's end as leaves room for schemas, calls and `reserved` tokens, where tokens are known."""
        if self._tokenizer is None:
            return prompt
        call = self._limits.max_call_tokens + self._limits.max_result_tokens + 2 * WRAPPING
        schemas = json.dumps([offer.schema() for offer in self._offers.values()])
        tools = len(self._tokens(schemas)) + self._limits.max_calls * call if self._offers else 0
        return super()._cut(prompt, reserved + WRAPPING + tools)

    def _answer(
        self,
        prompt: str,
        document: Document,
        max_new_tokens: int,
        stop: Sequence[str],
        allowed: Collection[str],
        prompt_cut: int,
    ) -> Completion:
        """One conversation."""
        limits = self._limits
        offers = [offer for key, offer in self._offers.items() if key in allowed and limits.max_calls]
        talk = Talk(prompt, document, offers, limits.max_calls, prompt_cut=prompt_cut)
        converse(
            [talk],
            lambda _: [self._ask(talk, max_new_tokens, stop)],
            self._execute,
            lambda text: self._within(text, limits.max_result_tokens),
            lambda _, request, result: talk.exchange(request, result, json.dumps(request.arguments)),
        )
        completion = talk.completion(stop)
        return replace(completion, tokens=self._count(completion.text))

    def _execute(self, calls: Sequence[tuple[ApiCall, Document]]) -> list[Result]:
        results = []
        for call in calls:
            with self._locks[call[0].tool]:
                results += execute({tool.name: tool for tool in self.tools.values()}, [call])
        return results

    def _ask(self, talk: Talk, max_new_tokens: int, stop: Sequence[str]) -> Request | None:
        """Asks for the model's next message: the first call in it, or None if it is the answer or a call that fails."""
        may_call = talk.may_call
        most = max(max_new_tokens, self._limits.max_call_tokens + WRAPPING) if may_call else max_new_tokens
        messages = [{"role": "user", "content": talk.prompt}, *talk.messages]
        payload: dict[str, Any] = {"messages": messages, "max_tokens": most}
        payload |= {"tools": talk.schemas} if talk.schemas else {}
        payload |= {"stop": list(stop)} if stop else {}

        def message(answer: Any) -> tuple[str | None, tuple[Any, Any] | None]:
            content = answer["choices"][0]["message"]
            text, calls = content.get("content"), content.get("tool_calls")
            if calls and may_call:
                function = calls[0]["function"]
                return None, (function["name"], function.get("arguments"))
            return None if text is None else encodable(text[:MOST_CHARACTERS]), None

        text, call = self._post(payload, message, "is no chat completion")
        if call is not None:
            try:
                return requested(call[0], call[1], talk.offers)
            except CallSyntaxError as error:
                talk.failed = str(error)
        elif text is None:
            talk.failed, talk.fault, talk.answer = NO_TEXT, True, ""
        else:
            talk.answer = self._within(text, max_new_tokens)
        return None

    def _within(self, text: str, most: int) -> str:
        """As much of a text's beginning as has at most `most` tokens, where tokens are known."""
        ids = self._tokens(text) if self._tokenizer else []
        return text if len(ids) <= most else str(self._tokenizer.decode(ids[:most])).rstrip("\ufffd")
