import json
import math
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.training.conftest import HELDOUT, ROOT, SETTINGS, TEXTS, perplexity, run, same_end, save_model
from toolformer.errors import UserError


def test_a_finished_run_leaves_one_whole_model_folder_and_is_not_run_again(
    gpt2_folder: Path, tmp_path: Path
) -> None:
    """Its perplexity is that of the held-out documents."""
    settings = replace(SETTINGS, sequence_length=64)
    result, logs = run(gpt2_folder, tmp_path, settings)
    files = {path.name: path for path in result.model_path.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "training.json"} <= set(files)
    assert not [name for name in files if name.endswith((".bin", ".pt", ".partial"))]
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o644}
    assert [path.name for path in result.model_path.parent.iterdir()] == ["model"]
    assert json.loads(files["config.json"].read_text()).get("use_cache", True) is True
    assert result.initial_heldout_perplexity == pytest.approx(perplexity(gpt2_folder, HELDOUT), rel=1e-5)
    assert result.heldout_perplexity == pytest.approx(perplexity(result.model_path, HELDOUT), rel=1e-5)
    assert result.heldout_perplexity < result.initial_heldout_perplexity
    assert list(logs.of("heldout_perplexity")) == [0, 4, 8]
    assert list(logs.of("loss")) == list(range(1, 9)) and logs.of("loss")[8] < logs.of("loss")[1]
    assert set(logs.of("learning_rate").values()) == {SETTINGS.learning_rate}
    for name in ("tokens_per_second", "grad_norm", "memory_gib"):
        assert all(value > 0 for value in logs.of(name).values())
    assert (result.steps, result.tokens) == (8, 8 * 4 * 64) and result.seconds > 0
    again, logs = run(gpt2_folder, tmp_path, replace(settings, log_every=5))
    assert again == result and logs == []


def test_the_learning_rate_grows_over_the_first_steps_and_reaches_the_optimizer(
    gpt2_folder: Path, tmp_path: Path
) -> None:
    last = {"constant": 1.0, "linear": 1 / 36, "cosine": (1 + math.cos(math.pi * 35 / 36)) / 2}
    for schedule, end in last.items():
        settings = replace(SETTINGS, schedule=schedule, warmup_ratio=0.1)
        factors = [settings.learning_rate_factor(step, 40) for step in range(40)]
        assert factors[:5] == [0.25, 0.5, 0.75, 1.0, 1.0] and factors[-1] == pytest.approx(end)
    settings = replace(SETTINGS, learning_rate=0.004, warmup_ratio=0.5, schedule="linear", save_every=0)
    _, logs = run(gpt2_folder, tmp_path, settings)
    rates = [rate * 1000 for rate in logs.of("learning_rate").values()]
    assert rates == pytest.approx([1, 2, 3, 4, 4, 3, 2, 1])


@pytest.mark.parametrize("name", ["llama", "bloom"])  # the latter trains on one document at a time
def test_micro_batches_add_up(name: str, tmp_path: Path) -> None:
    folder = save_model(name, tmp_path / "model")
    losses = []
    for size in (1, 4):
        settings = replace(SETTINGS, max_steps=3, micro_batch_size=size, eval_every=3, save_every=0)
        _, logs = run(folder, tmp_path / str(size), settings)
        losses.append(list(logs.of("loss").values()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_the_best_checkpoint_is_kept_not_the_last(gpt2_folder: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, learning_rate=0.05, max_steps=12, eval_every=2, save_every=0)
    result, logs = run(gpt2_folder, tmp_path, settings, texts=TEXTS[:1], heldout=HELDOUT[:1])
    perplexities = logs.of("heldout_perplexity")
    assert list(perplexities) == [0, 2, 4, 6, 8, 10, 12]
    best = min((step for step in perplexities if step), key=lambda step: perplexities[step])
    assert (result.best_step, result.heldout_perplexity) == (best, perplexities[best])
    assert best < 12, "the run does not overfit: it proves nothing"
    # Sequences of 32 tokens window a held-out text; one that fits says what is in the folder.
    again, _ = run(result.model_path, tmp_path / "again", settings, texts=TEXTS[:1], heldout=HELDOUT[:1])
    assert again.initial_heldout_perplexity == pytest.approx(perplexities[best], rel=1e-5)


KILLED = """
import os, sys
from pathlib import Path
from tests.training.conftest import run

def on_log(metrics, step):
    if "loss" in metrics and step == 5:
        os._exit(9)

run(Path(sys.argv[1]), Path(sys.argv[2]), on_log=on_log)
"""


@pytest.mark.chaos
def test_a_killed_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    # Dropout is on: the states of the random generators must come back too.
    model = save_model("gpt2-dropout", tmp_path / "model")
    straight, expected = run(model, tmp_path / "straight")
    output = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, str(model), str(output)]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert killed.returncode == 9, killed.stderr
    assert not (output / "model").exists()
    checkpoints = output / "checkpoints"
    assert [path.name for path in checkpoints.glob("checkpoint-*")] == ["checkpoint-3"]
    (checkpoints / "checkpoint-6").mkdir()  # what a kill in the middle of a later save leaves
    (checkpoints / "checkpoint-6" / "trainer_state.json").write_text("{")
    resumed, logs = run(model, output)
    assert list(logs.of("loss")) == [4, 5, 6, 7, 8]
    same_end(straight, expected, resumed, logs)


def test_a_full_disk_is_one_line_and_leaves_the_last_checkpoint(gpt2_folder: Path, tmp_path: Path) -> None:
    """Writes beyond a size limit fail as writes to a full disk do, inside the libraries that make them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def fill(metrics: dict[str, float], step: int) -> None:
        if step == 4:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))

    try:
        # 4,096 bytes let no weights through; 64,000 let the weights through, not the optimizer.
        for limit, settings in ((4096, SETTINGS), (64_000, replace(SETTINGS, eval_every=100))):
            output = tmp_path / str(limit)
            with pytest.raises(UserError, match=r"cannot write .*make room or name another folder") as caught:
                run(gpt2_folder, output, settings, on_log=fill)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert "\n" not in str(caught.value) and str(output) in str(caught.value)
            assert [path.name for path in (output / "checkpoints").glob("checkpoint-*")] == ["checkpoint-3"]
            result, logs = run(gpt2_folder, output, settings)
            assert next(iter(logs.of("loss"))) == 4 and result.steps == 8
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_epochs_end_a_run(gpt2_folder: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_steps=100, epochs=2, batch_size=2, micro_batch_size=1, save_every=0)
    tokenizer = AutoTokenizer.from_pretrained(gpt2_folder)
    tokens = 2 * sum(len(tokenizer(text).input_ids) + 1 for text in TEXTS[:3])
    result, _ = run(gpt2_folder, tmp_path, settings, texts=TEXTS[:3])
    # A cut repeats one token as context of what follows it.
    assert tokens <= result.tokens <= tokens + math.ceil(tokens / 31)
    assert result.steps == math.ceil(result.tokens / 32 / 2)


def test_a_loss_that_is_no_number_ends_the_run(tmp_path: Path) -> None:
    folder = save_model("gpt2", tmp_path / "model")
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.transformer.ln_f.weight.fill_(math.nan)
    model.save_pretrained(folder)
    with pytest.raises(UserError, match="training: the loss is nan at step 1; lower trainer.learning_rate"):
        run(folder, tmp_path / "out")
