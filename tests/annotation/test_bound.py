"""Less scoring with the same result: the bound on the gain, and positions ranked by lift."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import textbook
from tests.annotation.test_annotation import DOCUMENTS, QA, Recording, whole_windows
from toolformer.annotation.candidates import ToolSettings, lowest_thresholds
from toolformer.annotation.merge import keep, merge
from toolformer.annotation.pipeline import Annotator
from toolformer.annotation.propose import choose_positions, propose
from toolformer.annotation.shards import store_for
from toolformer.lm.language_model import LanguageModel

CALLS = replace(QA, force_name=True, max_call_tokens=30, samples=8)


def annotator(model: LanguageModel, tool: ToolSettings, bound: float | None, seed: int = 0) -> Annotator:
    lowest = None if bound is None else {"qa": bound}
    return Annotator(model, [tool], {"qa": Recording()}, seed=seed, lowest=lowest)


@functools.cache
def every_gain(model: LanguageModel, seed: int) -> list[Any]:
    """The rows of an annotation that bounds nothing."""
    return annotator(model, CALLS, None, seed).annotate(DOCUMENTS).rows


@settings(max_examples=15)
@given(asked=st.floats(-3, 0.5), above=st.floats(0, 3), seed=st.integers(0, 2))
def test_the_bound_keeps_the_same_texts_at_every_threshold_from_the_asked_one_on(
    calling_model: LanguageModel, asked: float, above: float, seed: int
) -> None:
    tool = replace(CALLS, filter_threshold=asked)
    assert lowest_thresholds([tool]) == {"qa": asked}
    full = every_gain(calling_model, seed)
    bounded = annotator(calling_model, tool, asked, seed).annotate(DOCUMENTS).rows
    assert all(row["gain"] is not None for row in full if row["status"] == "scored")
    for row, exact in zip(bounded, full, strict=True):
        assert row["gain"] in (None, pytest.approx(exact["gain"], abs=1e-5))
        if row["status"] == "scored" and row["gain"] is None:
            assert exact["gain"] <= row["gain_at_most"] + 1e-5 and row["gain_at_most"] < asked
    for threshold in (asked, asked + above):
        kept = [keep(rows, {"qa": threshold}) for rows in (full, bounded)]
        texts = [[merge(each, of.get(each.doc_id, []))["text"] for each in DOCUMENTS] for of in kept]
        assert texts[0] == texts[1]


def test_a_lower_threshold_computes_only_what_is_missing(
    calling_model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    high, low = replace(CALLS, filter_threshold=0.5), replace(CALLS, filter_threshold=-1.0)
    earlier = annotator(calling_model, high, 0.5).annotate(DOCUMENTS)
    expected = annotator(calling_model, low, -1.0).annotate(DOCUMENTS).rows
    scored = [sum(row["gain"] is not None for row in rows) for rows in (earlier.rows, expected)]
    assert scored[0] < scored[1]
    again = "toolformer.annotation.pipeline.propose"
    monkeypatch.setattr(again, lambda *_: pytest.fail("nothing is proposed again"))
    deeper = annotator(calling_model, low, -1.0).deepen(DOCUMENTS, earlier.rows, earlier.funnel)
    for row, exact in zip(deeper.rows, expected, strict=True):
        for name, value in exact.items():
            assert row[name] == (pytest.approx(value, abs=1e-5) if isinstance(value, float) else value)


def test_lifts_are_those_of_the_textbook(language_model: LanguageModel) -> None:
    ranked = replace(QA, rank="lift", max_positions=3, samples=1, max_call_tokens=1)
    for proposal in propose(language_model, ranked, whole_windows(language_model)):
        text = proposal.window.document.text
        prompted = textbook.start_probabilities(language_model, ranked, text)
        ids = language_model.encode(text)
        lifts = []
        for i, p in enumerate(prompted):
            context = language_model.own_prefix + ids[:i] or language_model.document_start()
            row = textbook.logits(language_model, context)[-1].softmax(-1)
            lifts.append(p / float(row[language_model.start_id]))
        positions = proposal.window.encoding.positions
        allowed = [p if positions[i] is not None else None for i, p in enumerate(prompted)]
        expected = choose_positions(allowed, 0.0, 3, lifts)
        assert sorted({one.token_position for one in proposal.candidates}) == expected
        for one in proposal.candidates:
            assert one.start_lift == pytest.approx(lifts[one.token_position], rel=1e-3)


def test_a_store_serves_every_threshold_from_its_own_on(tmp_path: Path) -> None:
    low, high = {"qa": 0.3, "calendar": -100.0}, {"qa": 0.5, "calendar": 0.5}
    store = store_for(tmp_path, low)
    assert store.lowest == low and not store.folder.exists()
    store.folder.mkdir()
    assert store_for(tmp_path, high).folder == store_for(tmp_path, low).folder == store.folder
    assert store_for(tmp_path, {**low, "qa": 0.2}).folder != store.folder
    assert store_for(tmp_path, {}).folder == tmp_path / "shards"
    (tmp_path / "shards").mkdir()
    assert store_for(tmp_path, {"qa": -5.0}).folder == tmp_path / "shards"
