"""What every tool runs in: the cache changes no result, faults stay results, limits hold."""

from __future__ import annotations

import asyncio
import datetime
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.test_all_tools import HOSTILE, MAKERS
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.tools import cache as caching
from toolformer.tools import functions, runtime, threads
from toolformer.tools.base import Result
from toolformer.tools.cache import ResultCache, call_key
from toolformer.tools.calendar import Calendar
from toolformer.tools.functions import FunctionTool, load_module
from toolformer.tools.runtime import Limits, ToolRuntime, Usage
from toolformer.tools.search import BM25, WikiSearch

ELSEWHERE = Document("d", "An unrelated text.")


class Recorder:
    """A user's tool that says nothing of what it depends on; answers by a function and remembers its batches."""

    name = "Recorder"

    def __init__(self, answer: Callable[[str], Result] = lambda text: Result(f"<{text}>")) -> None:
        self.answer = answer
        self.batches: list[list[str]] = []

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        self.batches.append(list(inputs))
        return [self.answer(text) for text in inputs]


class Closed(Recorder):
    """The same, depending on its input alone."""

    def depends_on(self, document: Document) -> str:
        return ""


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
    days = [
        Document("a", "x", date=datetime.date(2021, 5, 3)),
        Document("b", "y", date=datetime.date(2021, 5, 3)),
    ]
    other = Document("a", "x", date=datetime.date(2021, 5, 4))
    calendar = ToolRuntime(Calendar(), cache=cache)
    first, second, third = calendar.run([""] * 3, [*days, other])
    assert first == second != third and calendar.usage().executed == 2
    search = ToolRuntime(WikiSearch(retriever), cache=cache)
    lamps = search.run(["lamp"] * 2, [ELSEWHERE, Document("d", "An unrelated text.", source_id="Lighthouse")])
    assert lamps[0] != lamps[1] and search.usage().executed == 2
    # A tool that says nothing may depend on anything.
    for change in (
        {"doc_id": "e"},
        {"text": "t"},
        {"url": "u"},
        {"date": datetime.date.min},
        {"source_id": "s"},
    ):
        one = ToolRuntime(Recorder(), cache=ResultCache(cache.path.with_name("-".join(change))))
        one.run(["q"] * 2, [Document("d", "x"), Document(**{"doc_id": "d", "text": "x", **change})])  # type: ignore[arg-type]
        assert one.usage().executed == 2


def test_the_clock_is_part_of_an_undated_calendars_call(
    cache: ResultCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Day(datetime.date):
        now = datetime.date(2024, 2, 29)

        @classmethod
        def today(cls) -> datetime.date:  # type: ignore[override]
            return cls.now

    monkeypatch.setattr("toolformer.tools.calendar.datetime.date", Day)
    calendar = ToolRuntime(Calendar(use_clock=True), cache=cache)
    assert calendar.run([""], [ELSEWHERE])[0].text == "Today is Thursday, February 29, 2024."
    Day.now = datetime.date(2024, 3, 1)
    assert calendar.run([""], [ELSEWHERE])[0].text == "Today is Friday, March 1, 2024."


def test_an_answer_is_not_kept_for_a_context_that_changed_meanwhile(cache: ResultCache) -> None:
    class Straddling(Recorder):
        def depends_on(self, document: Document) -> str:
            return f"day {len(self.batches)}"

    tool = ToolRuntime(Straddling(), cache=cache)
    assert tool.run(["x"], [ELSEWHERE]) == [Result("<x>")]
    assert cache.read([call_key("x", "day 0"), call_key("x", "day 1")]) == {}


@given(
    st.tuples(st.text(max_size=6), st.text(max_size=6)), st.tuples(st.text(max_size=6), st.text(max_size=6))
)
def test_calls_have_names_of_their_own(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (call_key(*one) == call_key(*other)) == (one == other)
    assert call_key("ab", "c") != call_key("a", "bc")


@pytest.mark.parametrize("text", ["", "\x00", "\ud800 \udfff", "x" * caching.MOST_BYTES, "é\u2028🙂"])
def test_any_result_comes_back_as_it_was(cache: ResultCache, text: str) -> None:
    kept = {b"t" * 32: Result(text), b"r" * 32: Result(reason=text)}
    cache.write(kept)
    assert ResultCache(cache.path).read([*kept, b"u" * 32]) == kept


def test_what_is_too_long_is_answered_and_not_kept(cache: ResultCache) -> None:
    tool = ToolRuntime(Closed(lambda text: Result("x" * (caching.MOST_BYTES + 1))), cache=cache)
    assert len(tool.run(["a"], [ELSEWHERE])[0].text or "") == caching.MOST_BYTES + 1
    assert cache.read([call_key("a", "")]) == {}


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
    used = inside.usage()
    assert used.faults == {"server is away": 2} and used.figures()["faults"] == 2


# ------------------------------------------------------------- a cache that is no good


def test_a_file_that_is_no_database_costs_time_only(
    cache: ResultCache, caplog: pytest.LogCaptureFixture
) -> None:
    cache.path.parent.mkdir()
    cache.path.write_bytes(b"not a database " * 1000)
    tool = ToolRuntime(Closed(), cache=cache)
    for _ in range(2):
        assert tool.run(["a"], [ELSEWHERE]) == [Result("<a>")]
    assert tool.usage().executed == 2
    assert [one.getMessage().count("file is not a database") for one in caplog.records] == [1]


@pytest.mark.parametrize(
    "damage",
    [
        "text = 'other'",
        "text = NULL",
        "reason = x'00'",
        "digest = NULL",
        "text = 5",
        "text = NULL, reason = NULL",
    ],
)
def test_a_damaged_row_is_answered_anew(cache: ResultCache, damage: str) -> None:
    tool = Closed()
    ToolRuntime(tool, cache=cache).run(["a"], [ELSEWHERE])
    with sqlite3.connect(cache.path) as connection:
        connection.execute(f"UPDATE results SET {damage}")
    for _ in range(2):
        assert ToolRuntime(tool, cache=cache).run(["a"], [ELSEWHERE]) == [Result("<a>")]
    assert tool.batches == [["a"], ["a"]]


def test_a_folder_that_cannot_be_made_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    tool = ToolRuntime(Closed(), cache=ResultCache(tmp_path / "file" / "x.sqlite"))
    assert tool.run(["a", "a"], [ELSEWHERE] * 2) == [Result("<a>")] * 2


# --------------------------------------------------------------------------- faults


@pytest.mark.parametrize("limits", [Limits(), Limits(timeout=60), Limits(workers=2)])
@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(3), RecursionError()])
def test_an_exception_is_a_result(limits: Limits, error: BaseException, cache: ResultCache) -> None:
    def answer(text: str) -> Result:
        raise error

    (result,) = ToolRuntime(Closed(answer), limits, cache).run(["a"], [ELSEWHERE])
    assert result == Result(reason=f"tool failed ({type(error).__name__})", fault=True)


@pytest.mark.parametrize("answers", [["text"], [None], [Result(5)], []])  # type: ignore[arg-type]
def test_an_answer_of_another_type_is_a_fault(answers: list[Result]) -> None:
    class Wrong(Closed):
        def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
            return answers

    (result,) = ToolRuntime(Wrong()).run(["a"], [ELSEWHERE])
    assert result.fault and (result.reason or "").startswith("tool failed")


@pytest.mark.parametrize("limits", [Limits(), Limits(timeout=60, workers=2)])
def test_what_is_the_users_to_mend_is_said(limits: Limits, cache: ResultCache) -> None:
    def answer(text: str) -> Result:
        raise UserError("search: there is no file x")

    recorder = Closed(answer)
    tool = ToolRuntime(recorder, limits, cache)
    for _ in range(2):  # and no claim is left behind
        with pytest.raises(UserError, match="there is no file x"):
            tool.run(list("abcdefgh"), [ELSEWHERE] * 8)
    assert len(recorder.batches) <= 2 * limits.workers, "what cannot work is not asked for the others"


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


@pytest.mark.parametrize("tries", [1, 2])
def test_one_call_that_breaks_the_tool_takes_no_other_with_it(no_waiting: None, tries: int) -> None:
    def answer(text: str) -> Result:
        if text == "bad":
            raise RuntimeError
        return Result(text)

    recorder = Recorder(answer)
    results = ToolRuntime(recorder, Limits(tries=tries)).run(["a", "bad", "b"], [ELSEWHERE] * 3)
    assert [one.text for one in results] == ["a", None, "b"]
    assert recorder.batches == [["a", "bad", "b"], ["a"], ["bad"], ["b"], *[["bad"]] * (tries - 1)]


# --------------------------------------------------------------------------- limits


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
