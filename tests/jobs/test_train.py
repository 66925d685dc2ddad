"""The train stage: what its runs say, and which of them answer a command that is given again."""

import logging
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.build import Capture, smoke_words
from tests.processes import run_stage
from toolformer.cli import main
from toolformer.jobs.config import Config, compose, validate
from toolformer.jobs.outputs import model_folder
from toolformer.jobs.train import _threshold
from toolformer.results import Run


def config(root: Path, *more: str) -> Config:
    """Of three steps on the annotation of the smallest experiment."""
    overrides = ["trainer.max_steps=3", "trainer.log_every=1", "trainer.warmup_ratio=0", *more]
    return validate(compose("train", [*smoke_words(root), *overrides]))


def train(config: Config) -> Run:
    run: Run = run_stage("train", config)
    return run


def test_a_run_has_the_perplexity_of_the_kept_model(root: Path, capsys: Capture) -> None:
    given = config(root, "trainer.learning_rate=1")
    run = train(given)
    curve = dict(run.curve("heldout_perplexity"))
    best = min((1, 2, 3), key=lambda step: curve[step])
    assert best < 3, "the last evaluation is the best: it proves nothing"
    assert run.metrics["best_step"] == best
    assert run.metrics["best_heldout_perplexity"] == curve[best]
    assert run.metrics["heldout_perplexity"] == curve[3] and sorted(curve) == [0, 1, 2, 3]
    assert run.metrics["overall_tokens_per_second"] > 0
    assert train(given) == run
    assert main(["runs", f"paths.root={root}", "--stage", "train"]) == 0
    assert f"best heldout perplexity {curve[best]:g}" in capsys.readouterr().out
    weights = model_folder(run) / "model.safetensors"
    saved = weights.read_bytes()
    weights.write_bytes(saved[:-9] + bytes([saved[-9] ^ 1]) + saved[-8:])
    again = train(given)
    assert again.id == run.id and again.ended != run.ended and weights.read_bytes() == saved


def test_a_run_names_the_threshold_of_its_annotation(root: Path) -> None:
    run = train(config(root))
    assert run.facts["threshold"] == "-100" and " τ_f=-100: " in run.name


def test_a_threshold_by_tool_is_named_by_tool() -> None:
    def annotated(**thresholds: float) -> Mock:
        return Mock(thresholds=thresholds)

    both = [annotated(calculator=0.1, calendar=0.3), annotated(calculator=1.0, calendar=1.0)]
    assert _threshold(both) == "calculator 0.1, calendar 0.3 + 1"


def test_a_training_by_epochs_says_its_steps_before_it_begins(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And takes ten held-out perplexities, or one per step."""
    caplog.set_level(logging.INFO)
    epochs = ["trainer.max_steps=null", "trainer.epochs=2", "trainer.eval_every=null"]
    run = train(config(root, *epochs))
    steps = round(run.metrics["train_steps"])
    lines = [message for message in caplog.messages if message.startswith(f"train: {steps} steps of 1 sequ")]
    assert len(lines) == 1 and lines[0].endswith("held-out perplexity every step")
    assert sorted(dict(run.curve("heldout_perplexity"))) == list(range(steps + 1))
