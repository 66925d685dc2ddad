"""What every tool runs in: the cache changes no result, faults stay results, limits hold."""

import asyncio
import datetime
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.build import OTHER_DOCUMENT, Closed, Recorder
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.tools import runtime
from toolformer.tools.base import Result, Tool
from toolformer.tools.cache import ResultCache, call_key
from toolformer.tools.calendar import Calendar
from toolformer.tools.retrieval.bm25 import BM25
from toolformer.tools.runtime import Limits, ToolRuntime, Usage
from toolformer.tools.search import WikiSearch


@pytest.fixture
def cache(tmp_path: Path) -> ResultCache:
    return ResultCache(tmp_path / "tools" / "x.sqlite")


def test_a_cached_answer_depends_on_the_documents_identity(retriever: BM25, cache: ResultCache) -> None:
    def executed(tool: Tool, *documents: Document) -> int:
        inside = ToolRuntime(tool, cache=ResultCache(cache.path.with_name(tool.name)))
        inside.run(["lamp" if tool.name == "WikiSearch" else ""] * len(documents), documents)
        return inside.usage().executed

    first, second = datetime.date(2021, 5, 3), datetime.date(2021, 5, 4)
    assert executed(Calendar(), Document("a", "x", date=first), Document("b", "y", date=first)) == 1
    assert executed(Calendar(), Document("a", "x", date=second)) == 1
    own = Document("d", OTHER_DOCUMENT.text, source_id="Lighthouse")
    assert executed(WikiSearch(retriever), OTHER_DOCUMENT, own) == 2
    # A tool that says nothing may depend on anything.
    fields = {"doc_id": "e", "text": "t", "url": "u", "date": datetime.date.min, "source_id": "s"}
    changed: list[Any] = [{"doc_id": "d", "text": "x", key: value} for key, value in fields.items()]
    assert executed(Recorder(), Document("d", "x"), *(Document(**change) for change in changed)) == 6
    today = datetime.date.today().isoformat()
    by_clock = Calendar(use_clock=True).depends_on(OTHER_DOCUMENT)
    assert by_clock in (today, datetime.date.today().isoformat())


def test_equal_calls_are_executed_once_and_faults_are_not_cached(cache: ResultCache) -> None:
    answers = {"refused": Result(reason="nothing found"), "down": Result(reason="server is away", fault=True)}
    tool = Closed(lambda text: answers.get(text, Result(f"<{text}>")))
    inside = ToolRuntime(tool, cache=cache)
    expected = [Result("<a>"), *answers.values(), Result("<a>")]
    assert inside.run(["a", *answers, "a"], [OTHER_DOCUMENT] * 4) == expected
    assert inside.run(["a", *answers, "b"], [Document("o", "t")] * 4) == [*expected[:3], Result("<b>")]
    assert tool.batches == [["a", *answers], ["down", "b"]]
    used = inside.usage()
    assert (used.calls, used.executed, runtime.metrics({"x": used})["tools/x/hit_rate"]) == (8, 5, 3 / 8)
    assert used.faults == {"server is away": 2} and inside.usage() == Usage()


@pytest.mark.parametrize("change", ["text = '43'", "text = NULL, reason = '42'"])
def test_a_changed_result_is_not_used(
    cache: ResultCache, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [call_key(text, "") for text in ("40 + 2", "41 + 1")]
    cache.write({key: Result("42") for key in keys})
    with sqlite3.connect(cache.path) as connection:
        connection.execute(f"UPDATE results SET {change} WHERE key = ?", (keys[0],))
    assert cache.read(keys) == {keys[1]: Result("42")}
    assert "1 damaged results are ignored" in caplog.text
    cache.write({keys[0]: Result("42")})
    assert cache.read(keys) == {key: Result("42") for key in keys}


def test_a_file_that_is_no_database_costs_time_only(
    cache: ResultCache, caplog: pytest.LogCaptureFixture
) -> None:
    cache.path.parent.mkdir()
    cache.path.write_bytes(b"not a database " * 1000)
    for path in (cache.path, cache.path / "x.sqlite"):
        tool = ToolRuntime(Closed(), cache=ResultCache(path))
        for _ in range(2):
            assert tool.run(["a", "a"], [OTHER_DOCUMENT] * 2) == [Result("<a>")] * 2
        assert tool.usage().executed == 2
    assert sum("file is not a database" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("limits", [Limits(), Limits(timeout=60, workers=2)])
def test_an_exception_is_a_result_and_a_user_error_is_raised(limits: Limits, cache: ResultCache) -> None:
    kinds = (RuntimeError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)

    def answer(text: str) -> Result:
        raise kinds[int(text)] if text.isdigit() else UserError("search: there is no file x")

    recorder = Closed(answer)
    tool = ToolRuntime(recorder, limits, cache)
    results = tool.run(list("01234"), [OTHER_DOCUMENT] * 5)
    assert results == [Result(reason=f"tool failed ({kind.__name__})", fault=True) for kind in kinds]
    recorder.batches.clear()
    with pytest.raises(UserError, match="there is no file x"):
        tool.run(list("abcdefgh"), [OTHER_DOCUMENT] * 8)
    assert len(recorder.batches) <= limits.workers, "what cannot work is not asked for the others"


def test_a_full_gpu_is_no_fault_of_the_tool() -> None:
    """Nor of the model that asks, whose batch stays as it is."""

    def fill(text: str) -> Result:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(
        UserError, match=r"full in the tool's own model, with one call; finished work is kept: see"
    ):
        ToolRuntime(Recorder(fill)).run(["a", "b"], [Document("d", "")] * 2)


def test_no_calls_have_no_results() -> None:
    assert ToolRuntime(Recorder()).run([], []) == []


@pytest.mark.parametrize("answers", [["text"], [None], [Result(5)], []])  # type: ignore[arg-type]
def test_an_answer_of_another_type_is_a_fault(answers: list[Result]) -> None:
    class Wrong(Recorder):
        def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
            return answers

    (result,) = ToolRuntime(Wrong()).run(["a"], [OTHER_DOCUMENT])
    assert result.fault and (result.reason or "").startswith("tool failed")


def test_a_fault_is_tried_again_alone_and_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch, cache: ResultCache
) -> None:
    monkeypatch.setattr(runtime, "FIRST_WAIT", 0.001)
    left = {"a": 0, "b": 2, "c": 9}

    def answer(text: str) -> Result:
        if text == "raises":
            raise RuntimeError
        left[text] -= 1
        return Result(text) if left[text] < 0 else Result(reason="away", fault=True)

    tool = Closed(answer)
    inside = ToolRuntime(tool, Limits(tries=3), cache)
    away = Result(reason="away", fault=True)
    assert inside.run(list("abc"), [OTHER_DOCUMENT] * 3) == [Result("a"), Result("b"), away]
    assert tool.batches == [["a", "b", "c"], ["b"], ["c"], ["b"], ["c"]]
    used = inside.usage()
    assert (used.executed, used.retries, used.faults) == (3, 4, {"away": 1})
    recorder = Recorder(answer)  # all of its batch meets the exception
    results = ToolRuntime(recorder, Limits(tries=2)).run(["a", "raises", "b"], [OTHER_DOCUMENT] * 3)
    assert [result.text for result in results] == ["a", None, "b"]
    assert recorder.batches == [["a", "raises", "b"], ["a"], ["raises"], ["b"], ["raises"]]


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def hanging(gate: threading.Event) -> Callable[[str], Result]:
    """An answer that waits at the gate for every call named so."""
    return lambda text: Result(text if not text.startswith("hang") or gate.wait() else "")


def late(seconds: str) -> Result:
    return Result(reason=f"no answer within {seconds} s a call", fault=True, final=True)


def test_a_call_that_never_ends_costs_only_itself(gate: threading.Event, cache: ResultCache) -> None:
    """Neither those beside it in its batch nor those of later batches; it is not tried again."""
    tool = ToolRuntime(Closed(hanging(gate)), Limits(timeout=1.0, tries=3, workers=2), cache)
    assert tool.run(["a", "hang", "b"], [OTHER_DOCUMENT] * 3) == [Result("a"), late("1"), Result("b")]
    assert tool.run(["c", "d"], [OTHER_DOCUMENT] * 2) == [Result("c"), Result("d")]
    used = tool.usage()
    assert (used.executed, used.faults, used.retries) == (5, {late("1").reason: 1}, 0)
    parts = ToolRuntime(Closed(hanging(gate)), Limits(timeout=1.0, batch_size=2))
    assert parts.run(["a", "b", "c", "hang", "d"], [OTHER_DOCUMENT] * 5) == [
        Result("a"), Result("b"), late("1"), late("1"), Result("d"),
    ]  # fmt: skip


def test_a_tool_that_always_hangs_is_asked_a_few_times(gate: threading.Event) -> None:
    """Then its calls are faults after the time of one, until a thread that was left behind ends."""
    recorder = Recorder(hanging(gate))
    tool = ToolRuntime(recorder, Limits(timeout=0.05))
    results = tool.run([f"hang {n}" for n in range(200)], [OTHER_DOCUMENT] * 200)
    asked, not_asked = len(recorder.batches), Result(reason="tool hangs (not asked)", fault=True)
    assert asked < 20 and results == [late("0.05")] * asked + [not_asked] * (200 - asked)
    assert tool.run(["a"], [OTHER_DOCUMENT]) == [not_asked]
    gate.set()
    assert any(tool.run(["a"], [OTHER_DOCUMENT]) == [Result("a")] for _ in range(100))


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
            tool.run(["hang"], [OTHER_DOCUMENT])
    finally:
        signal.signal(signal.SIGINT, before)
    assert tool.run(["a"], [OTHER_DOCUMENT]) == [Result("a")]


def test_workers_call_the_tool_side_by_side_and_in_parts() -> None:
    """Each waits for the others: with fewer threads the barrier would break."""
    barrier = threading.Barrier(3, timeout=60)
    together = ToolRuntime(Closed(lambda text: Result(f"{text}{barrier.wait()}")), Limits(workers=3))
    assert not any(result.fault for result in together.run(list("abc"), [OTHER_DOCUMENT] * 3))
    for limits, sizes in ((Limits(batch_size=2), [1, 2, 2]), (Limits(workers=2), [2, 3])):
        tool = Closed()
        results = ToolRuntime(tool, limits).run(list("abcde"), [OTHER_DOCUMENT] * 5)
        assert [result.text for result in results] == [f"<{text}>" for text in "abcde"]
        assert sorted(map(len, tool.batches)) == sizes


HANGS = """
import time
from toolformer.tools.base import Tool
from toolformer.tools.runtime import Limits, ToolRuntime
class Hangs(Tool):
    name = "Hangs"
    def run(self, inputs, documents):
        time.sleep(10_000)
print(ToolRuntime(Hangs(), Limits(timeout=0.2)).run(["x"], [None])[0].reason)
"""


def test_a_process_ends_though_its_tool_hangs() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("no answer within 0.2 s a call\n", 0)
