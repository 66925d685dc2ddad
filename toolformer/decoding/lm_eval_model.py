"""The decoder as a model of lm-evaluation-harness, resumable: answers are written down batch by batch.

Knows tasks only by name (which tools they may not use) and by two fields of their
documents that tools get to see, `current_date` and `source_id`. Scoring is the tasks' affair.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance

from benchmarks import switches
from toolformer.calls import ApiCall
from toolformer.decoding.answers import AnswerFile
from toolformer.decoding.decoder import Completion, Decoder
from toolformer.decoding.recording import RecordingLM, stopwatch
from toolformer.documents import Document
from toolformer.errors import UserError

PAIRS_AT_ONCE = 64
"""Context-continuation pairs scored between two writes of the answer file."""
TEXTS_AT_ONCE = 8
"""Whole texts scored between two writes of the answer file."""


class ToolformerLM(RecordingLM):
    """lm-eval's view of a `Decoder`.

    Args:
        decoder: what continues prompts; its language model scores texts.
        answers: file for what has been answered (a path, or one that is open already), or None.
        identity: what else decides an answer (checkpoint, tools and their data); answers in the file that
            were given under another identity or other decoding settings are not used.
        progress: show a progress bar.
        clocks: the tools, by key, that answer with a day where a document has no date of its own.
        day: that day; today without one. It decides answers only where a task may use one of those tools.
        switched_off: the tools, by key, that a task may not use; without it, what this project's tasks say.

    `records` holds a `Record` for every request in the order of the requests.
    """

    def __init__(
        self,
        decoder: Decoder,
        answers: AnswerFile | str | Path | None = None,
        identity: Mapping[str, Any] | None = None,
        progress: bool = True,
        clocks: Collection[str] = (),
        day: datetime.date | None = None,
        switched_off: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self.decoder = decoder
        self._switched_off = switched_off
        self._clocks = frozenset(clocks)
        self._day = (day or datetime.date.today()).isoformat()
        self.language_model = decoder.language_model
        own = {"model": self.language_model.name, "dtype": str(self.language_model.dtype)}
        super().__init__(answers, {**own, **(identity or {})}, progress)
        self._decoding = {
            "k": decoder.k,
            "max_calls": decoder.max_calls,
            "max_call_tokens": decoder.max_call_tokens,
            "max_result_tokens": decoder.max_result_tokens,
            "min_new_tokens": decoder.min_new_tokens,
            "mode": decoder.mode,
        }
        self._device = self.language_model.device

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Greedy continuations of (prompt, settings); the scored text is the one without calls."""
        asked = [
            _Question.of(request, self._clocks, self._day, self._off(request.task_name))
            for request in requests
        ]
        keys = [self._key("completion", self._decoding, asdict(question)) for question in asked]
        groups: dict[tuple[Any, ...], dict[str, _Question]] = {}
        for key, question in zip(keys, asked, strict=True):
            if key not in self.answers:
                settings = (question.max_new_tokens, question.stop, question.switched_off)
                groups.setdefault(settings, {}).setdefault(key, question)
        with self._progress(len(set(keys)), sum(map(len, groups.values())), "completions") as bar:
            for (max_new_tokens, stop, off), questions in groups.items():
                missing, lap = list(questions), stopwatch()

                def keep(
                    batch: list[int],
                    completions: list[Completion],
                    missing: list[str] = missing,
                    lap: Callable[[], float] = lap,
                ) -> None:
                    each = lap() / len(batch)
                    # An answer without a tool that broke down counts, but must not be the last word.
                    for fault in (False, True):
                        answers = {
                            missing[n]: asdict(answer)
                            for n, answer in zip(batch, completions, strict=True)
                            if answer.fault is fault
                        }
                        self.answers.add(answers, seconds=each * len(answers), final=not fault)
                    bar.update(len(batch))

                self.decoder.complete(
                    [question.prompt for question in questions.values()],
                    [question.document() for question in questions.values()],
                    max_new_tokens=max_new_tokens,
                    stop=stop,
                    allowed=sorted(set(self.decoder.tools) - set(off)),
                    on_batch=keep,
                )
        texts: list[str] = []
        for request, key in zip(requests, keys, strict=True):
            completion = _completion(self.answers[key])
            self._record(request, key, completion=completion, tokens=completion.tokens)
            texts.append(completion.plain)
            self.cache_hook.add_partial("generate_until", request.args, completion.plain)
        return texts

    def _off(self, task: str | None) -> frozenset[str]:
        if self._switched_off is None:
            return switches.of_task(task)
        return frozenset(self._switched_off.get(task or "", ()))

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """(log p(continuation | context) in nats, whether greedy decoding would write it) of each request."""
        pairs: list[tuple[str, str]] = [request.args for request in requests]
        keys = [self._key("pair", *pair) for pair in pairs]
        self._answer_all(keys, pairs, self.language_model.log_likelihoods, PAIRS_AT_ONCE, "pairs")
        found: list[tuple[float, bool]] = []
        for request, key in zip(requests, keys, strict=True):
            log_likelihood, greedy = self.answers[key]
            self._record(request, key, log_likelihood=log_likelihood)
            found.append((log_likelihood, bool(greedy)))
            self.cache_hook.add_partial("loglikelihood", request.args, found[-1])
        return found

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """log p of each whole text in nats, without calls (paper, section 4.3); `records` has the tokens."""
        texts: list[str] = [request.args[0] for request in requests]
        keys = [self._key("text", text) for text in texts]
        self._answer_all(keys, texts, self.language_model.rolling_log_likelihoods, TEXTS_AT_ONCE, "texts")
        found: list[float] = []
        for request, key in zip(requests, keys, strict=True):
            log_likelihood, tokens = self.answers[key]
            self._record(request, key, log_likelihood=log_likelihood, tokens=int(tokens))
            found.append(log_likelihood)
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, log_likelihood)
        return found


@dataclass(frozen=True)
class _Question:
    """All of a generation request that can change its answer."""

    prompt: str
    max_new_tokens: int
    stop: tuple[str, ...]
    switched_off: tuple[str, ...]
    date: str | None
    source_id: str | None

    @classmethod
    def of(cls, request: Instance, clocks: Collection[str], day: str, off: frozenset[str]) -> _Question:
        prompt, settings = request.args
        if settings.get("do_sample") or settings.get("temperature") or settings.get("num_beams", 1) != 1:
            raise UserError(
                f"{request.task_name}: generation_kwargs ask for sampling or beams; decoding is greedy"
            )
        until = settings.get("until") or ()
        document = request.doc if isinstance(request.doc, Mapping) else {}
        return cls(
            prompt=prompt,
            max_new_tokens=int(settings.get("max_gen_toks") or settings.get("max_new_tokens") or 256),
            stop=(until,) if isinstance(until, str) else tuple(until),
            switched_off=tuple(sorted(off)),
            date=document.get("current_date") or (day if set(clocks) - off else None),
            source_id=document.get("source_id"),
        )

    def document(self) -> Document:
        """What the tools may know: the date, and the article that the example is made of."""
        date = datetime.date.fromisoformat(self.date) if self.date else None
        return Document(doc_id="", text=self.prompt, date=date, source_id=self.source_id)


def _completion(answer: Mapping[str, Any]) -> Completion:
    return Completion(**{**answer, "calls": tuple(ApiCall(**call) for call in answer["calls"])})
