"""What all our models of lm-evaluation-harness share: answers kept on disk, a record of each request, its time."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
import zlib
from abc import ABC
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from toolformer.decoding.call_state import Completion
from toolformer.errors import UserError
from toolformer.progress import Bar
from toolformer.storage import acquired, lock_file, writing

log = logging.getLogger(__name__)

CHARACTERS_AT_ONCE = 20_000
"""Of texts that are scored together: an interruption loses no more than some minutes."""


class AnswerFile:
    """Answers by key in a JSON Lines file that only grows: an interrupted run continues where it was.

    Every line has a checksum; what cannot be read is asked again, and a half-written last line is cut off. While open,
    the file is locked against other writers: UserError if another process has it, unless we `wait`. Without a path,
    answers are kept in memory. Answers of the file `known` are read too.
    """

    def __init__(self, path: str | Path | None, wait: bool = False, known: Path | None = None) -> None:
        self.path = Path(path).expanduser() if path else None
        self._answers: dict[str, Any] = {}
        self._seconds: dict[str, float] = {}
        self._lock: FileLock | None = None
        self.waited = False
        """Whether another process had the file open when we came."""
        if self.path is None:
            return
        self._lock = lock_file(self.path.with_name(f"{self.path.name}.lock"))
        if not acquired(self._lock):
            if not wait:
                raise UserError(
                    f"{self.path}: another evaluation of the same system is writing its answers here; "
                    "wait until it ends (or end it), then give this command again"
                )
            log.info("evaluate: another process evaluates this system; waiting to use its answers")
            self.waited = True
            while not acquired(self._lock, wait=True):
                pass
        for file in (known, self.path):
            if file and file.exists():
                self._read(file)

    def close(self) -> None:
        """Lets other processes write; answers can still be read, and no longer added."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> AnswerFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, path: Path) -> None:
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        unreadable = 0
        for line in whole.splitlines():
            try:
                row = json.loads(line)
                if row.pop("crc") != _checksum(row):
                    raise ValueError("checksum")
                self._answers[row["key"]] = row["answer"]
                if "seconds" in row:
                    self._seconds[row["key"]] = row["seconds"]
            except (ValueError, KeyError, TypeError, AttributeError):
                unreadable += 1
        if len(whole) < len(content):
            os.truncate(path, len(whole))
        if unreadable:
            log.warning("%s: %d damaged lines; their questions are asked again", path, unreadable)

    def take(self, path: Path) -> None:
        """Moves the answers of another file into this one, and removes it."""
        with AnswerFile(path, wait=True) as others:
            new = {key: answer for key, answer in others._answers.items() if key not in self}
            self._keep(new, {key: others._seconds[key] for key in new.keys() & others._seconds.keys()})
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.lock").unlink(missing_ok=True)

    def __contains__(self, key: str) -> bool:
        return key in self._answers

    def __getitem__(self, key: str) -> Any:
        return self._answers[key]

    def seconds(self, key: str) -> float | None:
        """What an answer took, in whichever process it was given; None if it was not measured."""
        return self._seconds.get(key)

    def add(self, answers: Mapping[str, Any], seconds: float | None = None, final: bool = True) -> None:
        """Keeps answers, on disk when this returns; `seconds` is what all of them took together.

        Those that are not `final` are kept in memory only: whoever opens the file next asks for them again. UserError if
        the file cannot be written.
        """
        if answers:
            each = None if seconds is None else round(seconds / len(answers), 6)
            self._keep(answers, {} if each is None else dict.fromkeys(answers, each), final)

    def _keep(self, answers: Mapping[str, Any], seconds: Mapping[str, float], final: bool = True) -> None:
        self._answers.update(answers)
        self._seconds.update(seconds)
        if self.path is None or not final:
            return
        if self._lock is None or not self._lock.is_locked:
            raise ValueError(f"{self.path} has been closed")
        rows: list[dict[str, Any]] = [{"key": key, "answer": answer} for key, answer in answers.items()]
        for row in rows:
            if row["key"] in seconds:
                row["seconds"] = seconds[row["key"]]
        lines = "".join(json.dumps({**row, "crc": _checksum(row)}) + "\n" for row in rows)
        with writing(self.path), self.path.open("ab") as file:
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())


def _checksum(row: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(row).encode())


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
    """What the answer took, its even share of its batch; None where it was not measured."""
    gold_nats: float | None = None
    """−log p of the gold answer, where that was asked for."""


class RecordingLM(LM, ABC):
    """An lm-eval model whose answers are written to disk as they come.

    Args:
        answers: file of answers (a path, or one that is open already), or None.
        identity: what decides an answer besides the request (checkpoint, tools and their data); answers in the
            file that were given under another identity are not used.
        progress: show a progress bar.
    """

    def __init__(
        self, answers: AnswerFile | str | Path | None, identity: Mapping[str, Any], progress: bool
    ) -> None:
        super().__init__()
        self.answers = answers if isinstance(answers, AnswerFile) else AnswerFile(answers)
        self.records: list[Record] = []
        """One for every request, in their order."""
        self.switched_off: Mapping[str, Collection[str]] = {}
        """By task: the tools, by key, that it may not use."""
        self.progress = progress
        self.share: tuple[int, int] | None = None
        """Of how many workers this is which: it answers its share of the requests only, and the others are left out."""
        self._identity = dict(identity)

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
        with self._progress(len(set(keys)), len(missing), unit) as bar:
            lap = stopwatch()
            for batch in _batches(list(missing.items()), at_once):
                answers = answer([value for _, value in batch])
                given = {key: list(values) for (key, _), values in zip(batch, answers, strict=True)}
                self.answers.add(given, seconds=lap())
                bar.update(len(batch))

    def _is_ours(self, key: str) -> bool:
        """Whether this process has to give the answer."""
        rank, workers = self.share or (0, 1)
        return key not in self.answers and int(key[:8], 16) % workers == rank

    def _key(self, *asked: Any) -> str:
        text = json.dumps([self._identity, *asked], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def _record(self, request: Instance, key: str, **answered: Any) -> None:
        task, doc_id = request.task_name or "", request.doc_id if request.doc_id is not None else -1
        seconds = self.answers.seconds(key)
        self.records.append(Record(task, doc_id, request.args[0], seconds=seconds, **answered))

    def _progress(self, total: int, missing: int, unit: str) -> Any:
        hidden = not (self.progress and missing)
        return Bar(total=total, initial=total - missing, unit=f" {unit}", disable=hidden, leave=False)


def _batches(items: Sequence[tuple[str, Any]], at_once: int) -> Iterator[list[tuple[str, Any]]]:
    """At most `at_once` keys with their inputs, and none beyond `CHARACTERS_AT_ONCE` but a first one."""
    batch: list[tuple[str, Any]] = []
    characters = 0
    for key, value in items:
        own = len(value) if isinstance(value, str) else sum(map(len, value))
        if batch and (len(batch) == at_once or characters + own > CHARACTERS_AT_ONCE):
            yield batch
            batch, characters = [], 0
        batch.append((key, value))
        characters += own
    if batch:
        yield batch


def stopwatch() -> Callable[[], float]:
    """A function that gives the seconds since it was last called (or made)."""
    last = time.monotonic()

    def lap() -> float:
        nonlocal last
        before, last = last, time.monotonic()
        return last - before

    return lap
