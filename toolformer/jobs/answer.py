"""The questions of an evaluation as shared work: workers answer chunks of them, each into a file of its own."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer.jobs import instantiate, share
from toolformer.jobs.config import Config
from toolformer.progress import Bar
from toolformer.storage import acquired, atomic_write, lock_file
from toolformer.tools.runtime import Usage, added, usages

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

    from toolformer.decoding.decoder import Decoder
    from toolformer.decoding.lm_eval_model import ToolformerLM
    from toolformer.decoding.recording import AnswerFile
    from toolformer.evaluation.suite import Loaded

CHUNKS_PER_WORKER = 4
"""So that workers of unlike speed end at about the same time."""


@dataclass(frozen=True)
class Questions:
    """Questions for a model and the settings that their answers depend on: everything that a worker needs."""

    config: Config
    model: str
    identity: Mapping[str, Any]
    """Settings that decide the answers; see `ToolformerLM`."""
    tasks: Sequence[str]
    metadata: Mapping[str, Any]
    """Metadata for the tasks' loaders."""
    samples: Any
    day: datetime.date | None
    answers: Path
    """The file of the answers, see `AnswerFile`."""

    def load(self) -> Loaded:
        """Reads the tasks' documents."""
        from toolformer.evaluation import suite

        return suite.load_tasks(self.tasks, self.metadata, self.samples, self.config.paths.tasks_dir)

    def lm(
        self,
        decoder: Decoder,
        answers: AnswerFile | None,
        more: Mapping[str, str] | None = None,
        progress: bool = True,
    ) -> ToolformerLM:
        """Builds the lm-eval model; `more` extends the answers' keys."""
        from toolformer.decoding.lm_eval_model import ToolformerLM

        identity = {**self.identity, **(more or {})}
        clocks = instantiate.clocks(self.config)
        return ToolformerLM(decoder, answers, identity, progress, clocks, self.day)


@dataclass(frozen=True)
class Answering:
    """The questions of an evaluation in chunks.

    A finished chunk has a note with the counts of its calls, until the evaluation has been scored. Scoring asks whatever
    is still without an answer, so that a note without its answers, after a power cut, loses nothing.

    Args:
        names: of the chunks; equal for equal questions, and none where this process alone answers.
    """

    questions: Questions
    names: tuple[str, ...]

    @classmethod
    def of(cls, questions: Questions, requests: Mapping[str, Sequence[Instance]]) -> Answering:
        """The chunks of requests, by lm-eval's name of their kind."""
        content = {
            kind: [(request.task_name, request.args) for request in instances]
            for kind, instances in requests.items()
        }
        total = sum(map(len, requests.values()))
        count = max(1, min(total, CHUNKS_PER_WORKER * int(questions.config.engine.workers)))
        asked = json.dumps([dict(questions.identity), content], default=str)
        digest = hashlib.sha256(asked.encode()).hexdigest()[:16]
        return cls(questions, tuple(f"{number:04d}-of-{count:04d}-{digest}" for number in range(count)))

    @property
    def config(self) -> Config:
        return self.questions.config

    def chunks(self) -> Iterator[share.Chunk]:
        return (share.Chunk(name, rank) for rank, name in enumerate(self.names))

    def finished(self) -> set[str]:
        return {name for name in self.names if self.has(name)}

    def has(self, name: str) -> bool:
        return self._path(name, "json").is_file()

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        path = self._path(name, "lock")
        lock = lock_file(path)
        if not acquired(lock):
            yield False
            return
        try:
            yield True
            path.unlink(missing_ok=True)
        finally:
            lock.release()

    def load(self) -> Replica:
        return Replica(self.questions)

    def do(self, replica: Replica, chunk: share.Chunk) -> None:
        used = replica.answer(chunk.content, len(self.names))
        note = {key: asdict(usage) for key, usage in used.items()}
        atomic_write(self._path(chunk.name, "json"), json.dumps(note).encode())

    def used(self) -> dict[str, Usage]:
        """Counts of the calls of finished chunks, by tool."""
        used: dict[str, Usage] = {}
        for name in self.names:
            with suppress(OSError, ValueError, TypeError, AttributeError):  # it is only a count
                note = json.loads(self._path(name, "json").read_bytes())
                used = added(used, {key: Usage(**usage) for key, usage in note.items()})
        return used

    def forget(self) -> None:
        """Removes the notes, once the answers are scored."""
        for name in self.names:
            self._path(name, "json").unlink(missing_ok=True)

    def _path(self, name: str, kind: str) -> Path:
        return self.questions.answers.parent / "claims" / f"{name}.{kind}"


class Replica:
    """A model with the requests of all chunks, and a file of its own for answers."""

    def __init__(self, questions: Questions) -> None:
        from toolformer.decoding.recording import AnswerFile
        from toolformer.evaluation import suite

        config = questions.config
        if config.engine.threads:
            import torch

            torch.set_num_threads(config.engine.threads)
        decoder = instantiate.decoder(config, instantiate.placement(config, questions.model))
        loaded = questions.load()
        self._requests = suite.requests(loaded)
        self._lm = questions.lm(decoder, AnswerFile(questions.answers), progress=False)
        self._lm.switched_off = loaded.switched_off

    def answer(self, rank: int, count: int) -> dict[str, Usage]:
        """Answers a chunk of `count`; returns counts of the calls that were made, by tool."""
        self._lm.answers.refresh()
        self._lm.answer({kind: instances[rank::count] for kind, instances in self._requests.items()})
        self._lm.answers.sync()
        return usages(self._lm.decoder.tools)


def answer(questions: Questions, loaded: Loaded) -> Answering:
    """Has workers answer all questions, if several are configured, together with those of equal commands; returns the chunks."""
    from toolformer.evaluation import suite

    if not share.is_pooled(questions.config):
        return Answering(questions, ())
    requests = suite.requests(loaded)
    work = Answering.of(questions, requests)
    total = sum(map(len, requests.values()))
    with Bar(total=total, unit="answers", desc="evaluate") as bar:

        def on_done(name: str, is_new: bool) -> None:
            rank, count = work.names.index(name), len(work.names)
            bar.update(len(range(rank, total, count)))

        share.do_all(work, on_done)
    return work
