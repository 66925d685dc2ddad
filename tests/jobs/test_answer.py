"""Questions as shared work: chunks, what is noted of them, and what two workers answer."""

from pathlib import Path

import pytest

from tests.build import Patch
from tests.processes import config
from toolformer.jobs import answer, share
from toolformer.jobs.answer import Answering, Questions, Replica
from toolformer.jobs.share import Chunk
from toolformer.tools.runtime import Usage


@pytest.fixture
def work(tmp_path: Path) -> Answering:
    questions = Questions(config(tmp_path), "m", {}, [], {}, None, None, tmp_path / "answers.jsonl")
    return Answering(questions, ("a", "b", "c"))


def test_a_finished_chunk_has_a_note_until_it_is_forgotten(work: Answering, monkeypatch: Patch) -> None:
    asked: list[tuple[int, int]] = []

    class Counting(Replica):
        def __init__(self, questions: Questions) -> None:
            pass

        def answer(self, rank: int, count: int) -> dict[str, Usage]:
            asked.append((rank, count))
            return {"calendar": Usage(2, 1, {"late": 1})}

    monkeypatch.setattr(answer, "Replica", Counting)
    with work.claim("b") as ours, work.claim("b") as theirs:
        assert ours and not theirs
        work.do(work.load(), Chunk("b", 1))
    assert work.finished() == {"b"} and work.used() == {"calendar": Usage(2, 1, {"late": 1})}
    share.share(work)
    assert asked == [(1, 3), (0, 3), (2, 3)] and work.finished() == {"a", "b", "c"}
    work.forget()
    assert not work.finished() and not list(work.questions.answers.parent.glob("claims/*.json"))


@pytest.mark.parametrize("note", ["", "[]", '{"calendar": {"x": 1}}'])
def test_a_damaged_note_counts_nothing(work: Answering, note: str) -> None:
    with work.claim("a"):
        (work.questions.answers.parent / "claims" / "a.json").write_text(note)
    assert work.has("a") and work.used() == {}


def test_other_questions_have_other_chunks(work: Answering) -> None:
    one, two = (Answering.of(work.questions, {"generate_until": []}).names for _ in range(2))
    assert one == two and len(one) == 1
