"""What all our models of lm-evaluation-harness share: answers kept on disk, a record of each request, its time."""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import os
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from toolformer.data import Document
from toolformer.decoding.call_state import Completion
from toolformer.errors import UserError
from toolformer.progress import Bar
from toolformer.storage import acquired, lock_file, writing

log = logging.getLogger(__name__)


class AnswerFile:
    """Answers by key in a JSON Lines file that only grows: an interrupted run continues where it was.

    Every line has a checksum; what cannot be read is asked again, and a half-written last line is cut off. While open,
    the file is locked against other processes, for which we wait. Without a path, answers are kept in memory. Answers of
    the file `known` are read too.
    """

    def __init__(self, path: str | Path | None, known: Path | None = None) -> None:
        self.path = Path(path).expanduser() if path else None
        self._rows: dict[str, dict[str, Any]] = {}
        """By key: `key`, `answer`, and `seconds` where they were measured."""
        self._lock: FileLock | None = None
        self.waited = False
        """Whether another process had the file open when we came."""
        if self.path is None:
            return
        self._lock = lock_file(self.path.with_name(f"{self.path.name}.lock"))
        if not acquired(self._lock):
            log.info("evaluate: another process evaluates this system; waiting to use its answers")
            self.waited = True
            while not acquired(self._lock, wait=True):
                pass
        for file in (known, self.path):
            if file and file.exists():
                self._read(file)

    def __enter__(self) -> AnswerFile:
        return self

    def __exit__(self, *_: object) -> None:
        """Lets other processes write; answers can still be read, and no longer added."""
        if self._lock is not None:
            self._lock.release()

    def _read(self, path: Path) -> None:
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        unreadable = 0
        for line in whole.splitlines():
            try:
                row = json.loads(line)
                if row.pop("crc") != _checksum(row):
                    raise ValueError("checksum")
                self._rows[row["key"]] = row
            except (ValueError, KeyError, TypeError, AttributeError):
                unreadable += 1
        if len(whole) < len(content):
            os.truncate(path, len(whole))
        if unreadable:
            log.warning("%s: %d damaged lines; their questions are asked again", path, unreadable)

    def take(self, path: Path) -> None:
        """Moves the answers of another file into this one, and removes it."""
        with AnswerFile(path) as others:
            self._keep(row for key, row in others._rows.items() if key not in self)
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.lock").unlink(missing_ok=True)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Any:
        return self._rows[key]["answer"]

    def seconds(self, key: str) -> float | None:
        """What an answer took, in whichever process it was given; None if it was not measured."""
        return self._rows.get(key, {}).get("seconds")

    def add(self, answers: Mapping[str, Any], seconds: float | None = None, final: bool = True) -> None:
        """Keeps answers, on disk when this returns; `seconds` is what all of them took together.

        Those that are not `final` are kept in memory only: whoever opens the file next asks for them again. UserError if
        the file cannot be written.
        """
        rows: list[dict[str, Any]] = [{"key": key, "answer": answer} for key, answer in answers.items()]
        if seconds is not None:
            for row in rows:
                row["seconds"] = round(seconds / len(rows), 6)
        self._keep(rows, final)

    def _keep(self, rows: Iterable[dict[str, Any]], final: bool = True) -> None:
        new = {row["key"]: row for row in rows}
        self._rows |= new
        if self.path is None or not final or not new:
            return
        if self._lock is None or not self._lock.is_locked:
            raise ValueError(f"{self.path} has been closed")
        lines = "".join(json.dumps({**row, "crc": _checksum(row)}) + "\n" for row in new.values())
        with writing(self.path), self.path.open("ab") as file:
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())


def _checksum(row: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(row).encode())


@dataclass(frozen=True)
class Question:
    """All of a generation request that can change its answer."""

    prompt: str
    max_new_tokens: int
    stop: tuple[str, ...]
    switched_off: tuple[str, ...]
    date: str | None
    source_id: str | None

    def document(self) -> Document:
        """What the tools may know: the date, and the article that the example is made of."""
        date = datetime.date.fromisoformat(self.date) if self.date else None
        return Document(doc_id="", text=self.prompt, date=date, source_id=self.source_id)


@dataclass(frozen=True)
class Record:
    """What was asked and answered for one document of a task."""

    task: str
    doc_id: int
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


class RecordingLM(LM):
    """An lm-eval model whose answers are written to disk as they come.

    Args:
        answers: file of answers (a path, or one that is open already), or None.
        identity: what decides an answer besides the request (checkpoint, tools and their data); answers in the
            file that were given under another identity are not used.
        progress: show a progress bar.
        clocks: the tools, by key, that answer with a day where a document has no date of its own.
        day: that day; today without one. It decides answers only where a task may use one of those tools.
    """

    def __init__(
        self,
        answers: AnswerFile | str | Path | None,
        identity: Mapping[str, Any],
        progress: bool = True,
        clocks: Collection[str] = (),
        day: datetime.date | None = None,
    ) -> None:
        super().__init__()
        self.answers = answers if isinstance(answers, AnswerFile) else AnswerFile(answers)
        self.records: list[Record] = []
        """One for every request, in their order."""
        self.switched_off: Mapping[str, Collection[str]] = {}
        """By task: the tools, by key, that it may not use."""
        self.progress = progress
        self._identity = dict(identity)
        self._clocks = frozenset(clocks)
        self._day = (day or datetime.date.today()).isoformat()

    def _question(self, request: Instance) -> Question:
        """A generation request as a question; UserError if it asks for sampling or beams."""
        prompt, settings = request.args
        if settings.get("do_sample") or settings.get("temperature") or settings.get("num_beams", 1) != 1:
            raise UserError(
                f"{request.task_name}: generation_kwargs ask for sampling or beams; decoding is greedy"
            )
        off = frozenset(self.switched_off.get(request.task_name or "", ()))
        until: str | Sequence[str] = settings.get("until") or ()
        document = request.doc if isinstance(request.doc, Mapping) else {}
        return Question(
            prompt=prompt,
            max_new_tokens=int(settings.get("max_gen_toks") or settings.get("max_new_tokens") or 256),
            stop=(until,) if isinstance(until, str) else tuple(until),
            switched_off=tuple(sorted(off)),
            date=document.get("current_date") or (self._day if self._clocks - off else None),
            source_id=document.get("source_id"),
        )

    def _key(self, *asked: Any) -> str:
        text = json.dumps([self._identity, *asked], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def _record(self, request: Instance, key: str, **answered: Any) -> None:
        task, doc_id = request.task_name or "", request.doc_id if request.doc_id is not None else -1
        self.records.append(Record(task, doc_id, seconds=self.answers.seconds(key), **answered))

    def _progress(self, total: int, missing: int, unit: str) -> Any:
        hidden = not (self.progress and missing)
        return Bar(total=total, initial=total - missing, unit=f" {unit}", disable=hidden, leave=False)


def stopwatch() -> Callable[[], float]:
    """A function that gives the seconds since it was last called (or made)."""
    last = time.monotonic()

    def lap() -> float:
        nonlocal last
        before, last = last, time.monotonic()
        return last - before

    return lap
