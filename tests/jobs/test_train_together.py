"""Trainings by several processes that the command itself starts, killed and resumed; and what is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from tests.build import GOLDEN, smoke_words, wait_for
from tests.processes import PATIENCE, Process
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.jobs import train
from toolformer.jobs.config import compose, validate
from toolformer.lm import devices
from toolformer.results import Results, Run
from toolformer.training import distributed
from toolformer.training.trainer import MAX_RATE

STEPS = 8
RECIPE = (
    "learning_rate=null",
    "max_steps=8",
    "eval_every=4",
    "batch_size=2",
    "micro_batch_size=1",
    "sequence_length=32",
)


def words(root: Path, *more: str) -> list[str]:
    """An experiment of one training, with a model that drops nothing at random: processes draw in other orders."""
    recipe = [f"trainer.{setting}" for setting in RECIPE]
    stages = ["run.stages.train.data=[augmented]", "~run.stages.evaluate", "~run.stages.report"]
    model = f"model={root.parent / 'model'}"
    return [*smoke_words(root), model, "lm.device=cpu", *recipe, *stages, *more]


def training(root: Path) -> Run:
    (run,) = Results(root).runs("train")
    return run


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The training by one process."""
    folder = tmp_path_factory.mktemp("alone")
    shutil.copytree(GOLDEN, folder / "model")
    config = json.loads((folder / "model" / "config.json").read_text())
    config |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    (folder / "model" / "config.json").write_text(json.dumps(config))
    assert main(["run", *words(folder / "runs")]) == 0
    return training(folder / "runs")


@pytest.mark.chaos
@pytest.mark.parametrize("deepspeed", ["null", "zero3"])
def test_two_processes_killed_and_resumed_train_as_one(
    deepspeed: str, alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    folder, root = alone.folder.parents[2], tmp_path / "runs"
    shutil.copytree(folder / "model", tmp_path / "model")
    shutil.copytree(folder / "runs", root)
    shutil.rmtree(root / "train")
    command = ["run", *words(root, "trainer.processes=2", f"trainer.deepspeed={deepspeed}")]
    first = Process(command, tmp_path / "first")
    checkpoints = f"train/{alone.id}/checkpoints/checkpoint-*/complete.json"
    assert first.until(lambda: [*root.glob(checkpoints)]), first.errors
    first.kill()
    second = Process(command, tmp_path / "second")
    assert second.wait() == 0, second.errors
    together = training(root)
    assert together.id == alone.id
    steps = [step for step, _ in together.curve("loss")]
    assert steps == sorted({*steps}) == [step for step, _ in alone.curve("loss")]
    one, two = (load_file(run.folder / "model" / "model.safetensors") for run in (alone, together))
    assert one.keys() == two.keys()
    for name in one:
        distances = (one[name] - two[name]).abs()
        if name.endswith("attn.c_attn.bias"):
            # A bias of all keys changes no attention: its gradient is rounding, of which AdamW makes steps like any other.
            queries, keys, values = distances.chunk(3)
            assert float(keys.max()) < 2 * STEPS * MAX_RATE
            distances = torch.cat([queries, values])
        assert float(distances.max()) < 1e-4, name


@pytest.mark.chaos
def test_a_process_that_is_killed_ends_the_training_in_one_line() -> None:
    with pytest.raises(
        UserError, match=r"process 2 of 2 was killed \(SIGKILL\), as if memory ran out; lower"
    ):
        distributed.launch(2, end_one)


@pytest.mark.chaos
def test_its_processes_end_with_a_killed_command() -> None:
    program = (
        "from tests.jobs import test_train_together as tests; tests.distributed.launch(2, tests.signal.pause)"
    )
    command = psutil.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[2])

    def trainers() -> list[psutil.Process]:
        return [child for child in command.children() if "spawn_main" in " ".join(child.cmdline())]

    wait_for(lambda: len(trainers()) == 2, PATIENCE)
    started = trainers()
    command.kill()
    command.wait()
    try:
        wait_for(lambda: not any(child.is_running() for child in started), 60)
    finally:
        for child in started:
            if child.is_running():
                child.kill()


@pytest.mark.chaos
def test_bad_input_of_one_process_is_that_of_the_command() -> None:
    with pytest.raises(UserError, match="^training: the texts are too short$"):
        distributed.launch(2, refuse)


def end_one() -> None:
    if distributed.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def refuse() -> None:
    if distributed.rank() == 0:
        raise UserError("training: the texts are too short")
    signal.pause()


def settings(*more: str) -> train.TrainingSettings:
    return train.settings_of(validate(compose("train", [*more])))


def test_all_gpus_train_if_their_number_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for gpus in (0, 1, 4):
        monkeypatch.setattr(devices, "gpus", lambda _, gpus=gpus: gpus)
        counts.append(
            train.processes_to_start(settings("trainer.processes=auto", "trainer.micro_batch_size=1"))
        )
    assert counts == [1, 1, 4]


def test_two_processes_on_one_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpus", lambda _: 1)
    with pytest.raises(UserError, match="trainer.processes=2 needs 2 GPUs, but there is 1"):
        train.processes_to_start(settings("trainer.processes=2"))


def test_a_batch_that_processes_cannot_share_is_refused() -> None:
    with pytest.raises(UserError, match="trainer.batch_size is 4, not a multiple of"):
        train.processes_to_start(settings("trainer.processes=3", "lm.device=cpu"))


def test_under_a_launcher_no_further_processes_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert train.processes_to_start(settings("trainer.processes=8", "lm.device=cpu")) == 1


@pytest.mark.parametrize(
    ("command", "key"),
    [("run", "trainer.processes"), ("generate", "engine.workers"), ("evaluate", "engine.workers")],
)
def test_a_launcher_starts_trainings_alone(
    command: str, key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = {**os.environ, "WORLD_SIZE": "2", "RANK": "0"}
    started = [sys.executable, "-m", "toolformer.cli", command, "experiment=smoke", f"paths.root={tmp_path}"]
    done = subprocess.run(started, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and f"toolformer {command} experiment=smoke ... {key}=2" in done.stderr
    assert not [*tmp_path.iterdir()]
