"""Which scored calls are kept, and how they are inserted."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.annotation.build import DOCUMENTS, QA, Recording, candidate, keep, whole_windows
from toolformer.annotation.candidates import Filtering
from toolformer.annotation.merge import BEATEN, BELOW, NO_GAIN, KeptCall, decide, merge, row, united
from toolformer.annotation.pipeline import Annotator
from toolformer.annotation.score import PLAIN, gain
from toolformer.annotation.shards import ShardStore
from toolformer.calls import ApiCall, strip
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel


def test_kept_calls_are_inserted_into_unchanged_texts(tiny_gpt2: LanguageModel) -> None:
    window = whole_windows(tiny_gpt2)[0]
    losses = {"loss_no_result": 3.0, "loss_none": 4.0}
    candidates = [
        candidate(window, 0, ApiCall("QA", "zero", "0"), loss_result=1.0, **losses),
        candidate(window, 3, ApiCall("QA", "worse", "1"), loss_result=2.2, sample=0, **losses),
        candidate(window, 3, ApiCall("QA", 'better \\ "q"', "2", True), loss_result=2.0, sample=1, **losses),
        candidate(window, 4, ApiCall("QA", "dropped"), status="no date"),
    ]
    rows = [row(one) for one in candidates]

    def inputs(threshold: float) -> list[str]:
        return [kept.call.input for kept in keep(rows, {"qa": threshold}).get("d0", [])]

    assert inputs(0.5) == inputs(1.0) == ["zero", 'better \\ "q"'], "a gain of exactly 1.0 is kept"
    assert inputs(1.5) == ["zero"] and inputs(2.5) == []
    merged = merge(window.document, keep(rows, {"qa": 0.5})["d0"])
    text = merged["text"]
    assert isinstance(text, str) and text.startswith(" [QA(zero) -> 0]The")
    assert strip(text, {"QA"}) == window.document.text
    assert ' [QA("better \\\\ \\"q\\"") -> 2]' in text
    assert merged["date"] == "2020-05-01"
    both = [
        row(candidate(window, 2, ApiCall(name, "a", "b"), tool=tool, loss_result=0.0, **losses))
        for tool, name in (("search", "WikiSearch"), ("qa", "QA"))
    ]
    text = str(merge(window.document, keep(both, {"qa": 1.0, "search": 1.0})["d0"])["text"])
    assert "[QA(a) -> b] [WikiSearch(a) -> b]" in text, "two tools at one position"


def scored(window: Any, i: int, sample: int = 0, **losses: float) -> dict[str, Any]:
    """A row of a candidate that was scored. The call alone helps: the plain baseline, without one, gains more."""
    losses = {"loss_result": 1.0, "loss_no_result": 1.5, "loss_none": 3.0, **losses}
    return row(candidate(window, i, ApiCall("QA", "a", "b"), sample=sample, **losses))


def test_the_baseline_is_chosen_after_scoring(tiny_gpt2: LanguageModel) -> None:
    window = whole_windows(tiny_gpt2)[0]
    rows = [scored(window, 2)]
    assert gain(rows[0]) == 0.5 and gain(rows[0], "plain") == 2.0
    assert keep(rows, {"qa": 1.0}) == {}
    ((kept,),) = keep(rows, {"qa": 1.0}, "plain").values()
    assert kept.gain == 2.0
    harmful = scored(window, 2, loss_no_result=9.0)
    assert gain(harmful) == gain(harmful, "plain") == 2.0


def test_every_scored_call_is_kept_or_has_a_reason(tiny_gpt2: LanguageModel) -> None:
    window = whole_windows(tiny_gpt2)[0]
    losses = [(1, 0, 0.4), (1, 1, 0.2), (1, 2, 0.3), (2, 0, 1.2), (3, 0, float("nan"))]
    rows = [scored(window, i, sample, loss_result=loss) for i, sample, loss in losses]
    rows.append(row(candidate(window, 4, None, status="malformed call")))
    decisions = decide(rows, {"qa": 1.0})
    reasons = [BEATEN, "", BEATEN, BELOW, NO_GAIN, "malformed call"]
    assert [decision.reason for decision in decisions] == reasons
    assert [decision.threshold for decision in decisions] == [1.0] * 4 + [None] * 2
    assert [decision.gain for decision in decisions[:4]] == pytest.approx([1.1, 1.3, 1.2, 0.3])
    assert decisions[4].gain is decisions[5].gain is None
    ((kept,),) = keep(rows, {"qa": 1.0}).values()
    assert kept.gain == pytest.approx(1.3)


def test_an_unscored_gain_counts_as_its_bound(tiny_gpt2: LanguageModel) -> None:
    bounded = scored(whole_windows(tiny_gpt2)[0], 2, loss_none=1.2) | {"loss_no_result": None}
    for baseline in ("paper", "plain"):
        (decision,) = decide([bounded], {"qa": 1.0}, Filtering(baseline))
        assert (decision.reason, decision.gain) == (BELOW, pytest.approx(0.2))


CALLS = replace(QA, force_name=True, max_call_tokens=30, samples=8)


@functools.cache
def rows_from(model: LanguageModel, floor: float | None, seed: int = 0) -> list[Any]:
    """The rows of an annotation for thresholds from `floor` on."""
    annotator = Annotator(model, CALLS, Recording(), seed=seed, floor=floor)
    return annotator.annotate(DOCUMENTS).rows


@settings(max_examples=15)
@given(floor=st.floats(-3, 0.5), above=st.floats(0, 3), seed=st.integers(0, 2))
def test_every_threshold_from_the_floor_on_keeps_the_same_calls(
    calling_model: LanguageModel, floor: float, above: float, seed: int
) -> None:
    full, bounded = rows_from(calling_model, None, seed), rows_from(calling_model, floor, seed)
    for found, exact in zip(bounded, full, strict=True):
        if found["status"] == "scored" and found["loss_no_result"] is None:
            assert gain(exact) <= gain(found) + 1e-5 and gain(found) < floor
        else:
            assert gain(found) == (None if gain(exact) is None else pytest.approx(gain(exact), abs=1e-5))
    for threshold in (floor, floor + above):
        kept = [keep(rows, {"qa": threshold}) for rows in (full, bounded)]
        texts = [[merge(each, of.get(each.doc_id, []))["text"] for each in DOCUMENTS] for of in kept]
        assert texts[0] == texts[1]


def test_a_threshold_below_the_floor_is_refused(calling_model: LanguageModel, tmp_path: Path) -> None:
    rows = rows_from(calling_model, 0.5)
    assert any(row["status"] == "scored" and row["loss_no_result"] is None for row in rows)
    with pytest.raises(
        UserError, match="^filter_threshold: -9 is below the score.floor with which tool qa was scored"
    ):
        keep(rows, {"qa": -9.0})
    keep(rows, {"qa": -9.0}, PLAIN)
    store = ShardStore(tmp_path)
    for floor in (0.5, 0.7, 0.5):
        store.require_floor(floor)
        assert store.floor == 0.5
    with pytest.raises(UserError, match=r"0.3 is below score.floor=0.5 of .*; set score.floor=0.3"):
        store.require_floor(0.3)


def test_texts_of_several_annotations_have_the_calls_of_all() -> None:
    def c_star(*calls: KeptCall) -> list[dict[str, Any]]:
        documents = [Document("d", "In 1 day"), Document("other", "Else")]
        rows = [merge(documents[0], calls), merge(documents[1], [])]
        return [{**row, "plain": each.text} for row, each in zip(rows, documents, strict=True)]

    def call(position: int, tool: str, result: str, gain: float) -> KeptCall:
        return KeptCall(position, tool, ApiCall(tool.upper(), "x", result), gain)

    first = c_star(call(2, "qa", "a", 1.0), call(4, "qa", "b", 3.0))
    second = c_star(call(2, "calc", "c", 0.5), call(2, "qa", "d", 2.0), call(4, "qa", "e", 3.0))
    together = united([first, second])
    assert [row["text"] for row in together] == [
        "In [CALC(x) -> c] [QA(x) -> d] 1 [QA(x) -> b] day",
        "Else",
    ]
    assert [(one["tool"], one["gain"]) for one in together[0]["calls"]] == [
        ("calc", 0.5),
        ("qa", 2.0),
        ("qa", 3.0),
    ]
    assert united([first]) == first
