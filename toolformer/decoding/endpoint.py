"""Any OpenAI-compatible completions endpoint as a model.

Prompts are sent as text, cut on their left where the server's tokenizer is named and they are too long for it; texts are
scored as tokens, for which it has to be named. Answers are written to disk one by one. The key is never shown.
"""

import bisect
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from toolformer.credentials import shown_address, without_credentials
from toolformer.decoding.call_state import Completion
from toolformer.decoding.recording import AnswerFile, RecordingLM, stopwatch
from toolformer.decoding.settings import Endpoint
from toolformer.errors import UserError
from toolformer.lm.endpoint import LONGEST_TOKEN, NoAnswer, key_from, open_client, post
from toolformer.lm.loading import load_tokenizer
from toolformer.tools.base import encodable

log = logging.getLogger(__name__)

NEW_TOKENS = 256
"""What a request asks for that names no number."""
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
"""By HTTP status; 0 is for no answer, or not the one wanted."""


class EndpointLM(RecordingLM):
    """lm-eval's view of an endpoint; the other arguments as in `RecordingLM`.

    A completion is recorded by address, model and the prompt that is sent, a score by tokenizer and length as well.

    `identity` is what else decides an answer. UserError if the tokenizer cannot be loaded, or the key is none.
    """

    def __init__(
        self,
        answers: AnswerFile | str | Path | None = None,
        progress: bool = True,
        *,
        endpoint: Endpoint,
        identity: Mapping[str, Any] | None = None,
        **asked: Any,
    ) -> None:
        self.url = str(endpoint.url)
        own = {"endpoint": without_credentials(self.url), "model": str(endpoint.model)}
        super().__init__(answers, {**own, **(identity or {})}, progress, **asked)
        self.endpoint = endpoint
        # The tokens decide a score, and the windows that they are read in.
        self._reading = endpoint.tokenizer, endpoint.max_length
        try:
            self._tokenizer: Any = load_tokenizer(endpoint.tokenizer) if endpoint.tokenizer else None
        except UserError as error:
            raise UserError(f"endpoint.tokenizer: {str(error).removeprefix('model: ')}") from error
        self._client = open_client(key_from(endpoint.key_variable), endpoint.timeout, endpoint.tries)

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Greedy continuations of (prompt, settings). UserError if the server fails; answers so far are kept."""
        sent = self._fit([request.args for request in requests])
        keys = [self._key("generate", *arguments) for arguments in sent]
        self._ask(keys, sent, self._generate)
        texts: list[str] = []
        for request, (prompt, _), key in zip(requests, sent, keys, strict=True):
            answer: str | None = self.answers[key]
            text, whole = answer or "", request.args[0]
            tokens = len(self._tokens(text)) if self._tokenizer else None
            cut = 0 if prompt == whole else len(self._tokens(whole)) - len(self._tokens(prompt))
            failed = NO_TEXT if answer is None else None
            completion = Completion(text, text, (), failed, tokens or 0, answer is None, cut)
            self._record(request, key, completion=completion, tokens=tokens)
            texts.append(text)
        return texts

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """log p of each whole text in nats. UserError without a tokenizer, or log-probabilities from the server."""
        if self._tokenizer is None:
            raise UserError(
                "endpoint.tokenizer: texts can be scored only with the served model's tokenizer; name a folder or a "
                "hub model"
            )
        texts: list[str] = [request.args[0] for request in requests]
        keys = [self._key("text", *self._reading, text) for text in texts]
        self._ask(keys, texts, self._score)
        for request, text, key in zip(requests, texts, keys, strict=True):
            self._record(request, key, log_likelihood=self.answers[key], tokens=len(self._tokens(text)))
        return [float(self.answers[key]) for key in keys]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """No benchmark here asks for it."""
        raise UserError("endpoint: tasks that compare answers need lm-eval's own --model local-completions")

    def _ask(
        self,
        keys: Sequence[str],
        asked: Sequence[Any],
        answer: Callable[[Any], Any],
        is_final: Callable[[Any], bool] = lambda reply: reply is not None,
    ) -> None:
        """Asks what is not answered yet, several at once, and records each answer as soon as it is there.

        One that is not final, by default that there is no text, is kept for this run only.
        """
        missing = {key: value for key, value in zip(keys, asked, strict=True) if key not in self.answers}
        pool, lock, lap = ThreadPoolExecutor(self.endpoint.concurrency), Lock(), stopwatch()
        with self._progress(len(set(keys)), len(missing), "answers") as bar:

            def ask(key: str, value: Any) -> None:
                reply = answer(value)
                with lock:
                    self.answers.add({key: reply}, lap(), is_final(reply))
                    bar.update(1)

            try:
                for future in as_completed([pool.submit(ask, *item) for item in missing.items()]):
                    future.result()
            finally:
                pool.shutdown(cancel_futures=True)  # waits for what is under way

    def _fit(self, asked: Sequence[tuple[str, Mapping[str, Any]]]) -> list[tuple[str, Mapping[str, Any]]]:
        """(prompt, settings) with prompts cut on their left to leave room for their continuation, where tokens are known."""
        if self._tokenizer is None:
            return list(asked)
        most = self.endpoint.max_length - int(self._tokenizer.num_special_tokens_to_add())
        fitting: list[tuple[str, Mapping[str, Any]]] = []
        for prompt, settings in asked:
            wanted = _new_tokens(settings)
            if wanted >= most:
                raise UserError(
                    f"endpoint.max_length is {self.endpoint.max_length}: {wanted} new tokens leave no room for a prompt; set it "
                    "to what the served model reads"
                )
            fitting.append((self._cut(prompt, most - wanted), settings))
        if shorter := sum(cut != whole for (cut, _), (whole, _) in zip(fitting, asked, strict=True)):
            log.warning(
                f"endpoint: {shorter} of {len(asked)} prompts are longer than endpoint.max_length={self.endpoint.max_length} "
                "leaves room for: cut on their left"
            )
        return fitting

    def _cut(self, prompt: str, most: int) -> str:
        """As much of the end of a prompt as has at most `most` tokens."""

        def fits(start: int) -> bool:
            return len(self._tokens(prompt[start:])) <= most

        return prompt if fits(0) else prompt[bisect.bisect_left(range(len(prompt)), True, key=fits) :]

    def _tokens(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False).input_ids)

    def _generate(self, asked: tuple[str, Mapping[str, Any]]) -> str | None:
        prompt, settings = asked
        until = settings.get("until") or ()
        stop = [until] if isinstance(until, str) else list(until)
        # Some servers refuse an empty list.
        payload: dict[str, Any] = {"prompt": prompt, "max_tokens": _new_tokens(settings)} | (
            {"stop": stop} if stop else {}
        )

        def text_of(answer: Any) -> str | None:
            text = answer["choices"][0]["text"]
            # A server may ignore how many tokens are asked for; what is too long to be those is not scored.
            return None if text is None else encodable(text)[: LONGEST_TOKEN * payload["max_tokens"]]

        return self._post(payload, text_of, "is no completion")

    def _score(self, text: str) -> float:
        """The sum of log-probabilities in nats, over lm-eval's windows of a text."""
        tokenizer = self._tokenizer
        first = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        windows = get_rolling_token_windows(self._tokens(text), first, self.endpoint.max_length - 2, 1)
        lacks = "holds no log-probabilities of a prompt (echo with logprobs), which perplexity needs"
        total = 0.0
        for context, continuation in map(make_disjoint_window, windows):
            payload = {"prompt": [context + continuation], "max_tokens": 1, "logprobs": 1, "echo": True}

            def score(answer: Any, start: int = len(context)) -> float:
                return float(sum(answer["choices"][0]["logprobs"]["token_logprobs"][start:-1]))

            total += self._post(payload, score, lacks)
        return total

    def _post(self, payload: Mapping[str, Any], read: Callable[[Any], Any], lacks: str) -> Any:
        """What `read` takes from the answer to a request. UserError without an answer, or where it `lacks` something."""
        body = {"model": self.endpoint.model, "temperature": 0, "seed": SEED, **payload}
        try:
            return post(self._client, self.url, body, read, lacks)
        except NoAnswer as error:
            advice = _ADVICE.get(error.status, "give the command again later")
            raise UserError(
                f"endpoint.url: {shown_address(self.url)} {error}; {advice}; answers so far are kept"
            ) from None


def _new_tokens(settings: Mapping[str, Any]) -> int:
    return int(settings.get("max_tokens") or settings.get("max_gen_toks") or NEW_TOKENS)
