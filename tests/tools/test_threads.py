"""Time limits and threads of tools: what hangs, blocks or cannot start costs only itself."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tools.recorders import ELSEWHERE, Closed, Recorder
from toolformer.tools import functions, runtime, threads
from toolformer.tools.base import Result
from toolformer.tools.cache import ResultCache
from toolformer.tools.functions import FunctionTool, load_module
from toolformer.tools.runtime import Limits, ToolRuntime


@pytest.fixture
def cache(tmp_path: Path) -> ResultCache:
    return ResultCache(tmp_path / "tools" / "x.sqlite")


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


LATE = Result(reason="no answer within 1 s a call", fault=True, final=True)
NOT_ASKED = Result(reason="tool hangs (not asked)", fault=True)


def hanging(gate: threading.Event) -> Callable[[str], Result]:
    """A tool's answer that waits at the gate for every call named so."""

    def answer(text: str) -> Result:
        if text.startswith("hang"):
            gate.wait()
        return Result(text)

    return answer


@pytest.mark.parametrize("workers", [1, 2])
def test_a_call_that_never_ends_costs_only_itself(
    gate: threading.Event, cache: ResultCache, workers: int
) -> None:
    """Neither those beside it in its batch nor those of later batches; it is not tried again."""
    tool = ToolRuntime(Closed(hanging(gate)), Limits(timeout=1.0, tries=3, workers=workers), cache)
    assert tool.run(["a", "hang", "b"], [ELSEWHERE] * 3) == [Result("a"), LATE, Result("b")]
    assert tool.run(["c", "d"], [ELSEWHERE] * 2) == [Result("c"), Result("d")]
    used = tool.usage()
    assert (used.executed, used.faults, used.retries) == (5, {LATE.reason: 1}, 0)


def test_a_tool_that_always_hangs_is_asked_a_bounded_number_of_times(gate: threading.Event) -> None:
    """Then its calls are faults after the time of one, until a thread that was left behind ends."""
    recorder = Recorder(hanging(gate))
    tool = ToolRuntime(recorder, Limits(timeout=0.05))
    inputs = [f"hang {n}" for n in range(200)]
    late = [Result(reason="no answer within 0.05 s a call", fault=True, final=True)] * threads.MOST_LATE
    assert tool.run(inputs, [ELSEWHERE] * 200) == late + [NOT_ASKED] * (200 - len(late))
    assert tool.run(["a"], [ELSEWHERE]) == [NOT_ASKED]
    assert len(recorder.batches) == len(late)
    gate.set()
    assert any(tool.run(["a"], [ELSEWHERE]) == [Result("a")] for _ in range(100))


def test_a_hiccup_that_makes_all_threads_late_costs_only_their_calls(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest wait for a thread to come back, which they do once the tool answers again."""
    monkeypatch.setattr(threads, "MOST_LATE", 2)
    tool = ToolRuntime(Closed(hanging(gate)), Limits(timeout=1.0))

    def recovers() -> None:
        while len(tool._threads._late) < 2 and not gate.wait(0.01):
            pass
        gate.set()

    threading.Thread(target=recovers, daemon=True).start()
    inputs = ["hang 0", "hang 1", *"abcdefgh"]
    found = tool.run(inputs, [ELSEWHERE] * len(inputs))
    assert found == [LATE, LATE, *(Result(text) for text in "abcdefgh")]


def test_what_was_not_asked_is_asked_by_a_further_try(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "MOST_LATE", 2)
    monkeypatch.setattr(runtime, "FIRST_WAIT", 0.01)
    tool = ToolRuntime(Closed(hanging(gate)), Limits(timeout=0.2, tries=2))
    count = tool._count

    def counted(usage: runtime.Usage) -> None:
        if usage.retries:
            gate.set()
        count(usage)

    monkeypatch.setattr(tool, "_count", counted)
    found = tool.run(["hang 0", "hang 1", "a"], [ELSEWHERE] * 3)
    assert found[2] == Result("a") and all(one.final for one in found[:2])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_thread_that_cannot_be_started_costs_one_try(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = ToolRuntime(Closed(Result), Limits(timeout=60.0, workers=workers))

    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        for _ in range(3):
            assert tool.run(["a"], [ELSEWHERE]) == [Result(reason=threads.NO_THREAD, fault=True)]
    assert not tool._threads._busy, "no later call waits for a thread that is not there"
    assert tool.run(["a"], [ELSEWHERE]) == [Result("a")]


def test_an_interrupted_batch_leaves_its_place_to_the_next(gate: threading.Event) -> None:
    """Ctrl-C, as in a notebook: the thread goes on, and another takes the next call."""
    main = threading.get_ident()

    def answer(text: str) -> Result:
        if text == "hang":
            signal.pthread_kill(main, signal.SIGINT)
            gate.wait()
        return Result(text)

    tool = ToolRuntime(Closed(answer), Limits(timeout=60.0))
    with pytest.raises(KeyboardInterrupt):
        tool.run(["hang"], [ELSEWHERE])
    assert not tool._threads._busy and len(tool._threads._late) == 1
    assert tool.run(["a"], [ELSEWHERE]) == [Result("a")]


@pytest.mark.parametrize("limits", [Limits(), Limits(timeout=60.0)])
def test_a_tool_that_cancels_itself_is_a_fault(limits: Limits) -> None:
    def answer(text: str) -> Result:
        raise asyncio.CancelledError

    (found,) = ToolRuntime(Closed(answer), limits).run(["a"], [ELSEWHERE])
    assert found == Result(reason="tool failed (CancelledError)", fault=True)


def test_parts_that_were_asked_for_are_lost_as_a_whole(gate: threading.Event) -> None:
    tool = ToolRuntime(Closed(hanging(gate)), Limits(timeout=1.0, batch_size=2))
    assert tool.run(["a", "b", "c", "hang", "d"], [ELSEWHERE] * 5) == [
        Result("a"), Result("b"), LATE, LATE, Result("d"),
    ]  # fmt: skip


def test_an_asynchronous_call_that_never_ends_is_cancelled(tmp_path: Path) -> None:
    """Under a time limit its batch stays together: calls that wait for each other still meet."""
    (tmp_path / "slow.py").write_text(ASYNCHRONOUS, encoding="utf-8")
    for name in ("slow", "later"):
        made = FunctionTool(f"{tmp_path / 'slow.py'}:{name}")
        tool = ToolRuntime(made, Limits(timeout=2.0))
        first, hangs, second = tool.run(["1", "0", "2"], [ELSEWHERE] * 3)
        assert (first.text, second.text) == ("1", "2")
        assert hangs.fault and hangs.reason == "no answer within 2 s a call"
        cancelled = load_module(str(tmp_path / "slow.py")).CANCELLED
        deadline = time.monotonic() + 60  # the runtime may have given it up before the loop has cancelled it
        while not cancelled and time.monotonic() < deadline:
            time.sleep(0.01)
        assert cancelled.pop() == 0


BLOCKING = '''
import asyncio
import threading

GATE = threading.Event()

async def blocks(number: int) -> int:
    """Blocks the loop at 5."""
    if number == 5:
        GATE.wait()
    return number

async def stubborn(number: int) -> int:
    """Takes no notice of being cancelled at 5."""
    while number == 5 and not GATE.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            pass
    return number
'''


@pytest.mark.parametrize("name", ["blocks", "stubborn"])
def test_an_asynchronous_call_that_cannot_be_cancelled_costs_only_itself(tmp_path: Path, name: str) -> None:
    (tmp_path / "tools.py").write_text(BLOCKING, encoding="utf-8")
    tool = ToolRuntime(FunctionTool(f"{tmp_path / 'tools.py'}:{name}"), Limits(timeout=1.0))
    try:
        expected = [LATE if n == 5 else Result(str(n)) for n in range(20)]
        assert tool.run([str(n) for n in range(20)], [ELSEWHERE] * 20) == expected
        assert tool.run(["6"], [ELSEWHERE]) == [Result("6")]
    finally:
        load_module(str(tmp_path / "tools.py")).GATE.set()


def test_calls_that_all_block_the_loop_are_a_bounded_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions, "MOST_BLOCKED", 2)
    (tmp_path / "tools.py").write_text(BLOCKING, encoding="utf-8")
    tool = ToolRuntime(FunctionTool(f"{tmp_path / 'tools.py'}:blocks"), Limits(timeout=0.2))
    try:
        late = Result(reason="no answer within 0.2 s a call", fault=True, final=True)
        assert tool.run(["5"] * 4, [ELSEWHERE] * 4) == [late] * 2 + [functions.NOT_ASKED] * 2
    finally:
        load_module(str(tmp_path / "tools.py")).GATE.set()


ASYNCHRONOUS = '''
import asyncio

CANCELLED = []
WAITING = []

async def slow(number: int) -> int:
    """Returns the number when two are there."""
    try:
        WAITING.append(number)
        while number == 0 or len(WAITING) < 3:
            await asyncio.sleep(0.001)
    except asyncio.CancelledError:
        CANCELLED.append(number)
        raise
    return number

def later(number: int):
    """Returns something to wait for."""
    return slow(number)
'''


def test_workers_call_the_tool_side_by_side() -> None:
    """Each waits for the others: with fewer threads the barrier would break."""
    barrier = threading.Barrier(3, timeout=60)

    def answer(text: str) -> Result:
        barrier.wait()
        return Result(text)

    results = ToolRuntime(Closed(answer), Limits(workers=3)).run(list("abc"), [ELSEWHERE] * 3)
    assert [one.text for one in results] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("limits", "sizes"), [(Limits(batch_size=2), [2, 2, 1]), (Limits(workers=2), [2, 3])]
)
def test_calls_are_handed_over_in_parts(limits: Limits, sizes: list[int]) -> None:
    tool = Closed()
    results = ToolRuntime(tool, limits).run(list("abcde"), [ELSEWHERE] * 5)
    assert [one.text for one in results] == [f"<{text}>" for text in "abcde"]
    assert sorted(map(len, tool.batches)) == sorted(sizes)


def test_threads_that_ask_at_once_execute_a_call_once(cache: ResultCache) -> None:
    tool = Closed()
    inside = ToolRuntime(tool, Limits(workers=4), cache)
    inputs = [str(n) for n in range(40)]
    found: list[list[Result]] = []
    askers = [
        threading.Thread(target=lambda: found.append(inside.run(inputs, [ELSEWHERE] * 40))) for _ in range(6)
    ]
    for thread in askers:
        thread.start()
    for thread in askers:
        thread.join()
    assert found == [[Result(f"<{text}>") for text in inputs]] * 6
    assert sorted(text for batch in tool.batches for text in batch) == sorted(inputs)
