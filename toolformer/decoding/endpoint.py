"""Any OpenAI-compatible completions endpoint as a model, through lm-eval's own backend (`local-completions`).

Adds to it that answers are written down as they come, that every fault is one line, and that the key stays unseen.
Prompts are sent as text, cut on their left where the server's tokenizer is named and they are too long for it; texts are
scored as tokens, for which it has to be named. Knows no tools.
"""

from __future__ import annotations

import bisect
import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.models import api_models
from lm_eval.models.openai_completions import LocalCompletionsAPI
from tqdm.asyncio import tqdm_asyncio

from toolformer.credentials import shown_address, without_credentials
from toolformer.decoding.answers import AnswerFile
from toolformer.decoding.decoder import Completion
from toolformer.decoding.recording import RecordingLM, stopwatch
from toolformer.errors import UserError

log = logging.getLogger(__name__)

NEW_TOKENS = 256
"""What a request asks for that names no number."""
REFUSED = (400, 413, 422)
"""What servers answer to a request that they will not take, now or later."""


@dataclass(frozen=True)
class Endpoint:
    """Where a model is served."""

    url: str
    """The whole address, with /v1/completions."""
    model: str
    """The model's name there."""
    key: str = field(default="", repr=False)
    """Sent as a bearer token if it is not empty."""
    tokenizer: str | None = None
    """A folder or hub name; needed to score texts, and to cut prompts."""
    concurrency: int = 1
    """Requests under way at once."""
    timeout: int = 300
    """Seconds a request may take."""
    tries: int = 3
    """How often a request is made before it counts as failed."""
    max_length: int = 2048
    """Tokens the served model can read at once."""


class _Nothing(str):
    """Stands for a completion that is null: lm-eval would put a text of its own in its place."""


NOTHING = _Nothing()
NO_TEXT = "endpoint gave no text"


class _Completions(LocalCompletionsAPI):
    """lm-eval's backend, without an empty list of stop texts, which some servers refuse, and of texts only."""

    def _create_payload(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        payload: dict[str, Any] = super()._create_payload(*arguments, **named)
        return {name: value for name, value in payload.items() if name != "stop" or value}

    @staticmethod
    def parse_generations(outputs: Any, **named: Any) -> list[str]:
        """The completions; raises TypeError for what is no text. Lone surrogates, which no file takes, become "?"."""
        texts: list[str] = []
        for answer in LocalCompletionsAPI.parse_generations(outputs, **named):
            if not isinstance(answer, str | None):
                raise TypeError("a completion is no text")
            texts.append(NOTHING if answer is None else answer.encode("utf-8", "replace").decode("utf-8"))
        return texts


class EndpointLM(RecordingLM):
    """lm-eval's view of an endpoint; see `RecordingLM` for the arguments.

    A completion is kept by address, model and the prompt that is sent, a score by tokenizer and length as well.

    Raises:
        UserError: the tokenizer cannot be loaded.
    """

    def __init__(
        self, endpoint: Endpoint, answers: AnswerFile | str | Path | None = None, progress: bool = True
    ) -> None:
        self.endpoint = endpoint
        identity = {"endpoint": without_credentials(endpoint.url), "model": endpoint.model}
        super().__init__(answers, identity, progress)
        # Before the first request is paid for.
        self._scorer: Any = self._backend(tokens=True) if endpoint.tokenizer else None
        logging.getLogger("asyncio").addFilter(_unless_forgotten)

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Greedy continuations of (prompt, settings)."""
        sent = self._fit(requests)
        keys = [self._key("generate", *request.args) for request in sent]
        self._ask("generate_until", sent, keys)
        texts: list[str] = []
        for request, shorter, key in zip(requests, sent, keys, strict=True):
            answer: str | None = self.answers[key]
            text = answer or ""
            tokens = len(self._tokens(text)) if self.endpoint.tokenizer else None
            failed = NO_TEXT if answer is None else None
            cut = self._lost(request.args[0], shorter.args[0])
            completion = Completion(text, text, (), failed, tokens or 0, answer is None, cut)
            self._record(request, key, completion=completion, tokens=tokens)
            texts.append(text)
        return texts

    def _fit(self, requests: Sequence[Instance]) -> list[Instance]:
        """The requests with prompts that leave room for their continuation, as far as tokens are known: cut on their left.

        Raises:
            UserError: the continuation alone is too long.
        """
        if self._scorer is None:
            return list(requests)
        most = self.endpoint.max_length - int(self._scorer.tokenizer.num_special_tokens_to_add())
        fitting: list[Instance] = []
        for request in requests:
            prompt, settings = request.args
            wanted = int(settings.get("max_tokens") or settings.get("max_gen_toks") or NEW_TOKENS)
            if wanted >= most:
                raise UserError(
                    f"endpoint.max_length is {self.endpoint.max_length}: {wanted} new tokens leave no room for a "
                    "prompt; set it to what the served model reads"
                )
            cut = self._cut(prompt, most - wanted)
            fitting.append(request if cut == prompt else replace(request, arguments=(cut, settings)))
        shorter = sum(one is not whole for one, whole in zip(fitting, requests, strict=True))
        if shorter:
            log.warning(
                "endpoint: %d of %d prompts are longer than endpoint.max_length=%d leaves room for: cut on their left",
                shorter,
                len(requests),
                self.endpoint.max_length,
            )
        return fitting

    def _lost(self, prompt: str, sent: str) -> int:
        """The tokens by which what is sent is shorter than the prompt."""
        return 0 if sent == prompt else len(self._tokens(prompt)) - len(self._tokens(sent))

    def _cut(self, prompt: str, most: int) -> str:
        """As much of the end of a prompt as has at most `most` tokens."""

        def fits(start: int) -> bool:
            return len(self._tokens(prompt[start:])) <= most

        return prompt if fits(0) else prompt[bisect.bisect_left(range(len(prompt)), True, key=fits) :]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """(log p(continuation | context) in nats, whether greedy decoding would write it) of each request."""
        keys = [self._key("pair", *self._reading(), *request.args) for request in requests]
        self._ask("loglikelihood", requests, keys)
        found: list[tuple[float, bool]] = []
        for request, key in zip(requests, keys, strict=True):
            log_likelihood, greedy = self.answers[key]
            self._record(request, key, log_likelihood=log_likelihood)
            found.append((float(log_likelihood), bool(greedy)))
        return found

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """log p of each whole text in nats."""
        keys = [self._key("text", *self._reading(), *request.args) for request in requests]
        self._ask("loglikelihood_rolling", requests, keys)
        found: list[float] = []
        for request, key in zip(requests, keys, strict=True):
            log_likelihood: float = self.answers[key]
            tokens = len(self._tokens(request.args[0]))
            self._record(request, key, log_likelihood=log_likelihood, tokens=tokens)
            found.append(log_likelihood)
        return found

    def _reading(self) -> tuple[str | None, int]:
        """What decides a score besides the text: its tokens, and the windows they are read in."""
        return self.endpoint.tokenizer, self.endpoint.max_length

    def _ask(self, kind: str, requests: list[Instance], keys: list[str]) -> None:
        """Asks the server what is not answered yet; each answer is kept as soon as it is there."""
        missing = {key: one for key, one in zip(keys, requests, strict=True) if key not in self.answers}
        if not missing:
            return
        generates = kind == "generate_until"
        backend = self._backend(tokens=False) if generates else self._scoring_backend()
        waiting = {_place(kind, request.args): key for key, request in missing.items()}
        with self._progress(len(set(keys)), len(missing), "answers") as bar, self._faults(generates):
            backend.cache_hook = _Keeper(self.answers, kind, waiting, bar)
            answers = getattr(backend, kind)(list(missing.values()), disable_tqdm=True)
            for key, answer in zip(missing, answers, strict=True):
                if key not in self.answers:
                    _keep(self.answers, key, answer)

    def _backend(self, tokens: bool) -> Any:
        to = self.endpoint
        quiet = logging.getLogger("lm_eval")
        level = quiet.level
        quiet.setLevel(logging.ERROR)
        try:
            return _Completions(
                model=to.model,
                base_url=to.url,
                tokenizer_backend="huggingface" if tokens else None,
                tokenizer=to.tokenizer if tokens else None,
                tokenized_requests=tokens,
                num_concurrent=to.concurrency,
                max_retries=to.tries,
                timeout=to.timeout,
                max_length=to.max_length,
                max_gen_toks=NEW_TOKENS,
                # Never lm-eval's own $OPENAI_API_KEY: a key goes where its owner sends it.
                header={"Authorization": f"Bearer {to.key}"} if to.key else {"Accept": "application/json"},
            )
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            raise UserError(
                f"endpoint.tokenizer: {to.tokenizer} cannot be loaded ({reason}); name a folder or a hub model"
            ) from error
        finally:
            quiet.setLevel(level)

    def _scoring_backend(self) -> Any:
        if self._scorer is None:
            raise UserError(
                "endpoint.tokenizer: texts can be scored only with the served model's tokenizer; name a folder or a "
                "hub model"
            )
        return self._scorer

    def _tokens(self, text: str) -> list[int]:
        tokens: list[int] = self._scoring_backend().tok_encode(text)
        return tokens

    @contextmanager
    def _faults(self, generates: bool) -> Iterator[None]:
        """Whatever goes wrong between here and the server becomes a `UserError` of one line."""
        quiet = logging.getLogger("lm_eval")
        level, bars = quiet.level, (api_models.tqdm, api_models.tqdm_asyncio)
        # Its messages hold the request's headers, and so the key.
        quiet.setLevel(logging.CRITICAL + 1)
        # Its bars are left standing where a request fails, with our message glued to them.
        api_models.tqdm, api_models.tqdm_asyncio = functools.partial(bars[0], disable=True), _HiddenBar
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # two HTTP libraries, and lm-eval's asserts on what a server answers
            # Without the cause: its text may hold the key too.
            raise UserError(f"{self._blame(error, generates)}; answers so far are kept") from None
        finally:
            quiet.setLevel(level)
            api_models.tqdm, api_models.tqdm_asyncio = bars

    def _blame(self, error: Exception, generates: bool) -> str:
        url = shown_address(self.endpoint.url)
        status = getattr(error, "status", None) or getattr(
            getattr(error, "response", None), "status_code", None
        )
        if status in (401, 403):
            return f"endpoint.key_variable: {url} refuses the key (HTTP {status}); set the variable to a valid key"
        if status == 404:
            return (
                f"endpoint.url: {url} has no such address or model (HTTP 404); check it (…/v1/completions) and "
                f"endpoint.model={self.endpoint.model}"
            )
        if status in REFUSED:
            return f"endpoint.url: {url} refuses a request (HTTP {status}), {self._too_long(generates)}"
        if status:
            return f"endpoint.url: {url} answers with HTTP {status}; give the command again later"
        if isinstance(error, OSError | TimeoutError) and not isinstance(error, ValueError):
            return f"endpoint.url: {url} does not answer ({type(error).__name__}); start the server, or check the address"
        if generates:
            return f"endpoint.url: what {url} answers is no completion ({type(error).__name__}); check the address"
        return (
            f"endpoint.url: {url} gives no log-probabilities of a prompt (echo with logprobs), which perplexity "
            f"needs ({type(error).__name__}); leave those benchmarks out"
        )

    def _too_long(self, generates: bool) -> str:
        """Why a server most often refuses a request, and what helps."""
        if not generates:
            return (
                "most often since it gives no log-probabilities of a prompt (echo with logprobs), or reads fewer tokens "
                f"than endpoint.max_length={self.endpoint.max_length}; lower it, or leave perplexity out"
            )
        why = "most often for a prompt longer than it reads"
        if self.endpoint.tokenizer:
            return f"{why}; lower endpoint.max_length={self.endpoint.max_length}, to which prompts are cut"
        return f"{why}; name endpoint.tokenizer and endpoint.max_length, to which prompts are then cut"


class _Keeper:
    """lm-eval's hook for answers as they come, writing into our file."""

    def __init__(self, answers: AnswerFile, kind: str, waiting: Mapping[str, str], bar: Any) -> None:
        self.answers, self.kind, self.waiting, self.bar = answers, kind, waiting, bar
        self.lap = stopwatch()

    def add_partial(self, kind: str, asked: Any, answer: Any) -> None:
        # The windows of a long text come by without a question; the whole text follows.
        if asked is not None and kind == self.kind:
            _keep(self.answers, self.waiting[_place(kind, asked)], answer, self.lap())
            self.bar.update(1)


def _keep(answers: AnswerFile, key: str, answer: Any, seconds: float | None = None) -> None:
    """Keeps an answer; that there is none, for this run only."""
    nothing = answer is NOTHING
    answers.add({key: None if nothing else answer}, seconds, final=not nothing)


class _HiddenBar(tqdm_asyncio):  # type: ignore[misc]
    """A progress bar that is not shown."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{**named, "disable": True})


def _unless_forgotten(record: logging.LogRecord) -> bool:
    """Requests that were under way when another one failed end in lines of their own; the first fault is told."""
    return "exception was never retrieved" not in record.getMessage()


def _place(kind: str, asked: Any) -> str:
    return repr((kind, *asked))
