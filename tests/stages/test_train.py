"""The train stage: what its runs say, and which of them answer a command that is given again."""

from pathlib import Path

from tests.conftest import Capture, smoke_words
from toolformer.cli import main
from toolformer.results import Run
from toolformer.stages.config import Config, compose, validate
from toolformer.stages.launch import run_stage
from toolformer.stages.train import model_folder


def config(root: Path, *more: str) -> Config:
    """Of three steps on the annotation of the smallest experiment."""
    overrides = ["trainer.max_steps=3", "trainer.log_every=1", "trainer.warmup_ratio=0", *more]
    return validate(compose("train", [*smoke_words(root), *overrides]))


def train(config: Config) -> Run:
    run: Run = run_stage("train", config)
    return run


def test_a_run_has_the_perplexity_of_the_kept_model_and_makes_a_damaged_one_again(
    root: Path, capsys: Capture
) -> None:
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
