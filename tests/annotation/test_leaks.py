"""What a call holds that appears only after it; and the filter's leaks and chance."""

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.annotation.build import DOCUMENTS, candidate, whole_windows
from toolformer.annotation import leaks
from toolformer.annotation.leaks import Terms
from toolformer.annotation.merge import BELOW, LEAKS, NOT_DRAWN, Chance, decide, row
from toolformer.annotation.results import leaks_of
from toolformer.calls import ApiCall
from toolformer.lm.language_model import LanguageModel

SUM = "She reads 24 pages a day. It will take her 120/24 = 5 hours, says Ada Lovelace. Paris waits."


@pytest.mark.parametrize(
    ("call_input", "leak"),
    [
        ("120 / 24", ("120",)),
        ("24 + 24", ()),
        ("1,20.0", ()),  # 1 and 20 are not in the text
        ("120.0 - 7", ("120.0",)),  # by value
        ("who is ada lovelace", ("ada", "lovelace")),
        ("What did she say", ()),
        ("paris", ()),  # begins a sentence, and may be any word
        ("Paris", ("Paris",)),
        ("", ()),
    ],
)
def test_what_stands_only_after_the_call_leaks(call_input: str, leak: tuple[str, ...]) -> None:
    assert Terms(SUM).leaked(SUM.index("120/"), call_input) == leak


WORDS = st.text("ab1 2.A,B", max_size=30)


@given(WORDS, WORDS, WORDS)
def test_nothing_leaks_that_stands_before_or_nowhere(before: str, after: str, call_input: str) -> None:
    text = f"{before} {call_input} {after}"
    assert Terms(text).leaked(len(before) + len(call_input) + 2, call_input) == ()
    assert Terms(before).leaked(len(before), call_input) == ()


@pytest.mark.parametrize(
    ("marked", "call_input", "leak"),
    [
        ("It has 12|34 seats.", "34", ()),
        ("It has 12|34 seats; 12 are free.", "12", ("12",)),  # the first two digits are not a number
        ("It has 12|34 seats.", "1234", ("1234",)),
        ("1,5|00 of 1,500", "1500 / 500", ("1500",)),
        ("They met in Lon|don.", "where is London", ("London",)),
        ("They met in Lon|Don.", "Don", ()),
    ],
)
def test_a_position_within_a_number_or_a_name_makes_no_other(
    marked: str, call_input: str, leak: tuple[str, ...]
) -> None:
    assert Terms(marked.replace("|", "")).leaked(marked.index("|"), call_input) == leak


def test_a_text_is_read_once_for_all_its_calls(
    tiny_gpt2: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    class Read:
        def finditer(self, text: str) -> Iterator[re.Match[str]]:
            texts.append(text)
            return re.finditer(r"\d+", text)

    monkeypatch.setattr(leaks, "_NUMBER", Read())
    rows = [
        row | {"call": row["call"] | {"input": "1 + 2"}}
        for row in rows_of(tiny_gpt2, {1: 1.0, 2: 1.0, 3: 1.0})
    ]
    leaks_of(rows, DOCUMENTS)
    assert texts.count(DOCUMENTS[0].text) == 1


def rows_of(language_model: LanguageModel, gains: dict[int, float], samples: int = 1) -> list[dict[str, Any]]:
    """Scored candidates at these positions, with these gains."""
    window, call = whole_windows(language_model)[0], ApiCall("QA", "a", "b")
    return [
        row(candidate(window, i, call, sample=n, loss_result=1.0, loss_none=1.0 + gain, loss_no_result=9.0))
        for i, gain in gains.items()
        for n in range(samples)
    ]


def test_leaking_calls_are_dropped_whatever_they_gain(tiny_gpt2: LanguageModel) -> None:
    decisions = decide(rows_of(tiny_gpt2, {1: 5.0, 2: 5.0}), {"qa": 1.0}, leaking={0})
    assert [decision.reason for decision in decisions] == [LEAKS, ""]


def test_chance_keeps_the_first_call_of_a_position(tiny_gpt2: LanguageModel) -> None:
    gains = {i: random.Random(i).uniform(-2, 2) for i in range(1, 8)}
    rows = rows_of(tiny_gpt2, gains, samples=2)
    everything = decide(rows, {"qa": 1.0}, chance=Chance({"qa": 1.0}))
    assert [rows[n]["sample"] for n, decision in enumerate(everything) if not decision.reason] == [0] * 7
    nothing = decide(rows, {"qa": 1.0}, chance=Chance({"qa": 0.0}))
    assert {decision.reason for decision in nothing} == {NOT_DRAWN}


def test_chance_draws_from_calls_above_a_gain(tiny_gpt2: LanguageModel) -> None:
    rows = rows_of(tiny_gpt2, {1: 0.0, 2: 0.5}, samples=2)
    rows[2] |= {"loss_none": 0.9}  # the first sample at position 2 loses
    reasons = [
        each.reason for each in decide(rows, {"qa": 9.0}, chance=Chance({"qa": 1.0}, above={"qa": 0.0}))
    ]
    assert reasons == [BELOW, BELOW, BELOW, ""]


def test_chance_draws_the_same_places_above_a_gain(tiny_gpt2: LanguageModel) -> None:
    rows = rows_of(tiny_gpt2, {i: (-1.0) ** i for i in range(1, 8)})
    drawn, above = (
        {n for n, each in enumerate(decide(rows, {"qa": 9.0}, chance=chance)) if not each.reason}
        for chance in (Chance({"qa": 0.5}), Chance({"qa": 0.5}, above={"qa": 0.0}))
    )
    assert 0 < len(above) < len(drawn) and above == {n for n in drawn if n % 2}


def test_chance_draws_its_share_by_seed() -> None:
    places = [{"doc_id": str(n), "tool": "qa", "position": n} for n in range(2000)]
    drawn = [[Chance({"qa": 0.3}, seed).draws(entry) for entry in places] for seed in (0, 1)]
    assert [540 < sum(draws) < 660 for draws in drawn] == [True, True] and drawn[0] != drawn[1]
