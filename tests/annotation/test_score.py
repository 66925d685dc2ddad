"""Losses and gains."""

import pytest

from tests import reference
from tests.annotation.build import candidate, whole_window, whole_windows
from toolformer.annotation.merge import row
from toolformer.annotation.score import WEIGHTS, gain, score
from toolformer.calls import ApiCall
from toolformer.data import Document
from toolformer.lm.language_model import LanguageModel


def test_losses_and_gains_are_those_of_the_reference(language_model: LanguageModel) -> None:
    assert WEIGHTS == pytest.approx((1 / 3, 4 / 15, 1 / 5, 2 / 15, 1 / 15)), "the paper's, which sum to one"
    calls = [
        ApiCall("QA", "Who?", "Joe Biden", True), ApiCall("QA", "C:\\new\\table", "a \\ b"), ApiCall("QA", "", "x"),
    ]  # fmt: skip
    candidates = [
        candidate(window, i, call)
        for window in whole_windows(language_model)
        for i in {0, 1, 4, len(window.ids) - 2, len(window.ids) - 1}
        if 0 <= i < len(window.ids)
        for call in calls
    ]
    for one in score(language_model, candidates):
        text, i, call = one.window.document.text, one.token_position, one.call
        assert call is not None
        losses = [
            reference.loss(language_model, text, i, each) for each in (call, call.with_result(""), None)
        ]
        assert [one.loss_result, one.loss_no_result, one.loss_none] == pytest.approx(losses, abs=1e-4)
        assert gain(row(one)) == pytest.approx(min(one.loss_none, one.loss_no_result) - one.loss_result)


def test_the_call_survives_in_the_loss_of_a_long_text(tiny_gpt2: LanguageModel) -> None:
    """Earlier implementations cut the call off when the text filled the context."""
    window = whole_window(tiny_gpt2, Document("long", "The population is 658,893 people. " * 60))
    assert len(window.ids) > tiny_gpt2.context_length
    calls = [ApiCall("QA", "Who?", result) for result in ("people", "Monday Scranton")]
    first, second = score(tiny_gpt2, [candidate(window, len(window.ids) - 5, call) for call in calls])
    assert first.loss_result != second.loss_result
