"""What a call holds that appears only after it; and the filter's leaks and chance."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.annotation.test_annotation import candidate, whole_windows
from toolformer.annotation.leaks import leaked
from toolformer.annotation.merge import LEAKS, NOT_DRAWN, Chance, decide, row
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
    assert leaked(SUM, SUM.index("120/"), call_input) == leak


WORDS = st.text("ab1 2.A,B", max_size=30)


@given(WORDS, WORDS, WORDS)
def test_nothing_leaks_that_stands_before_or_nowhere(before: str, after: str, call_input: str) -> None:
    assert leaked(f"{before} {call_input} {after}", len(before) + len(call_input) + 2, call_input) == ()
    assert leaked(before, len(before), call_input) == ()


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


def test_chance_keeps_the_first_call_of_a_place_whatever_it_gains(tiny_gpt2: LanguageModel) -> None:
    gains = {i: random.Random(i).uniform(-2, 2) for i in range(1, 8)}
    rows = rows_of(tiny_gpt2, gains, samples=2)
    everything = decide(rows, {"qa": 1.0}, chance=Chance({"qa": 1.0}))
    assert [rows[n]["sample"] for n, decision in enumerate(everything) if not decision.reason] == [0] * 7
    nothing = decide(rows, {"qa": 1.0}, chance=Chance({"qa": 0.0}))
    assert {decision.reason for decision in nothing} == {NOT_DRAWN}


def test_chance_draws_its_share_by_seed() -> None:
    places = [{"doc_id": str(n), "tool": "qa", "position": n} for n in range(2000)]
    drawn = [[Chance({"qa": 0.3}, seed).draws(entry) for entry in places] for seed in (0, 1)]
    assert [540 < sum(draws) < 660 for draws in drawn] == [True, True] and drawn[0] != drawn[1]
