"""An endpoint that speaks chat completions, as a model that calls tools: it asks, the same tools answer, it is asked again."""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any

from lm_eval.api.instance import Instance

from toolformer.calls import ApiCall, CallSyntaxError, linearise
from toolformer.decoding.call_state import Completion
from toolformer.decoding.chat import WRAPPING, exchange
from toolformer.decoding.endpoint import NO_TEXT, EndpointLM
from toolformer.decoding.offers import Offer, Request, requested
from toolformer.decoding.questions import Question, question_of
from toolformer.decoding.recording import AnswerFile
from toolformer.decoding.settings import Decoding, Endpoint
from toolformer.errors import UserError
from toolformer.lm.text_generator import cut_at
from toolformer.tools.base import Tool, encodable, run_safely

MOST_CHARACTERS = 10_000
"""Of a message."""


class ChatEndpointLM(EndpointLM):
    """lm-eval's view of a served chat model with tools; the other arguments as in `EndpointLM` and `ToolformerLM`.

    Results are cut where the served model's tokenizer is named; what is too long is otherwise the server's affair.

    Args:
        tools: by key; each is asked for one call at a time.
        offers: the same, as the model is offered them.
        decoding: limits of calls.
    """

    def __init__(
        self,
        answers: AnswerFile | str | Path | None = None,
        progress: bool = True,
        *,
        endpoint: Endpoint,
        key: str = "",
        identity: Mapping[str, Any] | None = None,
        tools: Mapping[str, Tool],
        offers: Mapping[str, Offer],
        decoding: Decoding,
        clocks: Collection[str] = (),
        day: datetime.date | None = None,
    ) -> None:
        limits = [decoding.max_calls, decoding.max_call_tokens, decoding.max_result_tokens]
        own = {
            "api": "chat",
            "offers": {name: offer.schema() for name, offer in offers.items()},
            "limits": limits,
        }
        super().__init__(answers, progress, endpoint=endpoint, key=key, identity={**own, **(identity or {})})
        self._tools, self._offers, self._decoding = tools, offers, decoding
        self._locks = {name: Lock() for name in tools}
        self._clocks = frozenset(clocks)
        self._day = (day or datetime.date.today()).isoformat()

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Answers to (prompt, settings), the last message alone. UserError if the server fails; answers so far are kept."""
        questions = [question_of(each, self.switched_off, self._clocks, self._day) for each in requests]
        keys = [self._key("chat", *self._reading, asdict(question)) for question in questions]
        self._ask(keys, questions, self._converse)
        texts: list[str] = []
        for request, key in zip(requests, keys, strict=True):
            completion = Completion.read(self.answers[key])
            tokens = completion.tokens if self._tokenizer else None
            self._record(request, key, completion=completion, tokens=tokens)
            texts.append(completion.plain)
        return texts

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Chat completions give no log-probabilities of a prompt."""
        raise UserError(
            "endpoint.api: chat gives no log-probabilities of texts; use completions for perplexity"
        )

    @staticmethod
    def _is_final(reply: Any) -> bool:
        return not reply["fault"]

    def _converse(self, question: Question) -> dict[str, Any]:
        """One conversation, as a completion's fields."""
        keys = [key for key in self._tools if key not in question.switched_off and self._decoding.max_calls]
        offers = [self._offers[key] for key in keys]
        by_name = {self._tools[key].name: key for key in keys}
        prompt, cut = self._shortened(question, offers)
        messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
        calls: list[ApiCall] = []
        failed, fault = None, False
        while True:
            may_call = bool(offers) and failed is None and len(calls) < self._decoding.max_calls
            text, asked = self._message(
                messages, question, offers if failed is None or calls else [], may_call
            )
            if asked is None:
                break
            try:
                request = requested(*asked, offers)
            except CallSyntaxError as error:
                failed = str(error)
                continue
            key = by_name[request.call.tool]
            with self._locks[key]:
                (result,) = run_safely(self._tools[key], [request.call.input], [question.document()])
            if result.text is None:
                failed, fault = result.reason or "no result", result.fault
                continue
            calls.append(self._answered(request, result.text))
            messages += exchange(request, calls[-1].result or "", len(calls), as_text=True)
        if text is None:
            failed, fault, text = NO_TEXT, True, ""
        plain = cut_at(text, question.stop)
        written = "".join(map(linearise, calls)) + (" " if calls else "") + plain
        tokens = len(self._tokens(written)) if self._tokenizer else 0
        return asdict(Completion(written, plain, tuple(calls), failed, tokens, fault, cut))

    def _message(
        self, messages: list[dict[str, Any]], question: Question, offers: list[Offer], may_call: bool
    ) -> tuple[str | None, tuple[Any, Any] | None]:
        """The model's next message: its text, and the first tool that it asks for, with the arguments."""
        most = question.max_new_tokens
        payload: dict[str, Any] = {"messages": messages, "max_tokens": most}
        if offers:
            payload["tools"] = [offer.schema() for offer in offers]
        if may_call:
            payload["max_tokens"] = max(most, self._decoding.max_call_tokens + WRAPPING)
        if question.stop:
            payload["stop"] = list(question.stop)

        def message(answer: Any) -> tuple[str | None, tuple[Any, Any] | None]:
            given = answer["choices"][0]["message"]
            text, asked = given.get("content"), given.get("tool_calls")
            if text is not None and not isinstance(text, str):
                raise TypeError("a message is no text")
            if asked and may_call:
                function = asked[0]["function"]
                return text, (function["name"], function.get("arguments"))
            return None if text is None else encodable(text[:MOST_CHARACTERS]), None

        text, asked = self._post(payload, message, "is no chat completion")
        if text and asked is None and self._tokenizer:
            text = self._within(text, most)
        return text, asked

    def _answered(self, request: Request, result: str) -> ApiCall:
        call = request.call.with_result(result)
        if self._tokenizer:
            call = call.with_result(self._within(call.result or "", self._decoding.max_result_tokens))
        return call

    def _within(self, text: str, most: int) -> str:
        """As much of a text's beginning as has at most `most` tokens."""
        ids = self._tokens(text)
        return text if len(ids) <= most else str(self._tokenizer.decode(ids[:most])).rstrip("\ufffd")

    def _shortened(self, question: Question, offers: list[Offer]) -> tuple[str, int]:
        """The prompt, cut on its left to leave room for schemas, calls and an answer, and how many tokens it has lost."""
        if self._tokenizer is None:
            return question.prompt, 0
        limits = self._decoding
        schemas = len(self._tokens(json.dumps([offer.schema() for offer in offers]))) if offers else 0
        call = limits.max_call_tokens + limits.max_result_tokens + 2 * WRAPPING
        reserved = question.max_new_tokens + WRAPPING + schemas + (limits.max_calls * call if offers else 0)
        ((prompt, _),) = self._fit([(question.prompt, {"max_gen_toks": reserved})])
        return prompt, len(self._tokens(question.prompt)) - len(self._tokens(prompt))
