"""Checkpoints and models on disk: complete or absent, and damaged ones skipped with a line."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from tests.training.build import SETTINGS, Logs, interrupted, run, same_end, save_model
from toolformer import storage
from toolformer.errors import UserError
from toolformer.training import checkpoints
from toolformer.training.loop import PackedTrainer


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


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**checkpoints.read_json(file), **values}))


def drop_the_hashes(checkpoint: Path) -> str:
    change(checkpoint / checkpoints.MANIFEST, sha256=None)
    return "config.json"


def write_a_list(checkpoint: Path) -> str:
    (checkpoint / checkpoints.MANIFEST).write_text("[1, 2]")
    return "complete.json"


def drop_the_seconds(checkpoint: Path) -> str:
    change(checkpoint / checkpoints.MANIFEST, seconds=None)
    return "complete.json"


def delete_the_weights(model: Path) -> str:
    (model / "model.safetensors").unlink()
    return "model.safetensors"


def drop_the_perplexity(model: Path) -> str:
    change(model / checkpoints.RECORD, heldout_perplexity=None)
    return "training.json"


@pytest.fixture(scope="module")
def stopped(gpt2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Ctrl-C at step 7 left of a run: checkpoints of steps 4, the best so far, and 6."""
    output = tmp_path_factory.mktemp("stopped") / "run"
    interrupted(gpt2_folder, output, at=7)
    return output


@pytest.mark.parametrize(
    "damage", [flip_a_bit, add_a_pickle, drop_the_hashes, write_a_list, drop_the_seconds]
)
def test_a_damaged_checkpoint_is_replaced_by_the_one_before(
    damage: Callable[[Path], str], stopped: Path, gpt2_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    """How often losses are logged may change between the two commands."""
    shutil.copytree(stopped, tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoints" / "checkpoint-6"
    name = damage(checkpoint)
    result, logs = run(gpt2_folder, tmp_path / "run", replace(SETTINGS, log_every=2))
    assert (list(logs.of("loss")), result.steps) == ([6, 8], 8)
    (warning,) = [message for message in caplog.messages if "is damaged" in message]
    assert str(checkpoint) in warning and name in warning


@pytest.mark.parametrize("damage", [delete_the_weights, flip_a_bit, drop_the_perplexity])
def test_a_damaged_model_is_named_and_trained_again(
    damage: Callable[[Path], str], straight: tuple[Any, Logs], gpt2_folder: Path, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    shutil.copytree(straight[0].model_path, tmp_path / "model")
    (tmp_path / "model" / "notes.txt").write_text("added later")  # which is not damage
    result, logs = run(gpt2_folder, tmp_path)
    assert result == replace(straight[0], model_path=tmp_path / "model") and not logs
    name = damage(tmp_path / "model")
    again, logs = run(gpt2_folder, tmp_path)
    assert (
        f"{tmp_path / 'model'} is damaged ({name} is not what was saved); it is trained again" in caplog.text
    )
    assert logs.of("loss") == straight[1].of("loss") and again.sha256 == result.sha256


def test_large_files_are_known_by_a_sample(
    gpt2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of which an earlier release stored the whole digest."""
    monkeypatch.setattr(storage, "_PIECE", 64)
    result, _ = run(gpt2_folder, tmp_path)
    weights = result.model_path / "model.safetensors"
    assert result.sha256[weights.name] == storage.sample_digest(weights) != storage.sha256(weights)
    record = result.model_path / checkpoints.RECORD
    for digest in (result.sha256[weights.name], storage.sha256(weights)):
        change(record, sha256={**result.sha256, weights.name: digest})
        assert checkpoints.damaged_file(result.model_path) is None
    data = weights.read_bytes()
    weights.write_bytes(data[:-1])
    assert checkpoints.damaged_file(result.model_path) == weights.name


def test_without_an_intact_best_checkpoint_training_starts_over(
    stopped: Path, straight: tuple[Any, Logs], gpt2_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    flip_a_bit(tmp_path / "run" / "checkpoints" / "checkpoint-4")
    result, logs = run(gpt2_folder, tmp_path / "run")
    assert list(logs.of("loss")) == list(range(1, 9)) and result.sha256 == straight[0].sha256


def test_a_checkpoint_that_was_not_completed_is_removed(
    stopped: Path, straight: tuple[Any, Logs], gpt2_folder: Path, tmp_path: Path
) -> None:
    """Nor does it count among those that are kept."""
    shutil.copytree(stopped, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    shutil.copytree(folder / "checkpoint-6", folder / "checkpoint-7")
    (folder / "checkpoint-7" / checkpoints.MANIFEST).unlink()
    resumed, logs = run(gpt2_folder, tmp_path / "run")
    assert list(logs.of("loss")) == [7, 8]
    same_end(*straight, resumed, logs)


def test_checkpoints_are_removed_once_the_next_is_complete(
    gpt2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete: dict[str, list[str]] = {}
    real = checkpoints.write_last

    def write_last(folder: Path, name: str, record: dict[str, Any]) -> None:
        complete[folder.name] = sorted(path.parent.name for path in tmp_path.glob(f"*/*/{name}"))
        real(folder, name, record)

    monkeypatch.setattr(checkpoints, "write_last", write_last)
    run(gpt2_folder, tmp_path)
    assert complete == {
        "checkpoint-3": [],
        "checkpoint-4": ["checkpoint-3"],
        "checkpoint-6": ["checkpoint-3", "checkpoint-4"],
        "checkpoint-8": ["checkpoint-4", "checkpoint-6"],
        "model.partial": [],
    }


def test_a_moved_folder_is_resumed(
    stopped: Path, straight: tuple[Any, Logs], gpt2_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped, tmp_path / "moved")
    resumed, logs = run(gpt2_folder, tmp_path / "moved")
    assert list(logs.of("loss")) == [7, 8]
    same_end(*straight, resumed, logs)


@pytest.mark.parametrize("lora_rank", [None, 4])
def test_experts_are_resumed(lora_rank: int | None, tmp_path: Path) -> None:
    """Their weights have other names in files than in memory."""
    model = save_model("mixtral", tmp_path / "model")
    settings = replace(SETTINGS, learning_rate=0.01, lora_rank=lora_rank)
    straight = run(model, tmp_path / "straight", settings)
    interrupted(model, tmp_path / "resumed", 7, settings)
    resumed, logs = run(model, tmp_path / "resumed", settings)
    assert list(logs.of("loss")) == [7, 8]
    same_end(*straight, resumed, logs)


def test_without_checkpoints_to_resume_from_training_starts_over(
    straight: tuple[Any, Logs], gpt2_folder: Path, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, save_every=0)
    interrupted(gpt2_folder, tmp_path, 7, settings)
    (checkpoint,) = (tmp_path / "checkpoints").glob("checkpoint-*")
    assert checkpoint.name == "checkpoint-4" and not (checkpoint / "optimizer.pt").exists()
    result, logs = run(gpt2_folder, tmp_path, settings)
    assert list(logs.of("loss")) == list(range(1, 9)) and result.sha256 == straight[0].sha256


def test_a_training_started_over_resumes_from_its_own_checkpoint(
    straight: tuple[Any, Logs], gpt2_folder: Path, tmp_path: Path
) -> None:
    """Not from the weights alone that an earlier command left at a later step."""
    interrupted(gpt2_folder, tmp_path, 7, replace(SETTINGS, save_every=0))
    settings = replace(SETTINGS, save_every=1)
    interrupted(gpt2_folder, tmp_path, 4, settings)
    folders = sorted(path.name for path in (tmp_path / "checkpoints").glob("checkpoint-*"))
    assert folders == ["checkpoint-2", "checkpoint-3"]
    result, logs = run(gpt2_folder, tmp_path, settings)
    assert list(logs.of("loss")) == list(range(4, 9)) and result.sha256 == straight[0].sha256


def test_weights_alone_may_be_the_best_of_a_later_checkpoint(
    straight: tuple[Any, Logs], gpt2_folder: Path, tmp_path: Path
) -> None:
    """Later ones are removed, so that they do not count among those that are kept."""
    interrupted(gpt2_folder, tmp_path, 3, replace(SETTINGS, save_every=1))
    interrupted(gpt2_folder, tmp_path, 6, replace(SETTINGS, save_every=0))
    interrupted(gpt2_folder, tmp_path, 4, replace(SETTINGS, save_every=1))
    result, logs = run(gpt2_folder, tmp_path)
    assert list(logs.of("loss")) == list(range(4, 9)) and result.sha256 == straight[0].sha256


def test_a_checkpoint_of_another_perplexity_is_refused(
    gpt2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(trainer: PackedTrainer) -> None:
        trainer.model.load_state_dict(start)

    start: Any = AutoModelForCausalLM.from_pretrained(gpt2_folder).state_dict()
    monkeypatch.setattr(PackedTrainer, "_load_best_model", load)
    with pytest.raises(UserError, match="is not the trained one of step 8 .a token's loss differs by"):
        run(gpt2_folder, tmp_path)
    assert not list(tmp_path.glob("model*"))


def test_a_training_is_continued_as_it_was_started(tmp_path: Path, gpt2_folder: Path) -> None:
    owner = {"processes": 1, "dtype": "float32"}
    checkpoints.check_owner(tmp_path / "checkpoints", owner)
    with pytest.raises(UserError, match="started with processes=1 and dtype=float32; continue as it was"):
        checkpoints.check_owner(tmp_path / "checkpoints", {"processes": 2, "dtype": "bfloat16"})
    interrupted(gpt2_folder, tmp_path / "run", at=2)
    with pytest.raises(UserError, match="with dtype=float32; continue as it was started, or remove"):
        run(gpt2_folder, tmp_path / "run", replace(SETTINGS, dtype="bfloat16"))
    with pytest.raises(UserError, match="with texts=[0-9a-f]+; continue as it was started, or remove"):
        run(gpt2_folder, tmp_path / "run", texts=["another text"] * 20)


def test_a_deepspeed_file_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    for text, message in (
        ("{", "must be one of zero2, zero3, zero3_offload, or a JSON file"),
        (100_000 * "[", "must be one of zero2, zero3, zero3_offload, or a JSON file"),
        ('{"zero_optimization": 2}', "has no zero_optimization, such as"),
        ('{"zero_optimization": {}, "scheduler": {"type": "WarmupLR"}}', "trainer.schedule; leave scheduler out$"),
        ('{"zero_optimization": {"stage": 3}}', "trainer.lora_rank cannot be combined with ZeRO-3"),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(UserError, match=message) as caught:
            replace(SETTINGS, lora_rank=4, deepspeed=str(path))
        assert "\n" not in str(caught.value)
    path.write_text('{"zero_optimization": {"stage": 2}}', encoding="utf-8-sig")
    assert replace(SETTINGS, lora_rank=4, deepspeed=str(path)).lora_rank == 4
