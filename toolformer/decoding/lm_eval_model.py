"""The decoder as a model of lm-evaluation-harness, resumable: answers are written to disk batch by batch.

Knows tasks only by name (which tools they may not use) and by two fields of their documents that tools get to see,
`current_date` and `source_id`. Scoring is the tasks' affair.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance

from toolformer.decoding.call_state import Completion
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.questions import Question, question_of
from toolformer.decoding.recording import AnswerFile, RecordingLM, stopwatch
from toolformer.decoding.trace import Trace, TracingDecoder

PAIRS_AT_ONCE = 64
"""Context-continuation pairs scored between two writes of the answer file."""
TEXTS_AT_ONCE = 8
"""Whole texts scored between two writes of the answer file."""


class ToolformerLM(RecordingLM):
    """lm-eval's view of a `Decoder`.

    Args:
        decoder: what continues prompts; its language model scores texts.
        answers, identity, progress: see `RecordingLM`; model, number format and decoding settings are part of the
            identity anyway.
        clocks: the tools, by key, that answer with a day where a document has no date of its own.
        day: that day; today without one. It decides answers only where a task may use one of those tools.
    """

    def __init__(
        self,
        decoder: Decoder,
        answers: AnswerFile | str | Path | None = None,
        identity: Mapping[str, Any] | None = None,
        progress: bool = True,
        clocks: Collection[str] = (),
        day: datetime.date | None = None,
    ) -> None:
        self.decoder = decoder
        self.language_model = decoder.language_model
        own = {"model": self.language_model.name, "dtype": str(self.language_model.dtype)}
        super().__init__(answers, {**own, **(identity or {})}, progress)
        self.gold: Mapping[str, Callable[[Any], str]] = {}
        """By task, what gives a document's gold answer, where its nats are wanted beside the completion."""
        self._clocks = frozenset(clocks)
        self._day = (day or datetime.date.today()).isoformat()
        self._device = self.language_model.device

    def answer(self, requests: Mapping[str, list[Instance]], rank: int, workers: int) -> None:
        """Answers one worker's share of the requests, given by lm-eval's name of their kind."""
        self.share = (rank, workers)
        ask = {
            "generate_until": self._complete,
            "loglikelihood": self._score,
            "loglikelihood_rolling": self._read,
        }
        for kind, of_kind in requests.items():
            ask[kind](of_kind)

    def _complete(self, requests: list[Instance]) -> list[str]:
        """Has the requests answered; returns their keys, as `_score` and `_read` do."""
        questions = [question_of(each, self.switched_off, self._clocks, self._day) for each in requests]
        keys = [self._key("completion", self.decoder.deciding(), asdict(question)) for question in questions]
        decoder = self.decoder
        decode: Callable[..., Sequence[Completion]] = (
            decoder.trace if isinstance(decoder, TracingDecoder) else decoder.complete
        )
        groups: dict[tuple[Any, ...], dict[str, Question]] = {}
        for key, question in zip(keys, questions, strict=True):
            if self._is_ours(key):
                settings = (question.max_new_tokens, question.stop, question.switched_off)
                groups.setdefault(settings, {}).setdefault(key, question)
        with self._progress(len(set(keys)), sum(map(len, groups.values())), "completions") as bar:
            for (max_new_tokens, stop, off), group in groups.items():
                missing, lap = list(group), stopwatch()

                def keep(
                    batch: list[int],
                    completions: list[Completion],
                    missing: list[str] = missing,
                    lap: Any = lap,
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

                decode(
                    [question.prompt for question in group.values()],
                    [question.document() for question in group.values()],
                    max_new_tokens=max_new_tokens,
                    stop=stop,
                    allowed=sorted(set(self.decoder.tools) - set(off)),
                    on_batch=keep,
                )
        return keys

    def _score(self, requests: list[Instance]) -> list[str]:
        pairs: list[tuple[str, str]] = [request.args for request in requests]
        keys = [self._key("pair", *pair) for pair in pairs]
        self._answer_all(keys, pairs, self.language_model.log_likelihoods, PAIRS_AT_ONCE, "pairs")
        return keys

    def _read(self, requests: list[Instance]) -> list[str]:
        texts: list[str] = [request.args[0] for request in requests]
        keys = [self._key("text", text) for text in texts]
        self._answer_all(keys, texts, self.language_model.rolling_log_likelihoods, TEXTS_AT_ONCE, "texts")
        return keys

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Greedy continuations of (prompt, settings); the scored text is the one without calls."""
        texts: list[str] = []
        keys = self._complete(requests)
        completions = [Completion.read(self.answers[key]) for key in keys]
        nats = self._gold_nats(requests, completions)
        for request, key, completion, gold in zip(requests, keys, completions, nats, strict=True):
            self._record(request, key, completion=completion, tokens=completion.tokens, gold_nats=gold)
            texts.append(completion.plain)
            self.cache_hook.add_partial("generate_until", request.args, completion.plain)
        return texts

    def traces(self, requests: list[Instance]) -> list[Trace]:
        """The traces of generation requests, by a `TracingDecoder`; `generate_until` gives their completions without a call."""
        return [Trace.read(self.answers[key]) for key in self._complete(requests)]

    def _gold_nats(
        self, requests: Sequence[Instance], completions: Sequence[Completion]
    ) -> list[float | None]:
        """−log p(gold answer | prompt, and the text up to the result of the last call if there is one), where wanted."""
        pairs: dict[int, tuple[str, str]] = {}
        for index, (request, completion) in enumerate(zip(requests, completions, strict=True)):
            if gold := self.gold.get(request.task_name or ""):
                pairs[index] = request.args[0] + completion.through_calls, f" {gold(request.doc)}"
        keys = {index: self._key("pair", *pair) for index, pair in pairs.items()}
        asked, score = list(pairs.values()), self.language_model.log_likelihoods
        self._answer_all(list(keys.values()), asked, score, PAIRS_AT_ONCE, "gold answers")
        return [-self.answers[keys[index]][0] if index in keys else None for index in range(len(completions))]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """(log p(continuation | context) in nats, whether greedy decoding would write it) of each request."""
        found: list[tuple[float, bool]] = []
        for request, key in zip(requests, self._score(requests), strict=True):
            log_likelihood, greedy = self.answers[key]
            self._record(request, key, log_likelihood=log_likelihood)
            found.append((log_likelihood, bool(greedy)))
            self.cache_hook.add_partial("loglikelihood", request.args, found[-1])
        return found

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """log p of each whole text in nats, without calls (paper, section 4.3); `records` has the tokens."""
        found: list[float] = []
        for request, key in zip(requests, self._read(requests), strict=True):
            log_likelihood, tokens = self.answers[key]
            self._record(request, key, log_likelihood=log_likelihood, tokens=int(tokens))
            found.append(log_likelihood)
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, log_likelihood)
        return found
