"""One way to use workers: shards of texts and of questions are claimed, and one function does either."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from toolformer.decoding.recording import AnswerFile
from toolformer.errors import UserError
from toolformer.jobs.config import Config
from toolformer.jobs.engine import answering, pool
from toolformer.jobs.engine.plan import Queue
from toolformer.jobs.engine.work import Outcome


class Letters:
    """A job whose shards are letters. Others hold some of them at first, and finish some."""

    config = Config()

    def __init__(self, held: str = "", finished: str = "", bad: str = "") -> None:
        self.held, self.finished, self.bad = set(held), set(finished), bad

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        ours = name not in self.held | self.finished
        self.held.discard(name)
        yield ours

    def is_claimed(self, name: str) -> bool:
        return name in self.held

    def is_there(self, name: str) -> bool:
        return name in self.finished

    def load_replica(self) -> str:
        return "replica"

    def do_shard(self, replica: Any, name: str) -> Outcome:
        if name == self.bad:
            raise UserError(f"{name} is bad")
        return Outcome(name, replica == "replica")


def done_here(job: Letters) -> str:
    return "".join(outcome.name for outcome in pool.finish(job, Queue("abc")) if outcome)


def test_shards_that_others_finish_are_left_to_them() -> None:
    assert done_here(Letters(finished="b")) == "ac"


def test_shards_that_others_leave_unfinished_are_done() -> None:
    assert done_here(Letters(held="b")) == "acb"


def test_bad_input_in_a_shard_ends_the_work() -> None:
    with pytest.raises(UserError, match="b is bad"):
        done_here(Letters(bad="b"))


def test_answers_of_a_shard_at_work_are_not_gathered(tmp_path: Path) -> None:
    files = [tmp_path / f"answers-{name}.jsonl" for name in ("at-work", "left")]
    for number, file in enumerate(files):
        with AnswerFile(file) as answers:
            answers.add({f"key {number}": "yes"})
    with AnswerFile(tmp_path / "answers.jsonl") as answers:
        with answering._claim(files[0]):
            answering.gather(answers)
            assert "key 1" in answers and "key 0" not in answers
        answering.gather(answers)
        assert "key 0" in answers
    assert not any(file.exists() for file in files)
