"""The decoder as a model of lm-evaluation-harness, resumable: answers are written to disk batch by batch.

Knows tasks only by name (which tools they may not use) and by two fields of their documents that tools get to see,
`current_date` and `source_id`. Scoring is the tasks' affair.
"""

import datetime
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance

from toolformer.decoding.call_state import Completion
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.recording import AnswerFile, Question, RecordingLM, stopwatch
from toolformer.decoding.trace import Trace, TracingDecoder
from toolformer.lm.batching import batches

PAIRS_AT_ONCE = 64
"""Context-continuation pairs scored between two writes of the answer file."""
TEXTS_AT_ONCE = 8
"""Whole texts scored between two writes of the answer file."""
CHARACTERS_AT_ONCE = 20_000
"""Of either: an interruption loses no more than some minutes."""


class ToolformerLM(RecordingLM):
    """lm-eval's view of a `Decoder`, which continues prompts, and whose language model scores texts.

    The other arguments are `RecordingLM`'s; model, number format and decoding settings are part of the identity anyway.
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
        super().__init__(answers, {**own, **(identity or {})}, progress, clocks, day)
        self.gold: Mapping[str, Callable[[Any], str]] = {}
        """By task, what gives a document's gold answer, where its nats are wanted beside the completion."""
        self.share = 0, 1
        """Which of how many workers this is: it answers its share of the requests only, and the others are left out."""
        self._device = self.language_model.device

    def answer(self, requests: Mapping[str, list[Instance]], rank: int, workers: int) -> None:
        """Answers one worker's share of the requests, given by lm-eval's name of their kind."""
        self.share = rank, workers
        ask = {
            "generate_until": self._complete,
            "loglikelihood": self._score,
            "loglikelihood_rolling": self._read,
        }
        for kind, of_kind in requests.items():
            ask[kind](of_kind)

    def _is_ours(self, key: str) -> bool:
        """Whether this process has to give the answer."""
        rank, workers = self.share
        return key not in self.answers and int(key[:8], 16) % workers == rank

    def _complete(self, requests: list[Instance]) -> list[str]:
        """Has the requests answered; returns their keys, as `_score` and `_read` do."""
        questions = [self._question(request) for request in requests]
        keys = [self._key("completion", self.decoder.deciding(), asdict(question)) for question in questions]
        groups: dict[tuple[Any, ...], dict[str, Question]] = {}
        for key, question in zip(keys, questions, strict=True):
            if self._is_ours(key):
                settings = (question.max_new_tokens, question.stop, question.switched_off)
                groups.setdefault(settings, {}).setdefault(key, question)
        with self._progress(len(set(keys)), sum(map(len, groups.values())), "completions") as bar:
            for group in groups.values():
                self._decode(group, bar)
        return keys

    def _decode(self, group: Mapping[str, Question], bar: Any) -> None:
        """Answers questions, by key, that differ only in their prompts and documents."""
        keys, questions, lap = list(group), list(group.values()), stopwatch()

        def keep(batch: list[int], completions: Sequence[Completion]) -> None:
            each = lap() / len(batch)
            # An answer without a tool that broke down counts, but must not be the last word.
            for fault in (False, True):
                answers = {
                    keys[n]: asdict(answer)
                    for n, answer in zip(batch, completions, strict=True)
                    if answer.fault is fault
                }
                self.answers.add(answers, seconds=each * len(answers), final=not fault)
            bar.update(len(batch))

        decoder = self.decoder
        decode: Callable[..., Any] = (
            decoder.trace if isinstance(decoder, TracingDecoder) else decoder.complete
        )
        decode(
            [question.prompt for question in questions],
            [question.document() for question in questions],
            max_new_tokens=questions[0].max_new_tokens,
            stop=questions[0].stop,
            allowed=sorted(decoder.tools.keys() - questions[0].switched_off),
            on_batch=keep,
        )

    def _score(self, requests: list[Instance]) -> list[str]:
        return self._score_pairs([request.args for request in requests], "pairs")

    def _score_pairs(self, pairs: Sequence[tuple[str, str]], unit: str) -> list[str]:
        keys = [self._key("pair", *pair) for pair in pairs]
        self._answer_all(keys, pairs, self.language_model.log_likelihoods, PAIRS_AT_ONCE, unit)
        return keys

    def _read(self, requests: list[Instance]) -> list[str]:
        texts: list[str] = [request.args[0] for request in requests]
        calls = not self.decoder.taught
        keys = [self._key("text", text, calls) for text in texts]

        def read(batch: list[str]) -> list[tuple[float, int]]:
            return self.language_model.rolling_log_likelihoods(batch, calls)

        self._answer_all(keys, texts, read, TEXTS_AT_ONCE, "texts")
        return keys

    def _answer_all(
        self,
        keys: Sequence[str],
        inputs: Sequence[Any],
        answer: Callable[[list[Any]], Sequence[Any]],
        at_once: int,
        unit: str,
    ) -> None:
        """Answers what is not answered yet in small batches, each written to disk."""
        missing = {key: value for key, value in zip(keys, inputs, strict=True) if self._is_ours(key)}
        own, values, lap = list(missing), list(missing.values()), stopwatch()

        def fits(batch: list[int]) -> bool:
            characters = sum(len("".join(values[n])) for n in batch)
            return len(batch) <= at_once and characters <= CHARACTERS_AT_ONCE

        with self._progress(len(set(keys)), len(missing), unit) as bar:
            for batch in batches([0] * len(values), fits):  # in their order
                answers = answer([values[n] for n in batch])
                given = {own[n]: list(scores) for n, scores in zip(batch, answers, strict=True)}
                self.answers.add(given, seconds=lap())
                bar.update(len(batch))

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Greedy continuations of (prompt, settings); the scored text is the one without calls."""
        keys = self._complete(requests)
        completions = [Completion.read(self.answers[key]) for key in keys]
        nats = self._gold_nats(requests, completions)
        for request, key, completion, gold in zip(requests, keys, completions, nats, strict=True):
            self._record(request, key, completion=completion, tokens=completion.tokens, gold_nats=gold)
        return [completion.plain for completion in completions]

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
        keys = dict(zip(pairs, self._score_pairs(list(pairs.values()), "gold answers"), strict=True))
        return [-self.answers[keys[index]][0] if index in keys else None for index in range(len(completions))]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """(log p(continuation | context) in nats, whether greedy decoding would write it) of each request."""
        keys = self._score(requests)
        for request, key in zip(requests, keys, strict=True):
            self._record(request, key, log_likelihood=self.answers[key][0])
        return [(self.answers[key][0], bool(self.answers[key][1])) for key in keys]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """log p of each whole text in nats; of a model that was taught calls, with calls disabled (paper, section 4.3); `records` has the tokens."""
        keys = self._read(requests)
        for request, key in zip(requests, keys, strict=True):
            log_likelihood, tokens = self.answers[key]
            self._record(request, key, log_likelihood=log_likelihood, tokens=int(tokens))
        return [self.answers[key][0] for key in keys]
