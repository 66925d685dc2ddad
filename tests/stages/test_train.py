"""The train stage: what its runs tell, and which of them answer a command given again."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import Capture, smoke_words
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.stages.config import Config, compose, validate
from toolformer.stages.evaluate import model_folder
from toolformer.stages.launch import run_stage
from toolformer.stages.train import finished
from toolformer.tracking import Run, Tracker


def config(root: Path, *more: str) -> Config:
    """Of three steps on the annotation of the smallest experiment."""
    words = ["trainer.max_steps=3", "trainer.log_every=1", "trainer.warmup_ratio=0", *more]
    return validate(compose("train", [*smoke_words(root), *words]))


def train(config: Config) -> Run:
    run: Run = run_stage("train", config)
    return run


def test_a_run_tells_the_perplexity_of_the_kept_model_not_of_the_last_evaluation(
    root: Path, capsys: Capture
) -> None:
    given = config(root, "trainer.learning_rate=1")
    run = train(given)
    curve = dict(Tracker(None, root).history(run, "heldout_perplexity") or ())
    best = min((1, 2, 3), key=lambda step: curve[step])
    assert best < 3, "the last evaluation is the best: it proves nothing"
    assert run.metrics["best_step"] == best
    assert run.metrics["best_heldout_perplexity"] == curve[best]
    assert run.metrics["heldout_perplexity"] == curve[3] and sorted(curve) == [0, 1, 2, 3]
    assert run.metrics["overall_tokens_per_second"] > 0
    assert train(given) == run
    assert main(["runs", f"paths.root={root}", "--stage", "train"]) == 0
    assert f"best heldout perplexity {curve[best]:g}" in capsys.readouterr().out


def test_a_run_that_its_time_ended_answers_no_command_with_more(root: Path) -> None:
    short, whole, tracker = config(root, "trainer.max_hours=1e-9"), config(root), Tracker(None, root)
    first = train(short)
    assert first.metrics["train_steps"] == 1 and first.tags["ended_by_max_hours"] == "1e-09"
    assert train(short) == first and finished(short) == first.run_id
    assert finished(whole) is None
    second = train(whole)
    assert second.run_id != first.run_id and second.metrics["train_steps"] == 3
    assert "ended_by_max_hours" not in second.tags
    assert [step for step, _ in tracker.history(second, "loss") or ()] == [2, 3]
    assert finished(short) == finished(whole) == second.run_id
    kept = {model_folder(tracker, run) for run in (first, second)}
    assert len(kept) == 2, "each run has the model that it made"


def test_a_damaged_model_is_trained_again_by_the_same_command(root: Path) -> None:
    given, tracker = config(root), Tracker(None, root)
    first = train(given)
    weights = model_folder(tracker, first) / "model.safetensors"
    saved = weights.read_bytes()
    weights.write_bytes(saved[:-9] + bytes([saved[-9] ^ 1]) + saved[-8:])
    second = train(given)
    assert second.run_id != first.run_id and weights.read_bytes() == saved
    assert train(given) == second


def test_a_dataset_that_cannot_be_read_is_one_line(root: Path) -> None:
    (run,) = Tracker(None, root).runs("generate")
    path = Tracker(None, root).artifact_path(run, "dataset_augmented.parquet")
    pq.write_table(pa.table({"words": ["a"]}), path)
    with pytest.raises(UserError, match="dataset_augmented.parquet of generate run .* is damaged.*again"):
        train(config(root))


def test_a_runs_tag_leads_nowhere_else(root: Path) -> None:
    given, tracker = config(root), Tracker(None, root)
    first = train(given)
    model = model_folder(tracker, first)
    (model.parent.parent / "training.json").write_text('{"heldout_perplexity": 1}')
    same = first.tags["fingerprint"]
    with tracker.run(stage="train", name="t", fingerprint=same, config={}) as run:
        run.tags({"model_path": f"{model}/.."})
    with pytest.raises(UserError, match="is no file name"):
        train(given)
