"""Training that cannot be: settings, texts, batches and folders, each refused in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from tests.training.conftest import build_tokenizer, save_model
from tests.training.test_trainer import ANNOTATED, SETTINGS, run
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
from toolformer.training.settings import Recipe


@pytest.mark.parametrize(
    "changes", [{"learning_rate": 0.0}, {"warmup_ratio": 10}, {"sequence_length": 1}, {"schedule": "step"}]
)
def test_bounds_are_those_of_the_types(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(changes))):
        TypeAdapter(Recipe).validate_python(changes)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"max_steps": None}, {}, "trainer.max_steps and trainer.epochs are both null"),
        ({"dtype": "int8"}, {}, "lm.dtype is 'int8'"),
        ({"device": "cuda:1"}, {}, "lm.device is cuda:1; training takes the first GPU that it sees"),
        ({"lora_rank": 4, "deepspeed": "zero3"}, {}, "trainer.lora_rank and ZeRO-3 do not go together"),
        ({"deepspeed": "/no/such/file.json"}, {}, "trainer.deepspeed is /no/such/file.json; it must be one of"),
        ({"batch_size": 6, "micro_batch_size": 4}, {}, "trainer.batch_size is 6, no multiple"),
        ({"sequence_length": 65}, {}, "is 65, more than the model's context; choose at most 64"),
        ({}, {"texts": []}, "there is no text to train or evaluate on"),
        ({}, {"heldout": [""]}, "there is no text to train or evaluate on"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(
    changes: dict[str, Any], options: dict[str, Any], message: str, gpt2_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        run(gpt2_folder, tmp_path, replace(SETTINGS, **changes), **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_batch_is_divided_over_processes(
    monkeypatch: pytest.MonkeyPatch, gpt2_folder: Path, tmp_path: Path
) -> None:
    assert replace(SETTINGS, batch_size=128, micro_batch_size=4).accumulation(processes=8) == 4
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UserError, match="2 x 3; set trainer.batch_size to a multiple of 6, or lower"):
        run(gpt2_folder, tmp_path)


def test_a_tokenizer_that_decoding_refuses_is_refused_before_training(tmp_path: Path) -> None:
    folder = save_model("gpt2", tmp_path / "model")
    build_tokenizer(tokens=270).save_pretrained(folder)
    with pytest.raises(UserError, match=r"has no single token for ' \['; choose another model$") as decoding:
        LanguageModel.from_pretrained(folder, device="cpu")
    with pytest.raises(UserError) as training:
        run(folder, tmp_path / "out", SETTINGS, texts=ANNOTATED)
    assert str(training.value) == str(decoding.value)
    plain = replace(SETTINGS, max_steps=1, save_every=0)
    run(folder, tmp_path / "plain", plain)  # texts without calls need none
