"""Pre-filters: cheap tests of executed calls before the exact scoring."""

import functools
from dataclasses import replace
from typing import Any

import pytest

from tests.annotation.build import DOCUMENTS, QA, Recording, candidate, whole_window
from tests.build import taught_model
from toolformer.annotation.candidates import PreFilters
from toolformer.annotation.pipeline import Annotation, Annotator
from toolformer.annotation.variants import NOT_AHEAD, NOT_NEW, pre_filter
from toolformer.calls import ApiCall
from toolformer.data import Document
from toolformer.lm.language_model import LanguageModel

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
        (" poured", "Where?", "in", "scored"),  # of a result without a long word or a number, all of it
        (" poured", "Where?", "of", NOT_AHEAD),
        (" poured", "of 2 in", "in", NOT_NEW),
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
    settings = replace(QA, force_name=True, samples=4)
    return Annotator(taught_model(*CALLING), settings, Recording(), pre_filters=PreFilters(**rules)).annotate(
        DOCUMENTS
    )


def test_what_passes_is_annotated_as_ever() -> None:
    """The same rows, but that stopped calls have no losses; each rule has its count in the funnel."""
    every, some = annotated(), annotated(result_ahead=3)
    assert len(every.rows) == len(some.rows)
    stopped = 0
    for all_scored, screened in zip(every.rows, some.rows, strict=True):
        if screened["status"] == NOT_AHEAD:
            stopped += 1
            losses = ("loss_result", "loss_no_result", "loss_none")
            assert screened == {**all_scored, "status": NOT_AHEAD, **dict.fromkeys(losses)}
        else:
            assert screened == all_scored
    assert 0 < stopped == some.funnel["drop_reasons"][NOT_AHEAD]
    assert some.funnel["executed"] == every.funnel["executed"]
