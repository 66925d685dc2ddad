"""A decoder in lm-evaluation-harness, resumable: answers are written to disk batch by batch.

Of tasks it uses only the name (which tools they may not use) and two fields of their documents that tools may see,
`current_date` and `source_id`. The tasks do the scoring.
"""

import datetime
import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from toolformer.benchmarks.tasks import day_of
from toolformer.data import Document
from toolformer.decoding.completion import Completion, Request
from toolformer.decoding.recording import AnswerFile, Record
from toolformer.errors import UserError
from toolformer.lm.batching import batches
from toolformer.progress import Bar

if TYPE_CHECKING:
    from toolformer.decoding.decoder import Decoder

NEW_TOKENS = 256
"""Limit of a request that names none."""
READ = ("until", "max_gen_toks", "max_new_tokens")
"""The settings of a generation request that are read."""
NEUTRAL = {"do_sample": False, "temperature": 0, "num_beams": 1, "top_p": 1, "repetition_penalty": 1}
"""Values of other settings with which they ask for greedy decoding."""
PAIRS_AT_ONCE = 64
"""Context-continuation pairs scored between two writes of the answer file."""
TEXTS_AT_ONCE = 8
"""Whole texts scored between two writes of the answer file."""
CHARACTERS_AT_ONCE = 20_000
"""Limit of both, so that an interruption loses no more than a few minutes."""


def generation_limits(task: str, settings: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    """The number of new tokens and the texts that end an answer, of a task's `generation_kwargs`; an empty text ends none.

    UserError for settings that greedy decoding does not read, or of a wrong type.
    """
    where = f"{task}: generation_kwargs (--gen_kwargs)"
    for name, value in settings.items():
        if name not in READ and value not in (None, NEUTRAL.get(name)):
            raise UserError(
                f"{where}: {name}={value} changes nothing: decoding is greedy and reads {', '.join(READ)} only; leave it out"
            )
    until = settings.get("until")
    until = () if until is None else until
    stop = (until,) if isinstance(until, str) else until
    if not isinstance(stop, list | tuple) or not all(isinstance(text, str) for text in stop):
        raise UserError(f"{where}: until is {until!r}; it must be a list of texts (numbers in quotes)")
    limits = (settings.get(name) for name in ("max_gen_toks", "max_new_tokens"))
    limit = next((number for number in limits if number is not None), NEW_TOKENS)
    if type(limit) is not int or limit < 1:
        raise UserError(f"{where}: max_gen_toks is {limit!r}; it must be a whole number of at least 1")
    return limit, tuple(text for text in stop if text)


class ToolformerLM(LM):
    """lm-eval's view of a model whose answers are written to disk as they come.

    Args:
        answers: file of answers (a path, or one that is open already), or None.
        identity: what decides an answer besides the model, its settings and the request (checkpoint, tools and their
            data); answers in the file that were given under another identity are not used.
        progress: show a progress bar.
        clocks: the tools, by key, that answer with a day where a document has no date.
        day: that day; by default today. It decides answers only where a task may use one of those tools.
    """

    def __init__(
        self,
        decoder: "Decoder",
        answers: AnswerFile | str | Path | None = None,
        identity: Mapping[str, Any] | None = None,
        progress: bool = True,
        clocks: Collection[str] = (),
        day: datetime.date | None = None,
    ) -> None:
        super().__init__()
        self.decoder = decoder
        self.language_model = decoder.language_model
        self._device = self.language_model.device
        self.answers = answers if isinstance(answers, AnswerFile) else AnswerFile(answers)
        self.records: list[Record] = []
        """One for every request, in their order."""
        self.switched_off: Mapping[str, Collection[str]] = {}
        """By task: the tools, by key, that it may not use."""
        self.gold: Mapping[str, Callable[[Any], str]] = {}
        """By task, a function from a document to its gold answer, where its nats are requested beside the completion."""
        self.progress = progress
        self._identity = {**decoder.identity, **(identity or {})}
        self._clocks = frozenset(clocks)
        self._day = (day or datetime.date.today()).isoformat()

    def answer(self, requests: Mapping[str, list[Instance]]) -> None:
        """Answers requests, by lm-eval's name of their kind, into the file."""
        self._complete(requests.get("generate_until", []))
        self._score_pairs([request.args for request in requests.get("loglikelihood", [])], "pairs")
        self._read(requests.get("loglikelihood_rolling", []))

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Greedy continuations of (prompt, settings); the scored text is the one without calls."""
        keys = self._complete(requests)
        completions = [Completion.from_dict(self.answers[key]) for key in keys]
        nats = self._gold_nats(requests, completions)
        for request, key, completion, gold in zip(requests, keys, completions, nats, strict=True):
            self._record(request, key, completion=completion, tokens=completion.tokens, gold_nats=gold)
        return [completion.plain for completion in completions]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """(log p(continuation | context) in nats, whether greedy decoding would write it) of each request."""
        keys = self._score_pairs([request.args for request in requests], "pairs")
        for request, key in zip(requests, keys, strict=True):
            self._record(request, key, log_likelihood=self.answers[key][0])
        return [(self.answers[key][0], bool(self.answers[key][1])) for key in keys]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """log p of each whole text in nats; of a model finetuned on calls, with calls disabled (paper, section 4.3).

        `records` has the tokens.
        """
        keys = self._read(requests)
        for request, key in zip(requests, keys, strict=True):
            log_likelihood, tokens = self.answers[key]
            self._record(request, key, log_likelihood=log_likelihood, tokens=int(tokens))
        return [self.answers[key][0] for key in keys]

    def _request(self, request: Instance) -> Request:
        """A generation request of lm-eval; UserError if it has settings that greedy decoding does not read."""
        prompt, settings = request.args
        new_tokens, stop = generation_limits(request.task_name or "", settings)
        off = frozenset(self.switched_off.get(request.task_name or "", ()))
        read = request.doc if isinstance(request.doc, Mapping) else {}
        try:
            day = day_of(read)
        except UserError as error:
            raise UserError(f"{request.task_name}: {error}") from error
        date = day or (self._day if self._clocks - off else None)
        document = Document(
            doc_id="",
            text=prompt,
            date=datetime.date.fromisoformat(date) if date else None,
            source_id=read.get("source_id"),
        )
        return Request(prompt, document, new_tokens, stop, frozenset(self.decoder.tools.keys() - off))

    def _complete(self, requests: list[Instance]) -> list[str]:
        """Has the requests answered, as one queue; returns their keys, as the methods below do."""
        asked = [self._request(request) for request in requests]
        keys = [self._key("completion", self.decoder.cache_key(request)) for request in asked]
        missing = {key: one for key, one in zip(keys, asked, strict=True) if key not in self.answers}
        if missing:
            self.language_model.load()
        new_keys, began = list(missing), time.monotonic()
        # Prompts of a batch end at about the same time.
        together = min(len(missing), self.decoder.size.value)
        with self._progress(len(set(keys)), len(missing), "completions", together) as bar:

            def keep(finished: Mapping[int, Completion]) -> None:
                nonlocal began
                seconds, began = (time.monotonic() - began) / len(finished), time.monotonic()
                # An answer whose tool broke down counts now, but the next run asks for it again.
                for fault in (False, True):
                    answers = {new_keys[n]: asdict(one) for n, one in finished.items() if one.fault is fault}
                    self.answers.add(answers, seconds * len(answers), final=not fault)
                bar.update(len(finished))

            if missing:
                self.decoder.answers(list(missing.values()), keep)
        return keys

    def _score_pairs(self, pairs: Sequence[tuple[str, str]], unit: str) -> list[str]:
        keys = [self._key("pair", *pair) for pair in pairs]
        self._answer_all(keys, pairs, self.decoder.score_pairs, PAIRS_AT_ONCE, unit)
        return keys

    def _read(self, requests: list[Instance]) -> list[str]:
        texts: list[str] = [request.args[0] for request in requests]
        keys = [self._key("text", text, self.decoder.text_settings) for text in texts]
        self._answer_all(keys, texts, self.decoder.score_texts, TEXTS_AT_ONCE, "texts")
        return keys

    def _answer_all(
        self,
        keys: Sequence[str],
        inputs: Sequence[Any],
        answer: Callable[[list[Any]], Sequence[Any]],
        at_once: int,
        unit: str,
    ) -> None:
        """Answers inputs without an answer in small batches, each written to disk."""
        missing = {key: value for key, value in zip(keys, inputs, strict=True) if key not in self.answers}
        new_keys, values = list(missing), list(missing.values())
        if missing:
            self.language_model.load()

        def fits(batch: list[int]) -> bool:
            characters = sum(len("".join(values[n])) for n in batch)
            return len(batch) <= at_once and characters <= CHARACTERS_AT_ONCE

        with self._progress(len(set(keys)), len(missing), unit) as bar:
            for batch in batches([0] * len(values), fits):  # in their order
                began = time.monotonic()
                scores = answer([values[n] for n in batch])
                answers = {new_keys[n]: list(score) for n, score in zip(batch, scores, strict=True)}
                self.answers.add(answers, seconds=time.monotonic() - began)
                bar.update(len(batch))

    def _gold_nats(
        self, requests: Sequence[Instance], completions: Sequence[Completion]
    ) -> list[float | None]:
        """−log p(gold answer | prompt, and the text up to the result of the last call if there is one), where requested."""
        pairs: dict[int, tuple[str, str]] = {}
        for index, (request, completion) in enumerate(zip(requests, completions, strict=True)):
            if gold := self.gold.get(request.task_name or ""):
                pairs[index] = request.args[0] + completion.through_calls, f" {gold(request.doc)}"
        keys = dict(zip(pairs, self._score_pairs(list(pairs.values()), "gold answers"), strict=True))
        return [-self.answers[keys[index]][0] if index in keys else None for index in range(len(completions))]

    def _key(self, *parts: Any) -> str:
        text = json.dumps([self._identity, *parts], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def _record(self, request: Instance, key: str, **answered: Any) -> None:
        task, doc_id = request.task_name or "", request.doc_id if request.doc_id is not None else -1
        self.records.append(Record(task, doc_id, seconds=self.answers.seconds(key), **answered))

    def _progress(self, total: int, missing: int, unit: str, together: int = 1) -> Any:
        hidden = not (self.progress and missing)
        return Bar(
            total=total, initial=total - missing, unit=unit, desc="evaluate", disable=hidden, leave=False,
            together=together,
        )  # fmt: skip
