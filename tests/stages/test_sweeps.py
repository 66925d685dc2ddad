"""Sweeps by hand: which of their runs a later command reads, and the run that groups them."""

from pathlib import Path
from typing import Any

from tests.conftest import Patch, Refused, smoke_words
from toolformer.cli import main
from toolformer.evaluation import suite
from toolformer.results import Results, Run

OVER = "tool.calculator.filter_threshold"
SWEPT = ["system=toolformer", "benchmarks=[dateset]", "decoding.k=0,3"]


def test_an_evaluation_reads_the_training_of_its_seed(root: Path) -> None:
    overrides, results = [*smoke_words(root), "evaluation.limit=2"], Results(root)
    assert main(["train", *overrides, "data=augmented", "seed=1"]) == 0
    assert main(["evaluate", "-m", *overrides, "system=toolformer", "benchmarks=[dateset]", "seed=0,1"]) == 0
    evaluated = [run for run in results.runs("evaluate") if run.setting("evaluation.limit") == 2]
    read = {run.setting("seed"): results.get(run.made_from[0]).setting("seed") for run in evaluated}
    assert read == {0: 0, 1: 1}


def test_a_training_reads_no_annotation_of_a_sweep(root: Path, refused: Refused) -> None:
    results = Results(root)
    (alone,) = results.runs("generate")
    assert main(["generate", "-m", *smoke_words(root), f"{OVER}=1,2"]) == 0
    assert main(["train", *smoke_words(root), "data=augmented", "trainer.learning_rate=3e-4"]) == 0
    assert results.runs("train")[0].made_from == [alone.id]
    assert main(["generate", "-m", *smoke_words(root), "name=swept", f"{OVER}=1,2"]) == 0
    line = refused("train", *smoke_words(root), "name=swept", "data=augmented")
    two, one = (run.id[:8] for run in results.runs("generate", "swept"))
    assert f"name one: {two} ({OVER}=2.0), {one} ({OVER}=1.0)" in line


def by_k(root: Path) -> Run:
    """The sweep over k."""
    (sweep,) = (run for run in Results(root).all_runs("sweep") if run.facts["swept"] == ["decoding.k"])
    return sweep


def test_a_sweep_groups_its_runs_while_they_are_at_work(root: Path, monkeypatch: Patch) -> None:
    """One that is interrupted says so, and ends as it should with the same command."""
    original, during = suite.run, list[str]()

    def interrupted(*arguments: Any, **named: Any) -> Any:
        during.append(by_k(root).status)
        if len(during) == 2:
            raise KeyboardInterrupt
        return original(*arguments, **named)

    monkeypatch.setattr(suite, "run", interrupted)
    command = ["evaluate", "-m", *smoke_words(root), *SWEPT]
    assert (main(command), during, by_k(root).status) == (130, ["RUNNING"] * 2, "KILLED")
    assert main(command) == 0 and during == ["RUNNING"] * 3
    sweep = by_k(root)
    assert (sweep.status, sweep.name) == ("FINISHED", "smoke: evaluate over decoding.k")
    children = Results(root).swept("evaluate", sweep.id)
    assert [run.name for run in children] == [f"smoke: Toolformer model k={k}" for k in (3, 0)]
    assert sorted(run.id for run in children) == sorted(sweep.facts["runs"])
