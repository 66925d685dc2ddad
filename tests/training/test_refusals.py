"""Training that cannot be: settings, texts, batches and folders, each refused in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.test_trainer import SETTINGS, run
from toolformer.errors import UserError
from toolformer.training.settings import TrainingSettings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0.0}, "trainer.learning_rate is 0.0; it must be above 0"),
        ({"warmup_ratio": 10}, "trainer.warmup_ratio is 10; it is a share from 0 to 1"),
        ({"max_steps": None}, "trainer.max_steps and trainer.epochs are both null"),
        ({"schedule": "step"}, "trainer.schedule is 'step'; it is one of constant, linear, cosine"),
        ({"dtype": "int8"}, "trainer.dtype is 'int8'"),
        ({"device": "tpu"}, "trainer.device is 'tpu'"),
        ({"save_every": -1}, "trainer.save_every must be 0 or more"),
        ({"early_stopping": 0}, "trainer.early_stopping must be above 0, or null"),
        ({"seed": 2**32}, "trainer.seed is 4294967296; it must be from 0 to 4294967295"),
        ({"max_hours": -1.0}, "trainer.max_hours must be above 0, or null"),
        ({"lora_rank": 4, "deepspeed": "zero3"}, "trainer.lora_rank and ZeRO-3 do not go together"),
        ({"deepspeed": "/no/such/file.json"}, "trainer.deepspeed is /no/such/file.json; it is one of zero2"),
    ],
)
def test_impossible_settings_are_refused_before_a_model_is_loaded(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        replace(SETTINGS, **changes)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"batch_size": 6, "micro_batch_size": 4}, {}, "trainer.batch_size is 6, no multiple"),
        (
            {"sequence_length": 65},
            {},
            "trainer.sequence_length is 65, more than the model's context; choose at most 64",
        ),
        ({}, {"texts": []}, "there is no text to train or evaluate on"),
        ({}, {"heldout": [""]}, "there is no text to train or evaluate on"),
    ],
)
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
    with pytest.raises(UserError, match="2 x 3; set trainer.batch_size=3 trainer.micro_batch_size=1$"):
        run(gpt2_folder, tmp_path)


@pytest.mark.parametrize(
    ("processes", "changes"),
    [
        (32, {"micro_batch_size": 4}),  # the paper's batch stays
        (24, {"batch_size": 120, "micro_batch_size": 5}),
        (3, {"batch_size": 129, "micro_batch_size": 1}),
        (300, {"batch_size": 300, "micro_batch_size": 1}),
    ],
)
def test_a_batch_that_does_not_divide_is_mended_near_the_recipe(
    processes: int, changes: dict[str, Any]
) -> None:
    settings = TrainingSettings()
    with pytest.raises(UserError) as caught:
        settings.accumulation(processes)
    mend = " ".join(f"trainer.{name}={value}" for name, value in changes.items())
    assert str(caught.value).endswith(f"= 8 x {processes}; set {mend}")
    assert replace(settings, **changes).accumulation(processes) >= 1


def test_a_folder_that_is_no_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(UserError, match="has no config.json"):
        run(tmp_path / "model", tmp_path / "out")
