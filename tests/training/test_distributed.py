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
from toolformer.training.distributed import agreed_configuration
from toolformer.training.settings import TrainingSettings
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


@pytest.mark.parametrize(
    ("file", "place", "said"),
    [
        ({"train_batch_size": 64}, "train_batch_size = 64", "trainer.batch_size comes to 4"),
        ({"train_micro_batch_size_per_gpu": 4}, "train_micro_batch_size_per_gpu = 4", "micro_batch_size comes to 2"),
        ({"gradient_accumulation_steps": 1}, "gradient_accumulation_steps = 1", "comes to 2"),
        ({"gradient_clipping": 0.5}, "gradient_clipping = 0.5", "trainer.max_grad_norm comes to 1.0"),
        ({"bf16": {"enabled": True}}, "bf16.enabled = true", "lm.dtype comes to false"),
        ({"fp16": {"enabled": True}}, "fp16.enabled = true", "lm.dtype comes to false"),
        (
            {"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}},
            "optimizer.params.lr = 0.1",
            "trainer.learning_rate comes to 0.003",
        ),
    ],
)  # fmt: skip
def test_a_file_that_contradicts_the_settings_is_one_line(
    file: dict[str, Any], place: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "zero.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 2}, **file}))
    with pytest.raises(UserError) as caught:
        run(tmp_path / "no model is asked for", tmp_path / "out", replace(SETTINGS, deepspeed=str(path)))
    message = str(caught.value)
    assert message.startswith(f"trainer.deepspeed: {path} has {place}, and ") and "\n" not in message
    assert message.endswith(f'{said}; write "auto" there or leave it out')
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("file", [{}, {"zero_optimisation": {"stage": 2}}, {"zero_optimization": 2}])
def test_a_file_without_zero_is_one_line(file: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "zero.json"
    path.write_text(json.dumps(file))
    with pytest.raises(UserError, match="^trainer.deepspeed: .*zero.json has no zero_optimization, such as"):
        run(tmp_path / "no model is asked for", tmp_path / "out", replace(SETTINGS, deepspeed=str(path)))


def test_a_scheduler_in_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "zero.json"
    path.write_text(json.dumps({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}}))
    with pytest.raises(UserError, match=r"trainer.warmup_ratio and trainer.schedule; leave scheduler out$"):
        run(tmp_path / "no model", tmp_path / "out", replace(SETTINGS, deepspeed=str(path)))


def test_what_a_file_leaves_open_is_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "zero.json"
    path.write_text(
        json.dumps(
            {
                "zero_optimization": {"stage": 2},
                "optimizer": {"type": "AdamW"},
                "train_batch_size": 4,
                "bf16": {"x": 1},
            }
        )
    )
    configuration = agreed_configuration(replace(SETTINGS, deepspeed=str(path)))
    assert configuration["optimizer"]["params"] == {"lr": "auto", "weight_decay": "auto"}
    assert configuration["bf16"] == {"x": 1, "enabled": "auto"}
    assert configuration["gradient_accumulation_steps"] == configuration["gradient_clipping"] == "auto"
    assert "optimizer" not in agreed_configuration(replace(SETTINGS, deepspeed="zero3"))
    assert agreed_configuration(SETTINGS) == {}
