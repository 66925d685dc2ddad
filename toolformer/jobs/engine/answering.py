"""The questions of an evaluation as a job: its shards are of questions, which workers answer into a file per shard.

A single worker answers all of them, as one shard, into the evaluation's own file. Answers of other files are moved there.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer.jobs import instantiate
from toolformer.jobs.config import Config
from toolformer.jobs.engine import pool
from toolformer.jobs.engine.plan import Queue
from toolformer.jobs.engine.work import Outcome
from toolformer.progress import Bar
from toolformer.storage import acquired, lock_file
from toolformer.tools.runtime import Usage, added, usages

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

    from toolformer.decoding.decoder import Decoder
    from toolformer.decoding.lm_eval_model import ToolformerLM
    from toolformer.decoding.recording import AnswerFile
    from toolformer.evaluation.suite import Loaded

SHARDS_PER_WORKER = 4
"""So that workers of unlike speed end at about the same time."""


@dataclass(frozen=True)
class Questions:
    """What a model is asked, and what its answers depend on: all that a worker has to know."""

    config: Config
    model: str
    identity: Mapping[str, Any]
    """What decides the answers; see `ToolformerLM`."""
    tasks: Sequence[str]
    metadata: Mapping[str, Any]
    """Of the tasks' loaders."""
    samples: Any
    clocks: Sequence[str]
    day: datetime.date | None
    answers: Path
    """The evaluation's own file, whose answers are not given again."""

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
        return ToolformerLM(decoder, answers, identity, progress, self.clocks, self.day)


@dataclass(frozen=True)
class Replica:
    """A model with the requests of all shards, by lm-eval's name of their kind."""

    lm: ToolformerLM
    requests: Mapping[str, Sequence[Instance]]

    @classmethod
    def of(cls, lm: ToolformerLM, loaded: Loaded, requests: Mapping[str, Sequence[Instance]]) -> Replica:
        lm.switched_off = loaded.switched_off
        return cls(lm, requests)


@dataclass(frozen=True)
class Answering:
    """The questions of an evaluation, dealt out to its shards.

    Args:
        names: of the shards; equal for equal questions.
    """

    questions: Questions
    names: tuple[str, ...]

    @property
    def config(self) -> Config:
        return self.questions.config

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        with _claim(self._file(name)) as ours:
            yield ours

    def is_claimed(self, name: str) -> bool:
        with self.claim(name) as ours:
            return not ours

    def is_there(self, name: str) -> bool:
        """Only the model's own keys tell; a shard that is finished takes no time to do again."""
        return False

    def load_replica(self) -> Replica:
        from toolformer.evaluation import suite

        tools = instantiate.tools(self.config, inference=True)
        decoder = instantiate.decoder(self.config, self.questions.model, tools)
        loaded = self.questions.load()
        lm = self.questions.lm(decoder, None, progress=False)
        return Replica.of(lm, loaded, suite.requests(loaded))

    def do_shard(self, replica: Replica, name: str) -> Outcome:
        from toolformer.decoding.recording import AnswerFile

        lm, rank = replica.lm, self.names.index(name)
        requests = {
            kind: list(instances[rank :: len(self.names)]) for kind, instances in replica.requests.items()
        }
        if lm.answers.path is not None:  # the evaluation's own file
            lm.answer(requests)
        else:
            memory = lm.answers
            try:
                with AnswerFile(self._file(name), known=self.questions.answers) as lm.answers:
                    lm.answer(requests)
            finally:
                lm.answers = memory
        return Outcome(name, True, used=usages(lm.decoder.tools))

    def answered(self) -> int:
        """How many answers are in the shards' files."""
        files = map(self._file, self.names)
        return sum(file.read_bytes().count(b"\n") for file in files if file.is_file())

    def _file(self, name: str) -> Path:
        return self.questions.answers.with_name(f"answers-{name}.jsonl")


@contextmanager
def _claim(file: Path) -> Iterator[bool]:
    """Yields whether this process has a shard's file to itself until the end of the block."""
    path = file.parent / "claims" / f"{file.stem}.lock"
    lock = lock_file(path)
    if not acquired(lock):
        yield False
        return
    try:
        yield True
        path.unlink(missing_ok=True)
    finally:
        lock.release()


def gather(answers: AnswerFile) -> None:
    """Moves the answers of shards on which nobody works into the evaluation's own file."""
    assert answers.path is not None
    for file in sorted(answers.path.parent.glob("answers-*.jsonl")):
        with _claim(file) as ours:
            if ours:
                answers.take(file)


def answer(questions: Questions, loaded: Loaded, lm: ToolformerLM | None = None) -> dict[str, Usage]:
    """Has all questions answered: by this model in this process, or by workers if none is given.

    Workers share them with those of equal commands. Returns the counts of the calls that were made, by tool.
    """
    from toolformer.evaluation import suite

    requests = suite.requests(loaded)
    total = sum(map(len, requests.values()))
    count = 1 if lm else max(1, min(total, SHARDS_PER_WORKER * questions.config.engine.workers))
    job = Answering(questions, _shard_names(requests, count))
    used: dict[str, Usage] = {}
    replica = Replica.of(lm, loaded, requests) if lm else None
    with (
        Bar(total=total, unit="answers", desc="evaluate", disable=replica is not None) as bar,
        closing(pool.finish(job, Queue(job.names), replica)) as outcomes,
    ):
        for outcome in outcomes:
            used = added(used, outcome.used) if outcome else used
            if not replica:
                answered = job.answered()
                if answered and not bar.n:
                    bar.n = answered
                    bar.restart()
                bar.update(answered - bar.n)
    return used


def _shard_names(requests: Mapping[str, Sequence[Instance]], count: int) -> tuple[str, ...]:
    content = {
        kind: [(request.task_name, request.args) for request in instances]
        for kind, instances in requests.items()
    }
    digest = hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()[:16]
    return tuple(f"{number:04d}-of-{count:04d}-{digest}" for number in range(count))
