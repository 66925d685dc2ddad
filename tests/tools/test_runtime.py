"""What every tool runs in: the cache changes no result, faults stay results, limits hold."""

from __future__ import annotations

import asyncio
import datetime
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tools.recorders import ELSEWHERE, Closed, Recorder
from tests.tools.test_all_tools import HOSTILE, MAKERS
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.tools import runtime
from toolformer.tools.base import Result, Tool
from toolformer.tools.cache import ResultCache
from toolformer.tools.calendar import Calendar
from toolformer.tools.runtime import Limits, ToolRuntime, Usage
from toolformer.tools.search import BM25, WikiSearch


@pytest.fixture
def cache(tmp_path: Path) -> ResultCache:
    return ResultCache(tmp_path / "tools" / "x.sqlite")


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FIRST_WAIT", 0.001)


# ------------------------------------------------------------------------ the cache


@pytest.mark.parametrize("key", MAKERS)
def test_the_cache_changes_no_result(key: str, retriever: BM25, cache: ResultCache) -> None:
    """Nor the runtime: the bare tool's results, first and again, of hostile calls from documents of many kinds."""
    documents = [
        ELSEWHERE, Document("dated", "x", date=datetime.date(2020, 2, 29)), Document("own", "", source_id="Lighthouse"),
        *(Document(str(n), text) for n, text in enumerate(HOSTILE[:6])),
    ]  # fmt: skip
    inputs = [text for text in HOSTILE for _ in documents]
    about = documents * len(HOSTILE)
    bare = MAKERS[key](retriever).run(inputs, about)
    cached = ToolRuntime(MAKERS[key](retriever), cache=cache)
    assert cached.run(inputs, about) == bare
    assert 0 < cached.usage().executed <= len(inputs)
    again = ToolRuntime(MAKERS[key](retriever), cache=ResultCache(cache.path))
    assert again.run(inputs, about) == bare
    assert again.usage().executed == 0
    limited = ToolRuntime(MAKERS[key](retriever), Limits(timeout=60, workers=3, batch_size=7))
    assert limited.run(inputs, about) == bare


def test_what_a_tool_says_of_the_document_is_what_matters(retriever: BM25, cache: ResultCache) -> None:
    def executed(tool: Tool, *documents: Document) -> int:
        inside = ToolRuntime(tool, cache=ResultCache(cache.path.with_name(tool.name)))
        inside.run(["lamp" if tool.name == "WikiSearch" else ""] * len(documents), documents)
        return inside.usage().executed

    first, second = datetime.date(2021, 5, 3), datetime.date(2021, 5, 4)
    assert executed(Calendar(), Document("a", "x", date=first), Document("b", "y", date=first)) == 1
    assert executed(Calendar(), Document("a", "x", date=second)) == 1
    assert (
        executed(WikiSearch(retriever), ELSEWHERE, Document("d", ELSEWHERE.text, source_id="Lighthouse")) == 2
    )
    # A tool that says nothing may depend on anything.
    fields = {"doc_id": "e", "text": "t", "url": "u", "date": datetime.date.min, "source_id": "s"}
    changed: list[Any] = [{"doc_id": "d", "text": "x", key: value} for key, value in fields.items()]
    assert executed(Recorder(), Document("d", "x"), *(Document(**change) for change in changed)) == 6


def test_the_clock_is_part_of_an_undated_calendars_call(
    cache: ResultCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Day(datetime.date):
        now = datetime.date(2024, 2, 29)

        @classmethod
        def today(cls) -> datetime.date:  # type: ignore[override]
            return cls.now

    monkeypatch.setattr("toolformer.tools.calendar.datetime", SimpleNamespace(date=Day))
    calendar = ToolRuntime(Calendar(use_clock=True), cache=cache)
    assert calendar.run([""], [ELSEWHERE])[0].text == "Today is Thursday, February 29, 2024."
    Day.now = datetime.date(2024, 3, 1)
    assert calendar.run([""], [ELSEWHERE])[0].text == "Today is Friday, March 1, 2024."


def test_equal_calls_are_executed_once_and_the_next_time_not_at_all(cache: ResultCache) -> None:
    tool = Closed()
    inputs = ["a", "b", "a", "c", "b"]
    expected = [Result(f"<{text}>") for text in inputs]
    first = ToolRuntime(tool, cache=cache)
    assert first.run(inputs, [ELSEWHERE] * 5) == expected
    assert tool.batches == [["a", "b", "c"]]
    assert first.run(["c", "d"], [Document("other", "text")] * 2) == [Result("<c>"), Result("<d>")]
    assert tool.batches == [["a", "b", "c"], ["d"]]
    used = first.usage()
    assert (used.calls, used.executed, used.figures()["hit_rate"]) == (7, 4, pytest.approx(3 / 7))
    assert first.usage() == Usage()


def test_a_refusal_is_an_answer_and_a_fault_is_not(cache: ResultCache) -> None:
    answers = {"refused": Result(reason="nothing found"), "down": Result(reason="server is away", fault=True)}
    tool = Closed(answers.__getitem__)
    inside = ToolRuntime(tool, cache=cache)
    for _ in range(2):
        assert inside.run(list(answers), [ELSEWHERE] * 2) == list(answers.values())
    assert tool.batches == [["refused", "down"], ["down"]]
    assert inside.usage().faults == {"server is away": 2}


# ------------------------------------------------------------- a cache that is no good


def test_a_file_that_is_no_database_costs_time_only(
    cache: ResultCache, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.path.parent.mkdir()
    cache.path.write_bytes(b"not a database " * 1000)
    for path in (cache.path, cache.path / "x.sqlite"):
        tool = ToolRuntime(Closed(), cache=ResultCache(path))
        for _ in range(2):
            assert tool.run(["a", "a"], [ELSEWHERE] * 2) == [Result("<a>")] * 2
        assert tool.usage().executed == 2
    assert sum("file is not a database" in record.getMessage() for record in caplog.records) == 1


# --------------------------------------------------------------------------- faults


@pytest.mark.parametrize("limits", [Limits(), Limits(timeout=60, workers=2)])
def test_an_exception_is_a_result(limits: Limits, cache: ResultCache) -> None:
    kinds = (RuntimeError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)

    def answer(text: str) -> Result:
        raise kinds[int(text)]

    results = ToolRuntime(Closed(answer), limits, cache).run(list("01234"), [ELSEWHERE] * 5)
    assert results == [Result(reason=f"tool failed ({kind.__name__})", fault=True) for kind in kinds]


@pytest.mark.parametrize("answers", [["text"], [None], [Result(5)], []])  # type: ignore[arg-type]
def test_an_answer_of_another_type_is_a_fault(answers: list[Result]) -> None:
    class Wrong(Closed):
        def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
            return answers

    (result,) = ToolRuntime(Wrong()).run(["a"], [ELSEWHERE])
    assert result.fault and (result.reason or "").startswith("tool failed")


@pytest.mark.parametrize("limits", [Limits(), Limits(timeout=60, workers=2)])
def test_a_user_error_is_raised(limits: Limits, cache: ResultCache) -> None:
    def answer(text: str) -> Result:
        raise UserError("search: there is no file x")

    recorder = Closed(answer)
    tool = ToolRuntime(recorder, limits, cache)
    with pytest.raises(UserError, match="there is no file x"):
        tool.run(list("abcdefgh"), [ELSEWHERE] * 8)
    assert len(recorder.batches) <= limits.workers, "what cannot work is not asked for the others"


def test_a_fault_is_tried_again_alone_and_the_others_not(no_waiting: None, cache: ResultCache) -> None:
    left = {"a": 0, "b": 2, "c": 9}

    def answer(text: str) -> Result:
        left[text] -= 1
        return Result(text) if left[text] < 0 else Result(reason="away", fault=True)

    tool = Closed(answer)
    inside = ToolRuntime(tool, Limits(tries=3), cache)
    assert inside.run(list("abc"), [ELSEWHERE] * 3) == [
        Result("a"), Result("b"), Result(reason="away", fault=True),
    ]  # fmt: skip
    assert tool.batches == [["a", "b", "c"], ["b"], ["c"], ["b"], ["c"]]
    used = inside.usage()
    assert (used.executed, used.retries, used.faults) == (3, 4, {"away": 1})


def test_one_call_that_breaks_the_tool_takes_no_other_with_it(no_waiting: None) -> None:
    def answer(text: str) -> Result:
        if text == "bad":
            raise RuntimeError
        return Result(text)

    recorder = Recorder(answer)
    results = ToolRuntime(recorder, Limits(tries=2)).run(["a", "bad", "b"], [ELSEWHERE] * 3)
    assert [result.text for result in results] == ["a", None, "b"]
    assert recorder.batches == [["a", "bad", "b"], ["a"], ["bad"], ["b"], ["bad"]]


# ------------------------------------------------------------------ time and threads


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def hanging(gate: threading.Event) -> Callable[[str], Result]:
    """An answer that waits at the gate for every call named so."""

    def answer(text: str) -> Result:
        if text.startswith("hang"):
            gate.wait()
        return Result(text)

    return answer


def late(seconds: str) -> Result:
    return Result(reason=f"no answer within {seconds} s a call", fault=True, final=True)


NOT_ASKED = Result(reason="tool hangs (not asked)", fault=True)


def test_a_call_that_never_ends_costs_only_itself(gate: threading.Event, cache: ResultCache) -> None:
    """Neither those beside it in its batch nor those of later batches; it is not tried again."""
    tool = ToolRuntime(Closed(hanging(gate)), Limits(timeout=1.0, tries=3, workers=2), cache)
    assert tool.run(["a", "hang", "b"], [ELSEWHERE] * 3) == [Result("a"), late("1"), Result("b")]
    assert tool.run(["c", "d"], [ELSEWHERE] * 2) == [Result("c"), Result("d")]
    used = tool.usage()
    assert (used.executed, used.faults, used.retries) == (5, {late("1").reason: 1}, 0)
    parts = ToolRuntime(Closed(hanging(gate)), Limits(timeout=1.0, batch_size=2))
    assert parts.run(["a", "b", "c", "hang", "d"], [ELSEWHERE] * 5) == [
        Result("a"), Result("b"), late("1"), late("1"), Result("d"),
    ]  # fmt: skip


def test_a_tool_that_always_hangs_is_asked_a_bounded_number_of_times(gate: threading.Event) -> None:
    """Then its calls are faults after the time of one, until a thread that was left behind ends."""
    recorder = Recorder(hanging(gate))
    tool = ToolRuntime(recorder, Limits(timeout=0.05))
    results = tool.run([f"hang {n}" for n in range(200)], [ELSEWHERE] * 200)
    asked = len(recorder.batches)
    assert asked < 20 and results == [late("0.05")] * asked + [NOT_ASKED] * (200 - asked)
    assert tool.run(["a"], [ELSEWHERE]) == [NOT_ASKED]
    gate.set()
    assert any(tool.run(["a"], [ELSEWHERE]) == [Result("a")] for _ in range(100))


def test_ctrl_c_ends_the_wait_and_the_tool_can_be_used_again(gate: threading.Event) -> None:
    main = threading.get_ident()

    def answer(text: str) -> Result:
        if text == "hang":
            signal.pthread_kill(main, signal.SIGINT)
            gate.wait()
        return Result(text)

    tool = ToolRuntime(Closed(answer))
    # A shell's background job starts with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            tool.run(["hang"], [ELSEWHERE])
    finally:
        signal.signal(signal.SIGINT, before)
    assert tool.run(["a"], [ELSEWHERE]) == [Result("a")]


def test_workers_call_the_tool_side_by_side_and_in_parts() -> None:
    """Each waits for the others: with fewer threads the barrier would break."""
    barrier = threading.Barrier(3, timeout=60)

    def answer(text: str) -> Result:
        barrier.wait()
        return Result(text)

    together = ToolRuntime(Closed(answer), Limits(workers=3))
    assert together.run(list("abc"), [ELSEWHERE] * 3) == list(map(Result, "abc"))
    for limits, sizes in ((Limits(batch_size=2), [1, 2, 2]), (Limits(workers=2), [2, 3])):
        tool = Closed()
        results = ToolRuntime(tool, limits).run(list("abcde"), [ELSEWHERE] * 5)
        assert [result.text for result in results] == [f"<{text}>" for text in "abcde"]
        assert sorted(map(len, tool.batches)) == sizes


HANGS = """
import threading, time
from toolformer.tools.base import Result
from toolformer.tools.runtime import Limits, ToolRuntime

class Hangs:
    name = "Hangs"
    def run(self, inputs, documents):
        time.sleep(10_000)

print(ToolRuntime(Hangs(), Limits(timeout=0.2)).run(["x"], [None])[0].reason)
"""


def test_a_process_ends_though_its_tool_hangs() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("no answer within 0.2 s a call\n", 0)
