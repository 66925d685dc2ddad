"""The call notation: print and parse are inverses, and a text with calls can always be read back."""

import json

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from toolformer.calls import (
    ApiCall,
    CallSyntaxError,
    call_end,
    clean_result,
    find_calls,
    insert,
    linearise,
    parse,
    strip,
)

NAMES = ("Calculator", "QA", "A", "B", "sq_1")
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
arguments = st.lists(
    st.text(alphabet='a,()]"\\ ', max_size=5).map(json.dumps) | st.just("b=1"), max_size=3
).map(", ".join)
inputs = st.text(max_size=40) | st.text(alphabet='ab ()[]"\\->,\n\r\té北', max_size=20) | arguments
results = st.none() | inputs.map(clean_result)
calls = st.builds(ApiCall, names, inputs, results, st.booleans())
of_tools = st.sampled_from(NAMES)
UNFINISHED = (
    '[Note (x) -> y]|[Note("a") -> |[QA("a|[QA(a|[QA(a) -> |[QA("a") -> b|[QA("a")]|") -> b]|[|"|)|\\| '
)
unfinished = st.sampled_from(UNFINISHED.split("|"))
texts = st.text(alphabet="ab c.,()\n\"'é北", max_size=60) | st.lists(unfinished, max_size=8).map("".join)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (ApiCall("Calculator", "400 / 1400", "0.29"), " [Calculator(400 / 1400) -> 0.29]"),
        (ApiCall("Calculator", "400 / 1400", ""), " [Calculator(400 / 1400) -> ]"),
        (ApiCall("Calendar", ""), " [Calendar()]"),
        (ApiCall("QA", "Where was he born?", "Scranton", True), ' [QA("Where was he born?") -> Scranton]'),
        (ApiCall("MT", "O homem suprimido"), " [MT(O homem suprimido)]"),
        (ApiCall("QA", "Who wrote [sic]?"), ' [QA("Who wrote [sic]?")]'),
        (ApiCall("Calculator", "(1 + (2 * 3)) / 4", "1.75"), " [Calculator((1 + (2 * 3)) / 4) -> 1.75]"),
        (ApiCall("MT", "C:\\temp\\new", None), " [MT(C:\\temp\\new)]"),
        (ApiCall("MT", "one\ntwo", None), ' [MT("one\\ntwo")]'),
        (ApiCall("Weather", '"Seoul", "today"', '{"a": "b"}'), ' [Weather("Seoul", "today") -> {"a": "b"}]'),
        (ApiCall("Weather", '"a (b", day="c)"'), ' [Weather("a (b", day="c)")]'),
        (ApiCall("Weather", '"a [b]", "c"'), ' [Weather("\\"a [b]\\", \\"c\\"")]'),
        (ApiCall("Weather", 'days=(1, 2), city="x"'), ' [Weather(days=(1, 2), city="x")]'),
    ],
)
def test_the_forms_of_the_paper(call: ApiCall, text: str) -> None:
    assert linearise(call) == text
    assert linearise(parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[32m42 passed\x1b[0m", "\x1b[2K\r42 passed", "\x1b]0;title\x0742 passed", "4\x002 passed", "\ufeff42 passed",
        "\x1b]8;;https://a.example\x1b\\42 passed\x1b]8;;\x1b\\", "\u202e42 pas\u00adsed\u202c", "\x9b1m42\u2060 passed", "42\tpassed",
        "\x1b(B42 passed\x1b", "\x1bP1$r0m\x1b\\42 passed", "42 passed\x1b[31", "42 passed\x9b3", "42 passed\x1b(", "42 passed\x1b]0;title",
        "\x1b]0;title\n42 passed", "40\b2 passed", "|\b/\b42 pased\b\bsed", "4\b42 passed\b\b", "\n\b\r42 passed",
        "42 pas\U000e0041\U000e007fsed", "42\U0001bca0 passed", "42\u3164 passed", "42\u034f pas\u115f\uffa0sed", "42 passed\u200d",
        "\u200c 42 passed \u200d\u200c",
    ],
)  # fmt: skip
def test_control_sequences_leave_a_result(text: str) -> None:
    assert clean_result(text) == "42 passed"


def test_characters_that_join_others_stay_in_a_result() -> None:
    for text in ("👩\u200d👧 می\u200cخواهم", "❤\ufe0f", "葛\U000e0100"):
        assert clean_result(text) == text


def test_text_that_was_decoded_wrongly_stays_in_a_result() -> None:
    assert clean_result("â\x80\x9cyesâ\x80\x9d, he said") == "âyesâ, he said"


@given(calls)
@example(ApiCall("QA", '"', "x", False))
@example(ApiCall("QA", "\\", "x", True))
@example(ApiCall("QA", "a -> b] c", None, False))
@example(ApiCall("QA", "\u2028x\x85", "y", False))
def test_parse_is_the_inverse_of_linearise(call: ApiCall) -> None:
    text = linearise(call)
    back = parse(text)
    assert (back.tool, back.input, back.result) == (call.tool, call.input, call.result)
    assert linearise(back) == text


@given(
    texts,
    st.lists(st.tuples(st.integers(0, 60), st.builds(ApiCall, of_tools, inputs, inputs.map(clean_result)))),
)
@example('[QA("a', [(6, ApiCall("B", ") -> 1]", "x"))])
@example('[QA("a', [(6, ApiCall("B", '10"', "x"))])
@example('[QA("a', [(6, ApiCall("B", "x", '")'))])
@example('[QA(") -> b]', [(12, ApiCall("B", ",]", "x"))])
def test_strip_undoes_insert(text: str, placed: list[tuple[int, ApiCall]]) -> None:
    """Of every text without a tool's call that has a result; what looks like the beginning of a call is none."""
    assume(not find_calls(text, NAMES))
    placed = [(min(position, len(text)), call) for position, call in placed]
    assume(not any(text[:position].endswith("\\") for position, _ in placed))
    augmented = insert(text, placed)
    assert strip(augmented, NAMES) == text
    assert len(find_calls(augmented, NAMES)) == len(placed)


def test_only_what_has_a_tools_name_is_a_call() -> None:
    text = 'cases := [Note (x) -> y], [f(Calculator) -> Int] and [Note ("[Calculator(1) -> 2]") -> y]'
    assert strip(text, ()) == text
    assert strip(text, {"Calculator"}) == text.replace("[Calculator(1) -> 2]", "")
    augmented = insert(text, [(15, ApiCall("Calculator", "1 + 1", "2"))])
    assert [call.input for _, _, call in find_calls(augmented, {"Calculator", "QA"})] == ["1 + 1", "1"]


@given(calls)
def test_sampling_ends_where_the_call_ends(call: ApiCall) -> None:
    bare = linearise(ApiCall(call.tool, call.input, None, call.quoted)).removeprefix(" [")
    assert call_end(bare + ' and "more] text') == len(bare)
    assert all(call_end(bare[:length]) is None for length in range(len(bare)))


@given(st.text(alphabet='[]()->"\\ \n' + "QAab", max_size=60))
def test_any_text_is_scanned_without_fault(text: str) -> None:
    for start, end, call in find_calls(text, ("QA", "Q", "A")):
        assert linearise(parse(text[start:end])) == linearise(call)
    call_end(text)


@pytest.mark.parametrize(
    "piece", ["[", "[A(x) -> ", '[A("', '[A("\\)', '[A("x"),', "[A((", '[A(")]', '[N("") -> ', "[N() -> ]"]
)
def test_reading_takes_time_linear_in_the_text(piece: str) -> None:
    """A minute and more if it were quadratic."""
    assert find_calls(piece * (400_000 // len(piece)), ("A",)) == []


def test_insertion_is_by_character_and_in_order() -> None:
    text = "Of 1400 people, 400 (or 29%) passed."
    placed = [
        (23, ApiCall("Calculator", "400 / 1400", "0.29")),
        (0, ApiCall("A", "x", "1")),
        (23, ApiCall("B", "y", "2")),
    ]
    assert insert(text, placed) == (
        " [A(x) -> 1]Of 1400 people, 400 (or [Calculator(400 / 1400) -> 0.29] [B(y) -> 2] 29%) passed."
    )
    assert insert("北京大学", [(2, ApiCall("MT", "北京", "Beijing"))]) == "北京 [MT(北京) -> Beijing]大学"
    for outside in (-1, 4):
        with pytest.raises(ValueError, match="outside the text"):
            insert("abc", [(outside, ApiCall("A", "x", "1"))])


def test_a_result_cannot_break_a_text() -> None:
    hostile = ApiCall("QA", "q").with_result("a] -> b\n[Calculator(1) -> 2]")
    text = insert("before after", [(6, hostile)])
    assert strip(text, ("QA",)) == "before after"
    assert find_calls(text, ("QA",))[0][2].result == "a) → b (Calculator(1) → 2)"
    with pytest.raises(CallSyntaxError, match="not clean"):
        linearise(ApiCall("QA", "q", "a]"))


@pytest.mark.parametrize(
    "text",
    ['[QA("a" b)]', '[QA("a", b]', "", "[", "[QA]", "[QA(]", '[QA("a)]', "[QA(a)", "[QA(a) -> b", "[1(a)]", "[QA(a)] x",
     "[QA(a [b])]"],
)  # fmt: skip
def test_what_is_no_call_is_refused(text: str) -> None:
    with pytest.raises(CallSyntaxError):
        parse(text)


def test_blanks_are_understood() -> None:
    assert parse("[ Calendar ( ) ]") == ApiCall("Calendar", "")
    assert parse("[Calculator( 3 + 4 )]") == ApiCall("Calculator", "3 + 4")
    assert parse('[QA( "a b" )]') == ApiCall("QA", "a b", None, True)
