"""Less scoring with the same result: the bound on the gain, positions ranked by lift, and cheap tests before the exact one."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import textbook
from tests.annotation.test_annotation import DOCUMENTS, QA, Recording, candidate, whole_window, whole_windows
from tests.conftest import taught_model
from toolformer.annotation.candidates import PreFilters, scoring_floor
from toolformer.annotation.merge import PLAIN, keep, merge
from toolformer.annotation.pipeline import Annotation, Annotator
from toolformer.annotation.propose import choose_positions, propose
from toolformer.annotation.shards import ShardStore
from toolformer.annotation.variants import NOT_AHEAD, NOT_NEW, pre_filter
from toolformer.calls import ApiCall
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel

CALLS = replace(QA, force_name=True, max_call_tokens=30, samples=8)


@functools.cache
def rows_from(model: LanguageModel, floor: float | None, seed: int = 0) -> list[Any]:
    """The rows of an annotation for thresholds from `floor` on."""
    annotator = Annotator(model, [CALLS], {"qa": Recording()}, seed=seed, floor=floor)
    return annotator.annotate(DOCUMENTS).rows


@settings(max_examples=15)
@given(floor=st.floats(-3, 0.5), above=st.floats(0, 3), seed=st.integers(0, 2))
def test_every_threshold_from_the_floor_on_keeps_the_same_calls(
    calling_model: LanguageModel, floor: float, above: float, seed: int
) -> None:
    full, bounded = rows_from(calling_model, None, seed), rows_from(calling_model, floor, seed)
    assert all(row["gain"] is not None for row in full if row["status"] == "scored")
    for row, exact in zip(bounded, full, strict=True):
        assert row["gain"] in (None, pytest.approx(exact["gain"], abs=1e-5))
        if row["status"] == "scored" and row["gain"] is None:
            bound = row["loss_none"] - row["loss_result"]
            assert exact["gain"] <= bound + 1e-5 and bound < floor
    for threshold in (floor, floor + above):
        kept = [keep(rows, {"qa": threshold}) for rows in (full, bounded)]
        texts = [[merge(each, of.get(each.doc_id, []))["text"] for each in DOCUMENTS] for of in kept]
        assert texts[0] == texts[1]


def test_a_threshold_below_the_floor_is_refused(calling_model: LanguageModel, tmp_path: Path) -> None:
    rows = rows_from(calling_model, 0.5)
    assert any(row["status"] == "scored" and row["gain"] is None for row in rows)
    with pytest.raises(UserError, match="^filter_threshold: -9 is below score.floor"):
        keep(rows, {"qa": -9.0})
    keep(rows, {"qa": -9.0}, PLAIN)
    store = ShardStore(tmp_path)
    for floor in (0.5, 0.7, 0.5):
        store.require_floor(floor)
        assert store.floor == 0.5
    with pytest.raises(UserError, match=r"0.3 is below score.floor=0.5 of .*; set score.floor=0.3"):
        store.require_floor(0.3)


def test_the_floor_is_by_default_the_lowest_threshold() -> None:
    thresholds = {"qa": 0.5, "calendar": -1.0}
    assert scoring_floor(thresholds, None) == -1.0 and scoring_floor(thresholds, -2.0) == -2.0
    with pytest.raises(
        UserError, match="^score.floor is 0.1, above the filter_threshold -1 of tool calendar"
    ):
        scoring_floor(thresholds, 0.1)


def test_lifts_are_those_of_the_textbook(language_model: LanguageModel) -> None:
    ranked = replace(QA, rank="lift", max_positions=3, samples=1, max_call_tokens=1)
    for proposal in propose(language_model, ranked, whole_windows(language_model)):
        text = proposal.window.document.text
        prompted = textbook.start_probabilities(language_model, ranked, text)
        ids = language_model.encode(text)
        lifts = []
        for i, p in enumerate(prompted):
            context = language_model.bos_ids + ids[:i] or language_model.start_ids()
            row = textbook.logits(language_model, context)[-1].softmax(-1)
            lifts.append(p / float(row[language_model.start_id]))
        positions = proposal.window.encoding.positions
        allowed = [p if positions[i] is not None else None for i, p in enumerate(prompted)]
        expected = choose_positions(allowed, 0.0, 3, lifts)
        assert sorted({one.token_position for one in proposal.candidates}) == expected


CALLING = ("gpt2", "we met [QA(day)]", "on [QA(who met)]", "the day")
TEXT = "Half of 1,536 is 768 ounces, of which 50 are poured in Zürich, and 4 - 9 = -5 of the rest."


def status(
    language_model: LanguageModel, rules: PreFilters, before: str, call_input: str, result: str
) -> str:
    """The status of a call right before `before`."""
    window = whole_window(language_model, Document("d", TEXT))
    i = window.encoding.positions.index(TEXT.index(before))
    (screened,) = pre_filter([candidate(window, i, ApiCall("QA", call_input, result))], rules)
    return screened.status


@pytest.mark.parametrize(
    ("before", "call_input", "result", "expected"),
    [
        (" 768", "1536 / 2", "768.0", "scored"),
        (" 768", "1536 / 2", "76", NOT_AHEAD),  # part of a number
        (" 768", "1536 - 768", "768", NOT_NEW),
        (" 1,536", "3 * 512", "1536", "scored"),
        (" ounces", "1536 / 2", "768", NOT_AHEAD),  # it is before the call
        ("Half", "50 * 1", "50.0", NOT_NEW),
        ("Half", "100 / 2", "50", NOT_AHEAD),  # too far
        (" -5", "4 - 9", "-5", "scored"),
        (" -5", "9 - 4", "5", NOT_AHEAD),  # of the other sign
        (" poured", "Where?", "It was in ZÜRICH.", "scored"),
        (" poured", "Where in Zürich?", "in Zürich", NOT_NEW),
        (" poured", "Where?", "in", NOT_NEW),  # nothing that could be looked for
    ],
)
def test_which_calls_are_stopped(
    tiny_gpt2: LanguageModel, before: str, call_input: str, result: str, expected: str
) -> None:
    rules = PreFilters(result_ahead=8, new_result=True)
    assert status(tiny_gpt2, rules, before, call_input, result) == expected
    if expected == NOT_NEW:
        assert status(tiny_gpt2, replace(rules, new_result=False), before, call_input, result) != NOT_NEW
    if expected == NOT_AHEAD:
        assert status(tiny_gpt2, replace(rules, result_ahead=None), before, call_input, result) == "scored"


def test_the_end_of_a_text_is_looked_at_whole(tiny_gpt2: LanguageModel) -> None:
    assert status(tiny_gpt2, PreFilters(1000), "Half", "Where?", "Zürich") == "scored"


@functools.cache
def annotated(**rules: Any) -> Annotation:
    """What a model that calls makes of the documents."""
    settings = [replace(QA, force_name=True, samples=4)]
    return Annotator(
        taught_model(*CALLING), settings, {"qa": Recording()}, pre_filters=PreFilters(**rules)
    ).annotate(DOCUMENTS)


def test_what_passes_is_annotated_as_ever() -> None:
    """The same rows, but that stopped calls have no losses; each rule has its count in the funnel."""
    every, some = annotated(), annotated(result_ahead=3)
    assert len(every.rows) == len(some.rows)
    stopped = 0
    for all_scored, screened in zip(every.rows, some.rows, strict=True):
        if screened["status"] == NOT_AHEAD:
            stopped += 1
            losses = ("loss_result", "loss_no_result", "loss_none", "gain")
            assert screened == {**all_scored, "status": NOT_AHEAD, **dict.fromkeys(losses)}
        else:
            assert screened == all_scored
    assert 0 < stopped == some.funnel["qa"]["drop_reasons"][NOT_AHEAD]
    assert some.funnel["qa"]["executed"] == every.funnel["qa"]["executed"]
