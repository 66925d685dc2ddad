from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from toolformer.errors import UserError
from toolformer.training import checkpoints
from toolformer.training.distributed import agreed_configuration
from toolformer.training.settings import TrainingSettings


def write(folder: Path, name: str, record: dict[str, object]) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    checkpoints.write_json(path / checkpoints.RECORD, record)
    return path


def test_only_marked_checkpoints_count_and_the_latest_are_kept(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        (tmp_path / f"checkpoint-{step}").mkdir()
        checkpoints.mark_complete(tmp_path / f"checkpoint-{step}", {})
    (tmp_path / "checkpoint-110").mkdir()
    assert [path.name for path in checkpoints.complete_checkpoints(tmp_path)] == [
        "checkpoint-9",
        "checkpoint-10",
        "checkpoint-100",
    ]
    checkpoints.remove_checkpoints(tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-100"]


def test_the_best_model_is_never_missing_while_it_is_replaced(tmp_path: Path) -> None:
    write(tmp_path, "best-2", {"run": "a", "step": 2, "heldout_perplexity": 9.0})
    partial = write(tmp_path, "best.partial", {"run": "a", "step": 4, "heldout_perplexity": 8.0})
    # Killed before the new one has its name: the old one counts.
    assert checkpoints.best_record(tmp_path, "a")["step"] == 2
    checkpoints.replace_best(tmp_path, partial, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["best-4"]
    assert checkpoints.best_record(tmp_path, "a")["step"] == 4
    assert checkpoints.best_record(tmp_path, "another run") == {}


def test_what_decides_a_run_is_in_its_fingerprint() -> None:
    first = checkpoints.fingerprint({"learning_rate": 1e-5}, ["a", "b"], ["c"])
    assert first == checkpoints.fingerprint({"learning_rate": 1e-5}, ["a", "b"], ["c"])
    others = [
        checkpoints.fingerprint({"learning_rate": 2e-5}, ["a", "b"], ["c"]),
        checkpoints.fingerprint({"learning_rate": 1e-5}, ["b", "a"], ["c"]),
        checkpoints.fingerprint({"learning_rate": 1e-5}, ["a"], ["b", "c"]),
        checkpoints.fingerprint({"learning_rate": 1e-5}, ["ab"], ["c"]),
    ]
    assert len({first, *others}) == 5


def test_a_run_is_told_by_what_its_deepspeed_file_says_not_by_its_name(tmp_path: Path) -> None:
    def run(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        settings = TrainingSettings(deepspeed=str(tmp_path / name))
        return checkpoints.fingerprint(settings.deciding(), ["a"], ["b"])

    first = run("zero.json", '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}')
    assert run("zero.json", '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}') != first
    assert run("moved.json", '{"bf16": {"enabled": "auto"},\n "zero_optimization": {"stage": 2}}') == first
    assert TrainingSettings(deepspeed="zero3").deciding()["deepspeed"] == "zero3"
    assert TrainingSettings().deciding()["deepspeed"] is None


def test_only_failed_writes_are_called_failed_writes(tmp_path: Path) -> None:
    partial = tmp_path / "partial"
    partial.mkdir()
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(UserError, match="No space left on device"), checkpoints.saving(tmp_path, partial):
        raise full
    assert not partial.exists()
    with pytest.raises(RuntimeError, match="shapes"), checkpoints.saving(tmp_path, partial):
        raise RuntimeError("shapes do not match")


def test_a_broken_deepspeed_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "zero3.json"
    for text, message in (("{", "is no JSON file"), ("[]", "holds no JSON object")):
        path.write_text(text)
        with pytest.raises(UserError, match=message) as caught:
            agreed_configuration(TrainingSettings(deepspeed=str(path)))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("attempt", range(10))
def test_processes_that_claim_a_folder_at_once_do_not_trip_over_each_other(
    tmp_path: Path, attempt: int
) -> None:
    together = threading.Barrier(6)

    def claim() -> None:
        together.wait()
        checkpoints.claim(tmp_path / "checkpoints", "run", 1, "float32")

    with ThreadPoolExecutor(6) as pool:
        for one in [pool.submit(claim) for _ in range(6)]:
            one.result()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [checkpoints.RUN]


def test_a_folder_of_an_earlier_version_is_gone_on_with(tmp_path: Path) -> None:
    """It does not tell processes and number format."""
    checkpoints.write_json(tmp_path / checkpoints.RUN, {"run": "a"})
    checkpoints.claim(tmp_path, "a", 2, "float32")
    with pytest.raises(UserError, match="belongs to a run with other settings"):
        checkpoints.claim(tmp_path, "b", 2, "float32")


def test_a_folder_is_held_by_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with checkpoints.alone(tmp_path):
        with (
            pytest.raises(UserError, match="another command is at work in"),
            checkpoints.alone(tmp_path),
        ):
            pass
        monkeypatch.setenv("RANK", "1")
        with checkpoints.alone(tmp_path):  # of the same command
            pass
    monkeypatch.delenv("RANK")
    with checkpoints.alone(tmp_path):
        pass


def test_adapters_and_zero_3_are_refused_whatever_the_file_is_called(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"stage": 3}}')
    with pytest.raises(UserError, match=r"trainer.lora_rank and ZeRO-3"):
        TrainingSettings(lora_rank=4, deepspeed=str(path))
    path.write_text('{"zero_optimization": {"stage": 2}}')
    assert TrainingSettings(lora_rank=4, deepspeed=str(path)).lora_rank == 4
