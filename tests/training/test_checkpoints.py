"""Checkpoints and models on disk: whole or absent, damaged ones named and passed over, one command at a time."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.conftest import SETTINGS, Logs, interrupted, run
from toolformer.errors import UserError
from toolformer.training import checkpoints


def flip_a_bit(checkpoint: Path) -> str:
    data = bytearray((checkpoint / "model.safetensors").read_bytes())
    data[-9] ^= 1
    (checkpoint / "model.safetensors").write_bytes(data)
    return "model.safetensors"


def add_a_pickle(checkpoint: Path) -> str:
    """As somebody would who wants DeepSpeed to load it."""
    (checkpoint / "global_step6").mkdir()
    (checkpoint / "global_step6" / "mp_rank_00_model_states.pt").write_bytes(b"not listed")
    return "global_step6/mp_rank_00_model_states.pt"


def drop_the_hashes(checkpoint: Path) -> str:
    checkpoints.write_json(checkpoint / checkpoints.MANIFEST, {"seconds": 1.0})
    return "config.json"


def write_a_list(checkpoint: Path) -> str:
    (checkpoint / checkpoints.MANIFEST).write_text("[1, 2]")
    return "complete.json"


def drop_the_seconds(checkpoint: Path) -> str:
    manifest = checkpoints.read_json(checkpoint / checkpoints.MANIFEST)
    checkpoints.write_json(checkpoint / checkpoints.MANIFEST, {"sha256": manifest["sha256"]})
    return "complete.json"


def delete_the_weights(model: Path) -> str:
    (model / "model.safetensors").unlink()
    return "model.safetensors"


def drop_the_perplexity(model: Path) -> str:
    record = checkpoints.read_json(model / checkpoints.RECORD)
    checkpoints.write_json(model / checkpoints.RECORD, {**record, "heldout_perplexity": None})
    return "training.json"


@pytest.fixture(scope="module")
def stopped(gpt2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Ctrl-C at step 7 left of a run: checkpoints of steps 3 and 6."""
    output = tmp_path_factory.mktemp("stopped") / "run"
    interrupted(gpt2_folder, output, at=7)
    return output


@pytest.mark.parametrize(
    "damage", [flip_a_bit, add_a_pickle, drop_the_hashes, write_a_list, drop_the_seconds]
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_taken(
    damage: Callable[[Path], str], stopped: Path, gpt2_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    """How often losses are logged may change between the two commands."""
    shutil.copytree(stopped, tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoints" / "checkpoint-6"
    name = damage(checkpoint)
    result, logs = run(gpt2_folder, tmp_path / "run", replace(SETTINGS, log_every=2))
    assert (list(logs.of("loss")), result.steps) == ([4, 6, 8], 8)
    (warning,) = [message for message in caplog.messages if "is damaged" in message]
    assert str(checkpoint) in warning and name in warning


@pytest.mark.parametrize("damage", [delete_the_weights, flip_a_bit, drop_the_perplexity])
def test_a_damaged_model_is_named_and_trained_again(
    damage: Callable[[Path], str], straight: tuple[Any, Logs], gpt2_folder: Path, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    shutil.copytree(straight[0].model_path, tmp_path / "model")
    (tmp_path / "model" / "policy.json").write_text("{}")  # what is added later is no damage
    result, logs = run(gpt2_folder, tmp_path)
    assert result == replace(straight[0], model_path=tmp_path / "model") and not logs
    name = damage(tmp_path / "model")
    again, logs = run(gpt2_folder, tmp_path)
    assert (
        f"{tmp_path / 'model'} is damaged ({name} is not what was saved); it is trained again" in caplog.text
    )
    assert logs.of("loss") == straight[1].of("loss") and again.sha256 == result.sha256


@pytest.mark.parametrize("damaged", ["best-4", "checkpoints/checkpoint-*"])
def test_without_a_whole_checkpoint_or_best_model_training_starts_over(
    damaged: str, stopped: Path, straight: tuple[Any, Logs], gpt2_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    for folder in (tmp_path / "run").glob(damaged):
        flip_a_bit(folder)
    result, logs = run(gpt2_folder, tmp_path / "run")
    assert list(logs.of("loss")) == list(range(1, 9)) and result.sha256 == straight[0].sha256


def test_the_best_model_is_never_missing_while_it_is_replaced(
    gpt2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the new best model is whole, the old one counts; it goes when the new one has its record."""
    kept: list[list[str]] = []
    real = checkpoints.write_last

    def write_last(folder: Path, name: str, record: dict[str, Any]) -> None:
        if name == checkpoints.RECORD:
            best = checkpoints.best_record(tmp_path)
            kept.append([f"best-{best['step']}" if best else "", folder.name])
        real(folder, name, record)

    monkeypatch.setattr(checkpoints, "write_last", write_last)
    interrupted(gpt2_folder, tmp_path, at=8)
    assert kept == [["", "best-4"]]
    run(gpt2_folder, tmp_path)
    assert kept == [["", "best-4"], ["best-4", "best-8"]]


def test_a_folder_is_held_by_one_command_and_continued_as_it_was_begun(
    tmp_path: Path, gpt2_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = {"processes": 1, "dtype": "float32"}

    def refused(message: str, **changes: Any) -> None:
        with pytest.raises(UserError, match=message), checkpoints.held(tmp_path, owner | changes):
            pass

    with checkpoints.held(tmp_path, owner):
        refused("another command is using")
        monkeypatch.setenv("RANK", "1")
        with checkpoints.held(tmp_path, owner):  # of the same command
            pass
    monkeypatch.delenv("RANK")
    refused("was started with processes=1 and dtype=float32; continue", processes=2, dtype="bfloat16")
    interrupted(gpt2_folder, tmp_path / "run", at=2)
    with pytest.raises(UserError, match="with dtype=float32; continue as it was started, or remove"):
        run(gpt2_folder, tmp_path / "run", replace(SETTINGS, dtype="bfloat16"))
    with pytest.raises(UserError, match="with texts=[0-9a-f]+; continue as it was started, or remove"):
        run(gpt2_folder, tmp_path / "run", texts=["another text"] * 20)


def test_a_deepspeed_file_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    for text, message in (
        ("{", "must be one of zero2, zero3, zero3_offload, or a JSON file"),
        ('{"zero_optimization": 2}', "has no zero_optimization, such as"),
        ('{"zero_optimization": {}, "scheduler": {"type": "WarmupLR"}}', "trainer.schedule; leave scheduler out$"),
        ('{"zero_optimization": {"stage": 3}}', "trainer.lora_rank and ZeRO-3"),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(UserError, match=message) as caught:
            replace(SETTINGS, lora_rank=4, deepspeed=str(path))
        assert "\n" not in str(caught.value)
    path.write_text('{"zero_optimization": {"stage": 2}}')
    assert replace(SETTINGS, lora_rank=4, deepspeed=str(path)).lora_rank == 4
