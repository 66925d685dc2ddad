"""The loop in which equal workers share chunks, in one process and in several, with work that is a letter a file."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from toolformer.errors import UserError
from toolformer.jobs.config import Config, EngineConfig
from toolformer.jobs.share import RETRIES, Chunk, do_all, share
from toolformer.storage import acquired, lock_file

LETTERS = "abcdef"


class Letters:
    """Chunks that are letters; a worker writes a file for each, and may fail or die at one of them."""

    def __init__(self, folder: Path, workers: int = 1, bad: str = "", deadly: str = "") -> None:
        self.config = Config(engine=EngineConfig(workers=workers))
        self.folder, self.bad, self.deadly = folder, bad, deadly

    def chunks(self) -> Iterator[Chunk]:
        return (Chunk(letter, letter.upper()) for letter in LETTERS)

    def finished(self) -> set[str]:
        return {path.stem for path in self.folder.glob("*.txt")}

    def has(self, name: str) -> bool:
        return name in self.finished()

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        lock = lock_file(self.folder / f"{name}.lock")
        ours = acquired(lock)
        try:
            yield ours
        finally:
            lock.release()

    def load(self) -> str:
        return f"by {os.getpid()}"

    def do(self, replica: Any, chunk: Chunk) -> None:
        if chunk.name == self.bad:
            raise UserError(f"{chunk.content} is bad")
        if chunk.name in self.deadly:
            with (self.folder / "deaths").open("a") as deaths:
                deaths.write("x")
            if len((self.folder / "deaths").read_text()) < 3 or len(self.deadly) > 1:
                os.kill(os.getpid(), signal.SIGKILL)
        (self.folder / f"{chunk.name}.txt").write_text(f"{chunk.content} {replica}")


def done_by(work: Letters) -> str:
    """The letters that were newly done, in their order."""
    heard: list[tuple[str, bool]] = []
    do_all(work, lambda name, is_new: heard.append((name, is_new)))
    assert sorted(name for name, _ in heard) == [*LETTERS], "each is heard of once"
    return "".join(name for name, is_new in heard if is_new)


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("earlier")
    assert done_by(Letters(tmp_path)) == "acdef"
    assert (tmp_path / "b.txt").read_text() == "earlier"


def test_a_model_is_loaded_only_for_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share(Letters(tmp_path))
    monkeypatch.setattr(Letters, "load", lambda self: pytest.fail("loaded"))
    assert done_by(Letters(tmp_path)) == ""


def test_what_others_hold_is_done_last_once_they_leave_it(tmp_path: Path) -> None:
    work, order = Letters(tmp_path), ""
    with work.claim("b"):
        other = Letters(tmp_path)
        chunks = iter([*other.chunks()])

        def leave() -> Iterator[Chunk]:
            yield from chunks
            held.__exit__(None, None, None)

        held = work.claim("c")
        held.__enter__()
        other.chunks = leave  # type: ignore[method-assign]
        heard: list[str] = []

        def hear(name: str, is_new: bool) -> None:
            heard.append(name)
            if name == "c":
                (tmp_path / "b.txt").write_text("by another")

        share(other, hear)
        order = "".join(heard)
    assert order == "adefcb"
    assert (tmp_path / "b.txt").read_text() == "by another"


def test_bad_input_ends_the_work(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="C is bad"):
        done_by(Letters(tmp_path, bad="c"))
    assert Letters(tmp_path).finished() == {"a", "b"}


def test_bad_input_in_a_worker_ends_the_work(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="C is bad"):
        done_by(Letters(tmp_path, workers=2, bad="c"))


def test_a_worker_that_dies_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert sorted(done_by(Letters(tmp_path, workers=2, deadly="d"))) == [*LETTERS]
    assert str(os.getpid()) not in "".join(path.read_text() for path in tmp_path.glob("*.txt"))
    assert "a worker died (signal 9); another takes its place" in caplog.text


def test_workers_that_die_again_and_again_end_the_work(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=f"{RETRIES + 1} workers died in a row .*signal 9.*the same command resumes"
    ):
        done_by(Letters(tmp_path, workers=2, deadly=LETTERS))
