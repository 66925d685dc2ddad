"""A model served by any OpenAI-compatible endpoint.

Prompts are sent as text, cut on their left where the server's tokenizer is named and they are too long for it; texts are
scored as tokens, for which it has to be named. The key is never shown.

lm-eval's own `local-completions` is not used: it logs what a server answers, which may hold the key, follows redirects with
prompt and key, reads answers of any length for any time, and keeps nothing of a run that is interrupted.
"""

import bisect
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Lock
from typing import Any, TypeVar

from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from toolformer.credentials import shown_address, without_credentials
from toolformer.data import Document
from toolformer.decoding.call_state import Completion
from toolformer.decoding.recording import Question
from toolformer.decoding.settings import Endpoint
from toolformer.errors import UserError
from toolformer.lm.endpoint import LONGEST_TOKEN, NoAnswer, key_from, open_client, post
from toolformer.lm.loading import load_tokenizer
from toolformer.tools.base import Tool, encodable

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
T = TypeVar("T")


class ServedModel:
    """Continues prompts and scores texts by requests, several at once, as a `Decoder` without tools.

    UserError if the tokenizer cannot be loaded, or the key is not valid; in use, if the server fails.
    """

    tools: Mapping[str, Tool] = {}

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.url = str(endpoint.url)
        try:
            self._tokenizer: Any = load_tokenizer(endpoint.tokenizer) if endpoint.tokenizer else None
        except UserError as error:
            raise UserError(f"endpoint.tokenizer: {str(error).removeprefix('model: ')}") from error
        self._client = open_client(key_from(endpoint.key_variable), endpoint.timeout, endpoint.tries)

    @property
    def identity(self) -> dict[str, Any]:
        """The model, as part of the keys of all answers."""
        return {"endpoint": without_credentials(self.url), "model": str(self.endpoint.model)}

    def cache_key(self, question: Question) -> Any:
        """The request that a question is sent as."""
        sent = self._cut(question.prompt, question.max_new_tokens)
        return ["served", sent, question.max_new_tokens, question.stop]

    @property
    def text_settings(self) -> Any:
        """The tokens decide a score, and the windows that they are read in."""
        return self.endpoint.tokenizer, self.endpoint.max_length

    def complete(
        self,
        prompts: Sequence[str],
        documents: Sequence[Document],
        *,
        max_new_tokens: int,
        stop: Sequence[str] = (),
        allowed: Collection[str] = (),
        on_batch: Callable[[list[int], list[Completion]], None],
    ) -> list[Completion]:
        """See `Decoder.complete`; every answer is a batch, also of those under way when the server fails."""
        lock = Lock()

        def answer(n: int) -> Completion:
            prompt = self._cut(prompts[n], max_new_tokens)
            cut = 0 if prompt == prompts[n] else len(self._tokens(prompts[n])) - len(self._tokens(prompt))
            completion = self._answer(prompt, documents[n], max_new_tokens, stop, allowed, cut)
            with lock:
                on_batch([n], [completion])
            return completion

        completions = self._at_once(answer, len(prompts))
        if cut := sum(completion.prompt_cut > 0 for completion in completions):
            log.warning(
                f"endpoint: {cut} of {len(prompts)} prompts are longer than endpoint.max_length={self.endpoint.max_length} "
                "leaves room for: cut on their left"
            )
        return completions

    def _at_once(self, work: Callable[[int], T], count: int) -> list[T]:
        """Does numbered pieces of work, several at once; after an error none is begun, and those under way are finished."""
        pool = ThreadPoolExecutor(self.endpoint.concurrency)
        try:
            futures = [pool.submit(work, n) for n in range(count)]
            for future in as_completed(futures):
                future.result()
            return [future.result() for future in futures]
        finally:
            pool.shutdown(cancel_futures=True)

    def _answer(
        self,
        prompt: str,
        document: Document,
        max_new_tokens: int,
        stop: Sequence[str],
        allowed: Collection[str],
        prompt_cut: int,
    ) -> Completion:
        """The answer to one prompt."""
        payload: dict[str, Any] = {"prompt": prompt, "max_tokens": max_new_tokens}
        if stop:  # some servers refuse an empty list
            payload["stop"] = list(stop)

        def text_of(answer: Any) -> str | None:
            text = answer["choices"][0]["text"]
            # A server may ignore the limit; no text of that many tokens is longer than this.
            return None if text is None else encodable(text)[: LONGEST_TOKEN * max_new_tokens]

        text: str | None = self._post(payload, text_of, "is no completion")
        if text is None:
            return Completion("", "", (), NO_TEXT, self._count(""), True, prompt_cut)
        return Completion(text, text, tokens=self._count(text), prompt_cut=prompt_cut)

    def score_texts(self, texts: Sequence[str]) -> list[tuple[float, int]]:
        """(log p of the whole text in nats, over lm-eval's windows, and its number of tokens) of each text.

        UserError without a tokenizer, or log-probabilities from the server.
        """
        if self._tokenizer is None:
            raise UserError(
                "endpoint.tokenizer: texts can be scored only with the served model's tokenizer; name a folder or a "
                "hub model"
            )
        bos, eos = self._tokenizer.bos_token_id, self._tokenizer.eos_token_id
        encoded = [self._tokens(text) for text in texts]
        windows = [
            (n, *make_disjoint_window(window))
            for n, ids in enumerate(encoded)
            for window in get_rolling_token_windows(
                ids, eos if bos is None else bos, self.endpoint.max_length - 2, 1
            )
        ]
        scores = self._at_once(lambda index: self._score(*windows[index][1:]), len(windows))
        sums = [0.0] * len(texts)
        for (n, *_), score in zip(windows, scores, strict=True):
            sums[n] += score
        return list(zip(sums, map(len, encoded), strict=True))

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """Not supported: UserError, unless there are none."""
        if pairs:
            raise UserError("endpoint: tasks that compare answers need lm-eval's own --model local-completions")
        return []

    def _score(self, context: list[int], continuation: list[int]) -> float:
        """log p(continuation | context) of tokens, in nats."""
        payload = {"prompt": [context + continuation], "max_tokens": 1, "logprobs": 1, "echo": True}

        def score(answer: Any) -> float:
            return float(sum(answer["choices"][0]["logprobs"]["token_logprobs"][len(context) : -1]))

        lacks = "holds no log-probabilities of a prompt (echo with logprobs), which perplexity needs"
        return float(self._post(payload, score, lacks))

    def _cut(self, prompt: str, reserved: int) -> str:
        """As much of a prompt's end as leaves room for `reserved` tokens, where tokens are known. UserError if nothing does."""
        if self._tokenizer is None:
            return prompt
        room = self.endpoint.max_length - int(self._tokenizer.num_special_tokens_to_add()) - reserved
        if room <= 0:
            raise UserError(
                f"endpoint.max_length is {self.endpoint.max_length}: {reserved} new tokens leave no room for a prompt; set it "
                "to what the served model reads"
            )

        def fits(start: int) -> bool:
            return len(self._tokens(prompt[start:])) <= room

        return prompt if fits(0) else prompt[bisect.bisect_left(range(len(prompt)), True, key=fits) :]

    def _tokens(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False).input_ids)

    def _count(self, text: str) -> int | None:
        """The number of tokens, or None where they are not known."""
        return len(self._tokens(text)) if self._tokenizer else None

    def _post(self, payload: Mapping[str, Any], read: Callable[[Any], Any], lacks: str) -> Any:
        """What `read` takes from the answer to a request. UserError without an answer, or if it `lacks` something."""
        body = {"model": self.endpoint.model, "temperature": 0, "seed": SEED, **payload}
        try:
            return post(self._client, self.url, body, read, lacks)
        except NoAnswer as error:
            advice = _ADVICE.get(error.status, "give the command again later")
            raise UserError(
                f"endpoint.url: {shown_address(self.url)} {error}; {advice}; answers so far are kept"
            ) from None
