"""What all our models of lm-evaluation-harness share: answers kept on disk, a record of each request, its time.

A model is asked only for what its answer file does not hold. Knows no decoder, no server and no scores.
"""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from toolformer.bars import Bar
from toolformer.decoding.answers import AnswerFile
from toolformer.decoding.decoder import Completion

CHARACTERS_AT_ONCE = 20_000
"""Of texts that are scored together: an interruption loses no more than some minutes."""


@dataclass(frozen=True)
class Record:
    """What was asked and answered for one document of a task."""

    task: str
    doc_id: int
    prompt: str
    completion: Completion | None = None
    """Set for generation."""
    log_likelihood: float | None = None
    """Sum in nats, set for scoring."""
    tokens: int | None = 0
    """Tokens written, or tokens scored (whole texts only); None where nobody counted them."""
    seconds: float | None = None
    """What the answer took, its even share of the batch it was in; None where nobody measured it."""


class RecordingLM(LM, ABC):
    """An lm-eval model whose answers are written down as they come.

    Args:
        answers: file for what has been answered (a path, or one that is open already), or None.
        identity: what decides an answer besides the request (checkpoint, tools and their data); answers in the
            file that were given under another identity are not used.
        progress: show a progress bar.

    `records` holds a `Record` for every request in the order of the requests.
    """

    def __init__(
        self, answers: AnswerFile | str | Path | None, identity: Mapping[str, Any], progress: bool
    ) -> None:
        super().__init__()
        self.answers = answers if isinstance(answers, AnswerFile) else AnswerFile(answers)
        self.records: list[Record] = []
        self.progress = progress
        self._identity = dict(identity)

    def _answer_all(
        self,
        keys: Sequence[str],
        inputs: Sequence[Any],
        answer: Callable[[list[Any]], Sequence[Any]],
        at_once: int,
        unit: str,
    ) -> None:
        """Answers what is not answered yet, a few at a time and few of the long ones, writing each lot down."""
        missing = {key: value for key, value in zip(keys, inputs, strict=True) if key not in self.answers}
        with self._progress(len(set(keys)), len(missing), unit) as bar:
            lap = stopwatch()
            for lot in _lots(list(missing.items()), at_once):
                answers = answer([value for _, value in lot])
                found = {key: list(one) for (key, _), one in zip(lot, answers, strict=True)}
                self.answers.add(found, seconds=lap())
                bar.update(len(lot))

    def _key(self, *asked: Any) -> str:
        text = json.dumps([self._identity, *asked], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def _record(self, request: Instance, key: str, **answered: Any) -> None:
        task, doc_id = request.task_name or "", request.doc_id if request.doc_id is not None else -1
        seconds = self.answers.seconds(key)
        self.records.append(Record(task, doc_id, request.args[0], seconds=seconds, **answered))

    def _progress(self, total: int, missing: int, unit: str) -> Any:
        return Bar(
            total=total,
            initial=total - missing,
            unit=f" {unit}",
            disable=not (self.progress and missing),
            leave=False,
        )


def _lots(items: Sequence[tuple[str, Any]], at_once: int) -> Iterator[list[tuple[str, Any]]]:
    """At most `at_once` keys with their texts (or tuples of texts), and none beyond `CHARACTERS_AT_ONCE` but a first one."""
    lot: list[tuple[str, Any]] = []
    characters = 0
    for key, value in items:
        own = len(value) if isinstance(value, str) else sum(map(len, value))
        if lot and (len(lot) == at_once or characters + own > CHARACTERS_AT_ONCE):
            yield lot
            lot, characters = [], 0
        lot.append((key, value))
        characters += own
    if lot:
        yield lot


def stopwatch() -> Callable[[], float]:
    """A function that gives the seconds since it was last called (or made)."""
    last = time.monotonic()

    def lap() -> float:
        nonlocal last
        before, last = last, time.monotonic()
        return last - before

    return lap
