"""Sweeps by hand: which of their runs a later command reads, and what MLflow shows of them."""

from pathlib import Path
from typing import Any

from tests.conftest import Patch, Refused, smoke_words
from toolformer.cli import main
from toolformer.evaluation import suite
from toolformer.tracking import Tracker

OVER = "tool.calculator.filter_threshold"


def test_an_evaluation_reads_the_training_of_its_seed(root: Path) -> None:
    words, tracker = [*smoke_words(root), "name=seeds"], Tracker(None, root)
    assert main(["generate", *words]) == 0
    assert main(["train", "-m", *words, "data=augmented", "seed=1,2"]) == 0
    assert main(["evaluate", "-m", *words, "system=toolformer", "benchmarks=[dateset]", "seed=1,2"]) == 0
    evaluated = tracker.runs("evaluate", experiment="seeds")
    read = {
        run.params["seed"]: tracker.get(run.tags["lineage.train_run_id"]).params["seed"] for run in evaluated
    }
    assert read == {"1": "1", "2": "2"}


def test_a_training_reads_no_annotation_of_a_sweep(root: Path, refused: Refused) -> None:
    tracker = Tracker(None, root)
    (alone,) = tracker.runs("generate")
    assert main(["generate", "-m", *smoke_words(root), f"{OVER}=1,2"]) == 0
    assert main(["train", *smoke_words(root), "data=augmented", "trainer.learning_rate=3e-4"]) == 0
    assert tracker.runs("train")[0].tags["lineage.dataset_run_id"] == alone.run_id
    assert main(["generate", "-m", *smoke_words(root), "name=swept", f"{OVER}=1,2"]) == 0
    line = refused("train", *smoke_words(root), "name=swept", "data=augmented")
    two, one = (run.run_id[:8] for run in tracker.runs("generate", experiment="swept"))
    assert f"name one: {two} ({OVER}=2.0), {one} ({OVER}=1.0)" in line


def test_a_sweep_by_hand_as_mlflow_shows_it(root: Path, monkeypatch: Patch) -> None:
    tracker, original, during = Tracker(None, root), suite.run, list[str]()

    def running(*arguments: Any, **named: Any) -> Any:
        during.extend(run.status for run in tracker.all_runs() if run.tags.get("swept") == "decoding.k")
        return original(*arguments, **named)

    monkeypatch.setattr(suite, "run", running)
    swept = ["system=toolformer", "benchmarks=[dateset]", "decoding.k=0,3"]
    assert main(["evaluate", "-m", *smoke_words(root), *swept]) == 0
    (parent,) = (run for run in tracker.all_runs() if run.tags.get("swept") == "decoding.k")
    assert (during, parent.status) == (["RUNNING"] * 2, "FINISHED")
    assert parent.name == "smoke: evaluate over decoding.k"
    children = tracker.runs("evaluate", **{"mlflow.parentRunId": parent.run_id})
    assert [run.name for run in children] == [f"smoke: Toolformer model k={k}" for k in (3, 0)]


def test_a_sweep_that_is_interrupted_is_killed(root: Path, monkeypatch: Patch) -> None:
    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(suite, "run", stopped)
    swept = ["system=toolformer", "benchmarks=[dateset]", "decoding.k=0,3"]
    assert main(["evaluate", "-m", *smoke_words(root), *swept]) == 130
    (parent,) = (run for run in Tracker(None, root).all_runs() if run.tags.get("swept") == "decoding.k")
    assert parent.status == "KILLED"
