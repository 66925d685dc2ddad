"""Preferences from gains, and training on them with TRL's trainers."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.conftest import HELDOUT, SETTINGS, Logs, perplexity, same_end
from toolformer.calls import ApiCall, insert, linearise
from toolformer.errors import UserError
from toolformer.training.preferences import (
    Encoder,
    Preference,
    dpo_rows,
    find_preferences,
    kto_rows,
    tokens_by_document,
)
from toolformer.training.settings import PreferenceRecipe
from toolformer.training.tokens import AnnotatedText, tokenize

TEXT = "Of 1400, 400 passed, so 1000 failed and 400 did not come again to try it once more."
FIRST, SECOND = TEXT.index(" 400 passed"), TEXT.index(" 1000")
GOOD, BAD = ApiCall("Calculator", "1400 - 400", "1000"), ApiCall("Calculator", "1400 / 7", "200")
EARLIER = ApiCall("Calculator", "800 / 2", "400")


def row(position: int, call: ApiCall, gain: float | None, kept: bool = False, **more: Any) -> dict[str, Any]:
    written = linearise(replace(call, result=None)).strip()
    row = {"doc_id": "a", "tool": "calculator", "position": position, "call": written, "result": call.result}
    losses = {"loss_none": 3.0, "loss_result": None if gain is None else 3.0 - gain}
    return {**row, **losses, "filter_gain": gain, "kept": kept, **more}


def found(*rows: Mapping[str, Any], margin: float = 0.1) -> list[Preference]:
    return find_preferences({"a": TEXT}, rows, margin)


def sides(preferences: list[Preference]) -> list[tuple[ApiCall | None, ApiCall | None]]:
    return [(preference.chosen, preference.rejected) for preference in preferences]


def test_a_kept_call_is_preferred_to_the_text_and_to_the_call_that_harms_least() -> None:
    worse = replace(BAD, input="1400 / 70", result="20")
    rows = [row(SECOND, BAD, -0.5), row(SECOND, worse, -2.0), row(SECOND, GOOD, 1.0, kept=True)]
    assert sides(found(*rows)) == [(GOOD, None), (GOOD, BAD)]


def test_the_text_is_preferred_to_a_harmful_call_where_none_was_kept() -> None:
    assert sides(found(row(SECOND, GOOD, 0.05), row(SECOND, BAD, -0.5))) == [(None, BAD)]


@pytest.mark.parametrize("gain", [0.05, 0.0, -0.05, None])
def test_a_call_that_does_not_clearly_harm_is_not_rejected(gain: float | None) -> None:
    assert found(row(SECOND, BAD, gain)) == []


def test_a_call_that_is_better_than_none_is_not_rejected_whatever_the_papers_gain() -> None:
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
    _, written = dpo_rows(preferences, tokenizer)
    whole = insert(TEXT, [(FIRST, EARLIER), (SECOND, GOOD)])
    assert whole.startswith(written["prompt"] + written["chosen"])
    assert written["chosen"] == linearise(GOOD) + written["rejected"]
    tokens = tokenizer(TEXT, add_special_tokens=False, return_offsets_mapping=True)
    ends = [end for start, end in tokens.offset_mapping if start >= SECOND]
    assert written["rejected"] == TEXT[SECOND : ends[4]]


def test_a_completion_is_labelled_once(tokenizer: Any) -> None:
    rows = kto_rows(found(row(SECOND, GOOD, 1.0, kept=True), row(SECOND, BAD, -1.0)), tokenizer)
    assert [(linearise(GOOD) in row["completion"], row["label"]) for row in rows] == [
        (True, True), (False, False), (False, False),
    ]  # fmt: skip


@pytest.mark.parametrize("train_on_results", [True, False])
def test_the_tokens_are_those_of_training_on_texts(tokenizer: Any, train_on_results: bool) -> None:
    preferences = found(row(FIRST, EARLIER, 1.0, kept=True), row(SECOND, GOOD, 1.0, kept=True))
    encoder = Encoder(tokenizer, tokens_by_document(preferences, tokenizer), 512, train_on_results)
    encoded = encoder.dpo(preferences[1])
    assert encoded
    calls = ((FIRST, EARLIER), (SECOND, GOOD))
    of_texts = tokenize([AnnotatedText(TEXT, calls)], tokenizer)
    sequence = [*encoded["prompt_ids"], *encoded["chosen_ids"]]
    assert sequence == of_texts.ids[: len(sequence)].tolist()
    decoded = tokenizer.decode(
        [
            token
            for token, counted in zip(encoded["chosen_ids"], encoded["chosen_mask"], strict=True)
            if counted
        ]
    )
    assert decoded.startswith(" [Calculator(1400 - 400) ->")
    assert ("1000]" in decoded) is train_on_results


def test_a_long_prompt_loses_its_beginning(tokenizer: Any) -> None:
    preferences = found(row(SECOND, GOOD, 1.0, kept=True))
    documents = tokens_by_document(preferences, tokenizer)
    whole, short = (Encoder(tokenizer, documents, size, True).dpo(preferences[0]) for size in (512, 40))
    assert whole and short and len(short["prompt_ids"]) + len(short["chosen_ids"]) == 40
    assert whole["prompt_ids"][-len(short["prompt_ids"]) :] == short["prompt_ids"]
    assert short["chosen_ids"] == whole["chosen_ids"]


def test_a_position_inside_a_token_of_another_tokenizer_is_left_out(tokenizer: Any) -> None:
    preference = Preference("a", TEXT, (), SECOND, "calculator", GOOD, None)
    documents = tokens_by_document([preference], tokenizer)
    inside = next(place for place in range(1, len(TEXT)) if place not in documents["a"].first)
    assert Encoder(tokenizer, documents, 512, True).dpo(replace(preference, position=inside)) is None


PREFERENCES = found(
    row(FIRST, EARLIER, 1.0, kept=True), row(FIRST, BAD, -1.0), row(SECOND, GOOD, 1.0, kept=True), row(SECOND, BAD, -1.0)
)  # fmt: skip
LONG = replace(SETTINGS, sequence_length=64, eval_every=3, save_every=2, warmup_ratio=0)
RECIPE = PreferenceRecipe(learning_rate=3e-3, max_steps=6, epochs=12, batch_size=4, micro_batch_size=2)


def trained(
    model: Path, folder: Path, objective: str, recipe: PreferenceRecipe = RECIPE, **more: Any
) -> tuple[Any, Logs]:
    from toolformer.training.preference_trainer import train_preferences

    logs = Logs()
    options = {"on_log": logs, "progress": False, **more}
    return train_preferences(model, PREFERENCES, HELDOUT, objective, LONG, recipe, folder, **options), logs


@pytest.mark.parametrize("objective", ["kto", "dpo"])
def test_training_parts_chosen_from_rejected_and_keeps_the_last_model(
    objective: str, gpt2_folder: Path, tmp_path: Path
) -> None:
    result, logs = trained(gpt2_folder, tmp_path, objective)
    # At the first step the model is its reference: −log σ(0), or 1 − σ(0).
    assert logs.of("loss")[1] == pytest.approx(math.log(2) if objective == "dpo" else 0.5, abs=1e-3)
    margins = logs.of("rewards/margins")
    assert margins[1] == pytest.approx(0, abs=1e-5) and margins[6] > 0.01
    assert result.steps == result.best_step == 6
    assert result.heldout_perplexity == logs.of("heldout_perplexity")[6]
    assert result.heldout_perplexity == pytest.approx(perplexity(result.model_path, HELDOUT), rel=1e-4)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    again, logs = trained(gpt2_folder, tmp_path, objective)
    assert again == result and logs == []


@pytest.mark.parametrize("objective", ["kto", "dpo"])
def test_an_interrupted_training_ends_as_an_undisturbed_one(
    objective: str, gpt2_folder: Path, tmp_path: Path
) -> None:
    def stop(metrics: dict[str, float], step: int) -> None:
        if "loss" in metrics and step == 5:
            raise KeyboardInterrupt

    straight, expected = trained(gpt2_folder, tmp_path / "straight", objective)
    with pytest.raises(KeyboardInterrupt):
        trained(gpt2_folder, tmp_path / "resumed", objective, on_log=stop)
    resumed, logs = trained(gpt2_folder, tmp_path / "resumed", objective)
    assert list(logs.of("loss")) == [5, 6]
    same_end(straight, expected, resumed, logs)


@pytest.mark.parametrize(
    ("objective", "change", "message"),
    [
        ("kto", {"micro_batch_size": 1}, "objective=kto needs at least 2"),
        ("dpo", {"micro_batch_size": 3}, "not a multiple"),
        ("dpo", {"batch_size": 64, "epochs": 1}, "4 preferences are too few"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    objective: str, change: dict[str, int], message: str, gpt2_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        trained(gpt2_folder, tmp_path, objective, replace(RECIPE, **change))


def test_what_goes_with_texts_alone_is_refused() -> None:
    with pytest.raises(UserError, match="trainer.lora_rank is for objective=lm"):
        RECIPE.applied(replace(SETTINGS, lora_rank=2))
