"""Any OpenAI-compatible completions endpoint as a model, through lm-eval's own backend (`local-completions`).

Adds to it that answers are written down as they come, that every fault is one line, and that the key stays unseen.
Prompts are sent as text; texts are scored as tokens, for which the server's tokenizer has to be named. Knows no tools.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
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
    """A folder or hub name; needed to score texts."""
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
    """lm-eval's view of an endpoint; see `RecordingLM` for the arguments."""

    def __init__(
        self,
        endpoint: Endpoint,
        answers: AnswerFile | str | Path | None = None,
        identity: Mapping[str, Any] | None = None,
        progress: bool = True,
    ) -> None:
        self.endpoint = endpoint
        own = {"endpoint": without_credentials(endpoint.url), "model": endpoint.model}
        super().__init__(answers, {**own, **(identity or {})}, progress)
        self._scorer: Any = None
        logging.getLogger("asyncio").addFilter(_unless_forgotten)

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Greedy continuations of (prompt, settings)."""
        keys = [self._key("generate", *request.args) for request in requests]
        self._ask("generate_until", requests, keys)
        texts: list[str] = []
        for request, key in zip(requests, keys, strict=True):
            answer: str | None = self.answers[key]
            text = answer or ""
            tokens = len(self._tokens(text)) if self.endpoint.tokenizer else None
            failed = NO_TEXT if answer is None else None
            completion = Completion(text, text, (), failed, tokens or 0, fault=answer is None)
            self._record(request, key, completion=completion, tokens=tokens)
            texts.append(text)
        return texts

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """(log p(continuation | context) in nats, whether greedy decoding would write it) of each request."""
        keys = [self._key("pair", *request.args) for request in requests]
        self._ask("loglikelihood", requests, keys)
        found: list[tuple[float, bool]] = []
        for request, key in zip(requests, keys, strict=True):
            log_likelihood, greedy = self.answers[key]
            self._record(request, key, log_likelihood=log_likelihood)
            found.append((float(log_likelihood), bool(greedy)))
        return found

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """log p of each whole text in nats."""
        keys = [self._key("text", *request.args) for request in requests]
        self._ask("loglikelihood_rolling", requests, keys)
        found: list[float] = []
        for request, key in zip(requests, keys, strict=True):
            log_likelihood: float = self.answers[key]
            tokens = len(self._tokens(request.args[0]))
            self._record(request, key, log_likelihood=log_likelihood, tokens=tokens)
            found.append(log_likelihood)
        return found

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
        if not self.endpoint.tokenizer:
            raise UserError(
                "endpoint.tokenizer: texts can be scored only with the served model's tokenizer; name a folder or a "
                "hub model"
            )
        if self._scorer is None:
            self._scorer = self._backend(tokens=True)
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
