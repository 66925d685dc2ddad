"""Preferences between calls: which are chosen and rejected, and the rows that other trainers read."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.build import tiny_tokenizer
from toolformer.calls import ApiCall, insert, linearise
from toolformer.export.preferences import Preference, find_preferences, labelled_rows, paired_rows

TEXT = "Of 1400, 400 passed, so 1000 failed and 400 did not come again to try it once more."
FIRST, SECOND = TEXT.index(" 400 passed"), TEXT.index(" 1000")
GOOD, BAD = ApiCall("Calculator", "1400 - 400", "1000"), ApiCall("Calculator", "1400 / 7", "200")
EARLIER = ApiCall("Calculator", "800 / 2", "400")


def row(position: int, call: ApiCall, gain: float | None, kept: bool = False, **more: Any) -> dict[str, Any]:
    row = {"doc_id": "a", "tool": "calculator", "position": position, "call": call.as_row()}
    losses = {"loss_none": 3.0, "loss_result": None if gain is None else 3.0 - gain}
    return {**row, **losses, "filter_gain": gain, "kept": kept, **more}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer()


def found(*rows: Mapping[str, Any], margin: float = 0.1) -> list[Preference]:
    return find_preferences({"a": TEXT}, rows, margin)


def sides(preferences: list[Preference]) -> list[tuple[ApiCall | None, ApiCall | None]]:
    return [(preference.chosen, preference.rejected) for preference in preferences]


def test_a_kept_call_is_preferred_to_text_and_harmful_call() -> None:
    worse = replace(BAD, input="1400 / 70", result="20")
    rows = [row(SECOND, BAD, -0.5), row(SECOND, worse, -2.0), row(SECOND, GOOD, 1.0, kept=True)]
    assert sides(found(*rows)) == [(GOOD, None), (GOOD, BAD)]


def test_text_is_preferred_to_a_harmful_call() -> None:
    assert sides(found(row(SECOND, GOOD, 0.05), row(SECOND, BAD, -0.5))) == [(None, BAD)]


@pytest.mark.parametrize("gain", [0.05, 0.0, -0.05, None])
def test_a_call_that_does_not_clearly_harm_is_not_rejected(gain: float | None) -> None:
    assert found(row(SECOND, BAD, gain)) == []


def test_a_call_better_than_none_is_never_rejected() -> None:
    helps = row(SECOND, BAD, -0.5) | {"loss_result": 2.5}
    assert found(helps) == []


def test_without_a_margin_a_call_of_no_effect_is_not_harmful() -> None:
    assert found(row(SECOND, BAD, 0.0), margin=0) == []


def test_the_prompt_has_the_calls_kept_before_the_position_alone() -> None:
    rows = [row(SECOND, GOOD, 1.0, kept=True), row(FIRST, EARLIER, 1.0, kept=True)]
    second, first = found(*rows)
    assert first.before == () and second.before == ((FIRST, EARLIER),)


def test_documents_without_a_text_are_left_out() -> None:
    assert found(row(SECOND, GOOD, 1.0, kept=True, doc_id="b")) == []


def test_the_rows_are_what_c_star_has_up_to_five_tokens_on(tokenizer: Any) -> None:
    preferences = found(row(FIRST, EARLIER, 1.0, kept=True), row(SECOND, GOOD, 1.0, kept=True))
    _, written = paired_rows(preferences, tokenizer)
    whole = insert(TEXT, [(FIRST, EARLIER), (SECOND, GOOD)])
    assert whole.startswith(written["prompt"] + written["chosen"])
    assert written["chosen"] == linearise(GOOD) + written["rejected"]
    tokens = tokenizer(TEXT, add_special_tokens=False, return_offsets_mapping=True)
    ends = [end for start, end in tokens.offset_mapping if start >= SECOND]
    assert written["rejected"] == TEXT[SECOND : ends[4]]


def test_a_completion_is_labelled_once(tokenizer: Any) -> None:
    rows = labelled_rows(found(row(SECOND, GOOD, 1.0, kept=True), row(SECOND, BAD, -1.0)), tokenizer)
    assert [(linearise(GOOD) in row["completion"], row["label"]) for row in rows] == [
        (True, True), (False, False), (False, False),
    ]  # fmt: skip


def test_a_position_inside_another_tokenizers_token_is_left_out(tokenizer: Any) -> None:
    starts = {start for start, _ in tokenizer(TEXT, return_offsets_mapping=True).offset_mapping}
    position = next(position for position in range(len(TEXT)) if position not in starts)
    inside = Preference(TEXT, (), position, GOOD, None)
    whole = Preference(TEXT, (), SECOND, GOOD, None)
    assert paired_rows([inside, whole], tokenizer) == paired_rows([whole], tokenizer) != []


def test_texts_with_one_id_keep_their_tokens(tokenizer: Any) -> None:
    other = "In 2004 there were 12 boats."
    first, second = Preference(TEXT, (), SECOND, GOOD, None), Preference(other, (), 18, GOOD, None)
    rows = paired_rows([first, second], tokenizer)
    assert rows == [*paired_rows([first], tokenizer), *paired_rows([second], tokenizer)]
