"""Several processes under torchrun or DeepSpeed's launcher: ZeRO on two CPU processes against one process."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.build import HELDOUT, ROOT, SETTINGS, perplexity, run, save_model

WORKER = """
import json, os, sys
from dataclasses import replace
from pathlib import Path
from tests.training.build import HELDOUT, SETTINGS, TEXTS
from toolformer.errors import UserError
from toolformer.training import losses
from toolformer.training.distributed import end_of_process
from toolformer.training.trainer import train

losses.CHUNK = 7 * 300  # one process computes all losses at once
for name, more in json.loads(sys.argv[2]):
    logs = []
    settings = replace(SETTINGS, **{"micro_batch_size": 1, "sequence_length": 64, **more})
    output = Path(sys.argv[1]).with_name(name)
    try:
        result = train(Path(sys.argv[1]), TEXTS, HELDOUT, settings, output, lambda m, s: logs.append((s, m)), False)
    except UserError as error:
        output.with_suffix(".refused").write_text(str(error))
        continue
    if os.environ["RANK"] == "0":
        (result.model_path / "logs.json").write_text(json.dumps(logs))
end_of_process(0)
"""


TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc_per_node")
DEEPSPEED = ("deepspeed.launcher.runner", "--no_local_rank", "--num_gpus")


def launch(
    folder: Path, script: str, *arguments: object, processes: int = 2, launcher: tuple[str, ...] = TORCHRUN
) -> None:
    """Runs a script in several processes that a launcher starts."""
    (folder / "worker.py").write_text(script)
    started = [sys.executable, "-m", *launcher, str(processes)]
    command = [*started, str(folder / "worker.py"), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


def losses(model: Path) -> dict[int, float]:
    """The loss of each step of the worker's training that left this model."""
    logs = json.loads((model / "logs.json").read_text())
    return {step: metrics["loss"] for step, metrics in logs if "loss" in metrics}


def record(model: Path) -> dict[str, Any]:
    """What a training noted beside its model."""
    return json.loads((model / "training.json").read_text())


ODD = {"sequence_length": 48, "max_steps": None, "epochs": 1}
"""Nine sequences: one process has none left to complete its last micro batch."""
BF16 = {"dtype": "bfloat16"}  # one process has its weights in float32, DeepSpeed a copy of them in bfloat16
OWN_OPTIMIZER = {"type": "AdamW", "params": {"torch_adam": True}}  # DeepSpeed's other ones would be compiled


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and what two processes made of it: all in one launch, since starting takes the time."""
    folder = tmp_path_factory.mktemp("together")
    own = folder / "zero.json"
    own.write_text(json.dumps({"zero_optimization": {"stage": 3}, "optimizer": OWN_OPTIMIZER}))
    batch = folder / "batch.json"
    batch.write_text('{"zero_optimization": {"stage": 2}, "train_batch_size": 64}')
    jobs = [
        ("contradiction", {"deepspeed": str(batch)}),
        ("zero3", {"deepspeed": "zero3"}),
        ("bf16", {"deepspeed": "zero3", **BF16}),
        ("bf16_own", {"deepspeed": str(own), **BF16}),
        ("own", {"deepspeed": str(own)}),
        ("zero2", {"deepspeed": "zero2", **ODD}),
    ]
    launch(folder, WORKER, save_model("gpt2", folder / "start"), json.dumps(jobs))
    return folder


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("name", "more", "close"),
    [
        ("zero3", {}, 1e-4), ("own", {}, 1e-4), ("zero2", ODD, 1e-4), ("bf16", BF16, 0.02), ("bf16_own", BF16, 0.02),
    ],
)  # fmt: skip
def test_two_processes_train_what_one_does(
    name: str, more: dict[str, Any], close: float, together: Path, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, **{"micro_batch_size": 1, "sequence_length": 64, **more})
    alone, expected = run(together / "start", tmp_path, settings)
    model = together / name / "model"
    assert losses(model) == pytest.approx(expected.of("loss"), rel=close)
    assert record(model)["heldout_perplexity"] == pytest.approx(alone.heldout_perplexity, rel=close)
    # The folder is a normal one: whole weights in safetensors, with the perplexity that was measured.
    assert (model / "model.safetensors").is_file()
    assert perplexity(model, HELDOUT) == pytest.approx(record(model)["heldout_perplexity"], rel=close)


@pytest.mark.chaos
def test_a_file_that_contradicts_the_settings_is_refused(together: Path) -> None:
    refusal = (together / "contradiction.refused").read_text()
    wanted = f"trainer.deepspeed: {together / 'batch.json'} has train_batch_size=64, and by the settings "
    assert refusal.startswith(wanted) and refusal.endswith('; write "auto" there or leave it out')
    assert not (together / "contradiction").exists()


@pytest.mark.chaos
def test_offloading_needs_no_compiler_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-compiler")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "compiled"))
    more = {"max_steps": 3, "eval_every": 3, "save_every": 0}
    model = save_model("gpt2", tmp_path / "start")
    alone, _ = run(
        model, tmp_path / "alone", replace(SETTINGS, micro_batch_size=1, sequence_length=64, **more)
    )
    jobs = [("offloaded", {"deepspeed": "zero3_offload", **more})]
    launch(tmp_path, WORKER, model, json.dumps(jobs), processes=1, launcher=DEEPSPEED)
    perplexities = record(tmp_path / "offloaded" / "model")["heldout_perplexity"], alone.heldout_perplexity
    assert perplexities[0] == pytest.approx(perplexities[1], rel=1e-4)
    assert not [*(tmp_path / "compiled").glob("*")]
