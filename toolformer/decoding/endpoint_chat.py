"""An endpoint that speaks chat completions, as a model that calls tools: it asks, the same tools answer, it is asked again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from threading import Lock
from typing import Any

from lm_eval.api.instance import Instance

from toolformer.calls import CallSyntaxError
from toolformer.decoding.call_state import Completion
from toolformer.decoding.chat import WRAPPING, Talk
from toolformer.decoding.endpoint import NO_TEXT, EndpointLM
from toolformer.decoding.offers import Offer, requested
from toolformer.decoding.recording import AnswerFile, Question
from toolformer.decoding.settings import Decoding
from toolformer.errors import UserError
from toolformer.tools.base import Tool, encodable, run_safely

MOST_CHARACTERS = 10_000
"""Of a message; what a server writes beyond is not kept."""


class ChatEndpointLM(EndpointLM):
    """lm-eval's view of a served chat model with tools; the other arguments as in `EndpointLM`.

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
        identity: Mapping[str, Any] | None = None,
        tools: Mapping[str, Tool],
        offers: Mapping[str, Offer],
        decoding: Decoding,
        **served: Any,
    ) -> None:
        limits = [decoding.max_calls, decoding.max_call_tokens, decoding.max_result_tokens]
        own = {
            "api": "chat",
            "offers": {name: offer.schema() for name, offer in offers.items()},
            "limits": limits,
        }
        super().__init__(answers, progress, identity={**own, **(identity or {})}, **served)
        self._tools, self._offers, self._decoding = tools, offers, decoding
        self._locks = {name: Lock() for name in tools}

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Answers to (prompt, settings), the last message alone. UserError if the server fails; answers so far are kept."""
        questions = [self._question(request) for request in requests]
        keys = [self._key("chat", *self._reading, asdict(question)) for question in questions]
        self._ask(keys, questions, self._converse, lambda reply: not reply["fault"])
        completions = [Completion.read(self.answers[key]) for key in keys]
        for request, key, completion in zip(requests, keys, completions, strict=True):
            tokens = completion.tokens if self._tokenizer else None
            self._record(request, key, completion=completion, tokens=tokens)
        return [completion.plain for completion in completions]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Chat completions give no log-probabilities of a prompt."""
        raise UserError("endpoint.api: chat gives no log-probabilities; use completions for perplexity")

    def _converse(self, question: Question) -> dict[str, Any]:
        """One conversation, as a completion's fields."""
        limits = self._decoding
        keys = [key for key in self._tools if key not in question.switched_off and limits.max_calls]
        by_name = {self._tools[key].name: key for key in keys}
        offers = [self._offers[key] for key in keys]
        prompt, cut = self._shortened(question, offers)
        talk = Talk(prompt, question.document(), offers, limits.max_calls, prompt_cut=cut)
        while talk.answer is None:
            asked = self._message(talk, question)
            if asked is None:
                continue
            try:
                request = requested(*asked, offers)
            except CallSyntaxError as error:
                talk.failed = str(error)
                continue
            key = by_name[request.call.tool]
            with self._locks[key]:
                (result,) = run_safely(self._tools[key], [request.call.input], [talk.document])
            text = talk.take(request, result, lambda text: self._within(text, limits.max_result_tokens))
            if text is not None:
                talk.exchange(request, text, json.dumps(request.arguments))
        completion = talk.completion(question.stop)
        tokens = len(self._tokens(completion.text)) if self._tokenizer else 0
        return asdict(replace(completion, tokens=tokens))

    def _message(self, talk: Talk, question: Question) -> tuple[Any, Any] | None:
        """The model's next message: the first tool that it asks for, with the arguments, or else its answer."""
        most, may_call = question.max_new_tokens, talk.may_call
        messages = [{"role": "user", "content": talk.prompt}, *talk.messages]
        payload: dict[str, Any] = {"messages": messages, "max_tokens": most}
        if schemas := talk.schemas:
            payload["tools"] = schemas
        if may_call:
            payload["max_tokens"] = max(most, self._decoding.max_call_tokens + WRAPPING)
        if question.stop:
            payload["stop"] = list(question.stop)

        def message(answer: Any) -> tuple[str | None, tuple[Any, Any] | None]:
            given = answer["choices"][0]["message"]
            text, asked = given.get("content"), given.get("tool_calls")
            if asked and may_call:
                function = asked[0]["function"]
                return None, (function["name"], function.get("arguments"))
            return None if text is None else encodable(text[:MOST_CHARACTERS]), None

        text, asked = self._post(payload, message, "is no chat completion")
        if asked is None and text is None:
            talk.failed, talk.fault, talk.answer = NO_TEXT, True, ""
        elif asked is None:
            talk.answer = self._within(text, most)
        return asked  # type: ignore[no-any-return]

    def _within(self, text: str, most: int) -> str:
        """As much of a text's beginning as has at most `most` tokens, where tokens are known."""
        ids = self._tokens(text) if self._tokenizer else []
        return text if len(ids) <= most else str(self._tokenizer.decode(ids[:most])).rstrip("\ufffd")

    def _shortened(self, question: Question, offers: Sequence[Offer]) -> tuple[str, int]:
        """The prompt, cut on its left to leave room for schemas, calls and an answer, and how many tokens it has lost."""
        if self._tokenizer is None:
            return question.prompt, 0
        limits = self._decoding
        schemas = len(self._tokens(json.dumps([offer.schema() for offer in offers]))) if offers else 0
        call = limits.max_call_tokens + limits.max_result_tokens + 2 * WRAPPING
        reserved = question.max_new_tokens + WRAPPING + schemas + (limits.max_calls * call if offers else 0)
        ((prompt, _),) = self._fit([(question.prompt, {"max_gen_toks": reserved})])
        return prompt, len(self._tokens(question.prompt)) - len(self._tokens(prompt))
