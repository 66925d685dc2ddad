"""Several processes under a launcher: DeepSpeed's ZeRO-3 on two CPU processes against one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.training.conftest import save_model
from tests.training.test_trainer import ROOT, SETTINGS, Logs, run
from toolformer.documents import demo_corpus
from toolformer.errors import UserError
from toolformer.training.distributed import BUILT_IN, deepspeed_configuration
from toolformer.training.settings import DEEPSPEED, TrainingSettings
from toolformer.training.trainer import train

EMBEDDED: dict[str, Any] = {
    "max_steps": 3, "batch_size": 4, "micro_batch_size": 2, "sequence_length": 64, "eval_every": 3, "save_every": 0,
    "log_every": 1, "learning_rate": 1e-4, "device": "cpu", "dtype": "float32",
}  # fmt: skip
WORKER = """
import json, os, sys
from dataclasses import replace
from pathlib import Path
from tests.training.conftest import HELDOUT, TEXTS
from tests.training.test_trainer import SETTINGS
from toolformer.training.distributed import end_of_process
from toolformer.training.trainer import train

logs = []
more = {"micro_batch_size": 1, **json.loads(sys.argv[4])}
settings = replace(SETTINGS, deepspeed=sys.argv[3], **more)
texts, heldout = json.loads(sys.argv[5]) if len(sys.argv) > 5 else (TEXTS, HELDOUT)
model = sys.argv[1] if sys.argv[1] == "smollm2" else Path(sys.argv[1])
result = train(model, texts, heldout, settings, Path(sys.argv[2]), lambda m, s: logs.append((s, m)), False)
if os.environ["RANK"] == "0":
    (Path(sys.argv[2]) / "logs.json").write_text(json.dumps(logs))
end_of_process(0)
"""


def launch(folder: Path, script: str, *arguments: object, processes: int = 2) -> None:
    """Runs a script under torchrun."""
    (folder / "worker.py").write_text(script)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        str(processes),
    ]
    done = subprocess.run(
        [*command, str(folder / "worker.py"), *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]


ODD = {"sequence_length": 48, "max_steps": None, "epochs": 1}
"""Nine sequences: one process has none left to complete its last micro batch."""


@pytest.mark.parametrize(("deepspeed", "more"), [("zero3", {}), ("zero2", ODD)])
def test_two_processes_train_what_one_does(deepspeed: str, more: dict[str, Any], tmp_path: Path) -> None:
    model = save_model("gpt2", tmp_path / "model")
    alone, expected = run(model, tmp_path / "alone", replace(SETTINGS, micro_batch_size=1, **more))
    output = tmp_path / "two"
    output.mkdir()
    launch(tmp_path, WORKER, model, output, deepspeed, json.dumps(more))
    logs = [(step, metrics) for step, metrics in json.loads((output / "logs.json").read_text())]
    losses = [metrics["loss"] for _, metrics in logs if "loss" in metrics]
    assert losses == pytest.approx(list(expected.of("loss").values()), rel=1e-4)
    record = json.loads((output / "model" / "training.json").read_text())
    assert record["heldout_perplexity"] == pytest.approx(alone.heldout_perplexity, rel=1e-4)
    # The folder is a normal one: whole weights in safetensors, with the perplexity that was measured.
    assert (output / "model" / "model.safetensors").is_file()
    short = replace(SETTINGS, **{**more, "max_steps": 1, "epochs": None}, eval_every=1, save_every=0)
    again, _ = run(output / "model", tmp_path / "again", short)
    assert again.initial_heldout_perplexity == pytest.approx(record["heldout_perplexity"], rel=1e-4)


def test_offloading_needs_no_compiler_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-compiler")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "compiled"))
    more = {"max_steps": 3, "eval_every": 3, "save_every": 0}
    model = save_model("gpt2", tmp_path / "model")
    alone, _ = run(model, tmp_path / "alone", replace(SETTINGS, micro_batch_size=1, **more))
    output = tmp_path / "offloaded"
    output.mkdir()
    launch(tmp_path, WORKER, model, output, "zero3_offload", json.dumps(more), processes=1)
    record = json.loads((output / "model" / "training.json").read_text())
    assert record["heldout_perplexity"] == pytest.approx(alone.heldout_perplexity, rel=1e-4)
    assert not [*(tmp_path / "compiled").glob("*")]


@pytest.mark.real
def test_two_processes_train_the_embedded_model_as_one_does(tmp_path: Path) -> None:
    """ZeRO-3, three steps of four sequences."""
    texts = [document.text for document in demo_corpus("train")][:12]
    heldout = [document.text for document in demo_corpus("heldout")][:2]
    logs = Logs()
    alone = train("smollm2", texts, heldout, TrainingSettings(**EMBEDDED), tmp_path / "alone", logs, False)
    output = tmp_path / "two"
    output.mkdir()
    launch(tmp_path, WORKER, "smollm2", output, "zero3", json.dumps(EMBEDDED), json.dumps([texts, heldout]))
    logged = json.loads((output / "logs.json").read_text())
    losses = [metrics["loss"] for _, metrics in logged if "loss" in metrics]
    assert len(losses) == 3 and losses == pytest.approx(list(logs.of("loss").values()), rel=1e-4)
    record = json.loads((output / "model" / "training.json").read_text())
    assert record["heldout_perplexity"] == pytest.approx(alone.heldout_perplexity, rel=1e-4)
    two, one = (load_file(folder / "model" / "model.safetensors") for folder in (output, tmp_path / "alone"))
    assert two.keys() == one.keys() and all(two[name].shape == one[name].shape for name in one)


def test_every_named_configuration_is_there() -> None:
    assert set(DEEPSPEED) == set(BUILT_IN)
    assert BUILT_IN["zero3_offload"]["zero_optimization"]["offload_optimizer"]["device"] == "cpu"


def test_a_file_that_is_no_configuration_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "zero.json"
    for text, reason in (("{", "is no JSON file"), ("[]", "holds no JSON object")):
        path.write_text(text)
        with pytest.raises(UserError, match=reason):
            deepspeed_configuration(str(path), "cpu")
