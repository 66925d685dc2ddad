"""What every tool runs in: the cache changes no result, faults stay results, limits hold."""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.recorders import ELSEWHERE, Closed, Recorder
from tests.tools.test_all_tools import HOSTILE, MAKERS
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.tools import cache as caching
from toolformer.tools import runtime
from toolformer.tools.base import Result
from toolformer.tools.cache import ResultCache, call_key
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

    monkeypatch.setattr("toolformer.tools.calendar.datetime", SimpleNamespace(date=Day))
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
