"""A model served by any OpenAI-compatible endpoint, by completions, or by chat completions with tools.

Prompts are sent as text, cut on their left where the server's tokenizer is named and they are too long for it; texts are
scored as tokens, for which it has to be named. The key is never shown.

lm-eval's own `local-completions` is not used: it logs what a server answers, which may hold the key, follows redirects with
prompt and key, reads answers of any length for any time, and keeps nothing of a run that is interrupted.
"""

import bisect
import json
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, replace
from threading import Lock
from typing import Any

from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from toolformer.calls import CallSyntaxError
from toolformer.credentials import shown_address, without_credentials
from toolformer.decoding.call_state import PendingCall, execute
from toolformer.decoding.chat import WRAPPING, Talk, converse
from toolformer.decoding.completion import Completer, Completion, Task
from toolformer.decoding.offers import Offer, Request, requested
from toolformer.decoding.recording import Question
from toolformer.decoding.settings import Decoding, Endpoint
from toolformer.errors import UserError
from toolformer.lm.endpoint import LONGEST_TOKEN, NoAnswer, key_from, open_client, post
from toolformer.lm.loading import load_tokenizer
from toolformer.tools.base import Result, Tool, encodable

log = logging.getLogger(__name__)

SEED = 1234
"""Sent with every request, as lm-eval does."""
NO_TEXT = "endpoint gave no text"
_ADVICE = {
    0: "start the server, or check the address",
    **dict.fromkeys((301, 302, 303, 307, 308), "it redirects elsewhere: name the address that answers"),
    **dict.fromkeys(
        (400, 413, 422),
        "most often for a prompt that is too long; name endpoint.tokenizer and lower endpoint.max_length",
    ),
    **dict.fromkeys((401, 403), "set the variable that endpoint.key_variable names to a valid key"),
    404: "check the address (…/v1/completions, …/v1/chat/completions with endpoint.api=chat) and endpoint.model",
}
"""By HTTP status; 0 is for no answer, or an unusable one."""


class ServedModel(Completer[Completion]):
    """Completes prompts and scores texts by requests, several at once.

    UserError if the tokenizer cannot be loaded, or the key is not valid; in use, if the server fails.

    Args:
        tools: by key, for `endpoint.api=chat`; each runs one call at a time.
        offers: the tools, as the model is offered them.
        limits: of calls; results are cut where the served model's tokenizer is named.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        tools: Mapping[str, Tool] | None = None,
        offers: Mapping[str, Offer] | None = None,
        limits: Decoding | None = None,
    ) -> None:
        self.endpoint, self.tools = endpoint, tools or {}
        self._offers, self._limits = offers or {}, limits or Decoding()
        self._is_chat = endpoint.api == "chat"
        self._url = str(endpoint.url)
        self._locks = {tool.name: Lock() for tool in self.tools.values()}
        try:
            self._tokenizer: Any = load_tokenizer(endpoint.tokenizer) if endpoint.tokenizer else None
        except UserError as error:
            raise UserError(f"endpoint.tokenizer: {str(error).removeprefix('model: ')}") from error
        self._client = open_client(key_from(endpoint.key_variable), endpoint.timeout, endpoint.tries)

    @property
    def identity(self) -> dict[str, Any]:
        """The model, as part of the keys of all answers."""
        return {"endpoint": without_credentials(self._url), "model": str(self.endpoint.model)}

    @property
    def text_settings(self) -> Any:
        """The tokens decide a score, and the windows that they are read in."""
        return self.endpoint.tokenizer, self.endpoint.max_length

    def cache_key(self, question: Question) -> Any:
        """Everything besides the model that decides the answer to a question: without tools, the request alone."""
        if not self._is_chat:
            prompt = self._cut(question.prompt, question.max_new_tokens)
            return ["completions", prompt, question.max_new_tokens, question.stop]
        limits = [self._limits.max_calls, self._limits.max_call_tokens, self._limits.max_result_tokens]
        offers = {key: offer.schema() for key, offer in self._offers.items()}
        return ["chat", offers, limits, self.text_settings, asdict(question)]

    def batches(self, task: Task) -> Generator[dict[int, Completion], None, None]:
        """See `Completer.complete`. When the server fails, answers that are under way are waited for."""
        pool = ThreadPoolExecutor(self.endpoint.concurrency)
        left = {pool.submit(self._answer, task, n): n for n in range(len(task.prompts))}
        cut = 0
        try:
            for future in as_completed(list(left)):
                completion = future.result()
                cut += completion.prompt_cut > 0
                yield {left.pop(future): completion}
        except UserError:
            pool.shutdown(cancel_futures=True)
            kept = [future for future in left if not future.cancelled() and not future.exception()]
            yield {left[future]: future.result() for future in kept}
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        if cut:
            log.warning(
                f"endpoint: {cut} of {len(task.prompts)} prompts are longer than endpoint.max_length="
                f"{self.endpoint.max_length} leaves room for: cut on their left"
            )

    def _answer(self, task: Task, n: int) -> Completion:
        """The answer to one prompt."""
        limits = self._limits
        offers = [self._offers[key] for key in task.keys(self.tools) if limits.max_calls]
        prompt, cut = task.prompts[n], 0
        if (sent := self._cut(prompt, task.max_new_tokens, offers)) != prompt:
            cut = len(self._tokens(prompt)) - len(self._tokens(sent))
        talk = Talk(sent, task.documents[n], offers, limits.max_calls, prompt_cut=cut)
        converse(
            [talk],
            lambda _: [self._ask(talk, task)],
            self._execute,
            lambda text: self._within(text, limits.max_result_tokens),
            lambda _, request, result: talk.exchange(request, result, json.dumps(request.arguments)),
        )
        completion = talk.completion(task.stop)
        tokens = len(self._tokens(completion.text)) if self._tokenizer else None
        return replace(completion, tokens=tokens)

    def _ask(self, talk: Talk, task: Task) -> Request | None:
        """Asks for what follows in a conversation: a call, or None if it is the answer or a call that fails."""
        may_call, most = talk.may_call, task.max_new_tokens
        if may_call:
            most = max(most, self._limits.max_call_tokens + WRAPPING)
        messages = [{"role": "user", "content": talk.prompt}, *talk.messages]
        sent = {"messages": messages} if self._is_chat else {"prompt": talk.prompt}
        payload: dict[str, Any] = {"max_tokens": most, **sent}
        payload |= {"tools": talk.schemas} if talk.schemas else {}
        payload |= {"stop": list(task.stop)} if task.stop else {}  # some servers refuse an empty list

        def read(answer: Any) -> tuple[str | None, Any]:
            choice = answer["choices"][0]
            text = choice["message"].get("content") if self._is_chat else choice["text"]
            if may_call and (calls := choice["message"].get("tool_calls")):
                return None, (calls[0]["function"]["name"], calls[0]["function"].get("arguments"))
            # A server may ignore the limit; no text of that many tokens is longer than this.
            return None if text is None else encodable(text[: LONGEST_TOKEN * most]), None

        text, call = self._post(payload, read, f"is no {'chat ' if self._is_chat else ''}completion")
        if call:
            try:
                return requested(call[0], call[1], talk.offers)
            except CallSyntaxError as error:
                talk.failed = str(error)
        elif text is None:
            talk.failed, talk.fault, talk.answer = NO_TEXT, True, ""
        else:
            talk.answer = self._within(text, task.max_new_tokens) if self._is_chat else text
        return None

    def _execute(self, calls: Sequence[PendingCall]) -> list[Result]:
        results = []
        for call in calls:
            with self._locks[call.call.tool]:
                results += execute({tool.name: tool for tool in self.tools.values()}, [call])
        return results

    def score_texts(self, texts: Sequence[str]) -> list[tuple[float, int]]:
        """(log p of the whole text in nats, over lm-eval's windows, and its number of tokens) of each text.

        UserError without a tokenizer, or log-probabilities from the server.
        """
        if self._is_chat:
            raise UserError("endpoint.api: chat gives no log-probabilities; use completions for perplexity")
        if self._tokenizer is None:
            raise UserError(
                "endpoint.tokenizer: texts can be scored only with the served model's tokenizer; name a folder or a "
                "hub model"
            )
        encoded = [self._tokens(text) for text in texts]
        with ThreadPoolExecutor(self.endpoint.concurrency) as pool:
            return [(sum(pool.map(self._score, self._windows(ids))), len(ids)) for ids in encoded]

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """Not supported: UserError, unless there are none."""
        if pairs:
            raise UserError(
                "endpoint: tasks that compare answers need lm-eval's own --model local-completions"
            )
        return []

    def _windows(self, ids: list[int]) -> list[tuple[list[int], list[int]]]:
        """A text's tokens as contexts with continuations, each token continued once."""
        bos, eos = self._tokenizer.bos_token_id, self._tokenizer.eos_token_id
        windows = get_rolling_token_windows(ids, eos if bos is None else bos, self.endpoint.max_length - 2, 1)
        return [make_disjoint_window(window) for window in windows]

    def _score(self, window: tuple[list[int], list[int]]) -> float:
        """log p(continuation | context) of tokens, in nats."""
        context, continuation = window
        payload = {"prompt": [context + continuation], "max_tokens": 1, "logprobs": 1, "echo": True}

        def read(answer: Any) -> float:
            return float(sum(answer["choices"][0]["logprobs"]["token_logprobs"][len(context) : -1]))

        lacks = "holds no log-probabilities of a prompt (echo with logprobs), which perplexity needs"
        return float(self._post(payload, read, lacks))

    def _cut(self, prompt: str, max_new_tokens: int, offers: Sequence[Offer] = ()) -> str:
        """As much of a prompt's end as leaves room for calls and an answer, where tokens are known. UserError if none does."""
        if self._tokenizer is None:
            return prompt
        reserved = max_new_tokens + (WRAPPING if self._is_chat else 0)
        if offers:
            call = self._limits.max_call_tokens + self._limits.max_result_tokens + 2 * WRAPPING
            schemas = json.dumps([offer.schema() for offer in offers])
            reserved += len(self._tokens(schemas)) + self._limits.max_calls * call
        room = self.endpoint.max_length - int(self._tokenizer.num_special_tokens_to_add()) - reserved
        if room <= 0:
            raise UserError(
                f"endpoint.max_length is {self.endpoint.max_length}: {reserved} new tokens leave no room for a prompt; set it "
                "to what the served model reads"
            )

        def fits(start: int) -> bool:
            return len(self._tokens(prompt[start:])) <= room

        return prompt if fits(0) else prompt[bisect.bisect_left(range(len(prompt)), True, key=fits) :]

    def _within(self, text: str, most: int) -> str:
        """As much of a text's beginning as has at most `most` tokens, where tokens are known."""
        ids = self._tokens(text) if self._tokenizer else []
        return text if len(ids) <= most else str(self._tokenizer.decode(ids[:most])).rstrip("\ufffd")

    def _tokens(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False).input_ids)

    def _post(self, payload: Mapping[str, Any], read: Callable[[Any], Any], lacks: str) -> Any:
        """What `read` takes from the answer to a request. UserError without an answer, or if it `lacks` something."""
        body = {"model": self.endpoint.model, "temperature": 0, "seed": SEED, **payload}
        try:
            return post(self._client, self._url, body, read, lacks)
        except NoAnswer as error:
            advice = _ADVICE.get(error.status, "run the command again later")
            raise UserError(
                f"endpoint.url: {shown_address(self._url)} {error}; {advice}; answers so far are kept"
            ) from None
