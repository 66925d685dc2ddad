"""Sweeps by hand: which of their runs a later command reads, and the run that groups them."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Patch, Refused, smoke_words
from toolformer.cli import main
from toolformer.evaluation import suite
from toolformer.results import Results, Run

OVER = "tool.calculator.filter_threshold"
SWEPT = ["system=toolformer", "benchmarks=[dateset]", "decoding.k=0,3"]


def test_an_evaluation_reads_the_training_of_its_seed(root: Path) -> None:
    overrides, results = [*smoke_words(root), "name=seeds"], Results(root)
    assert main(["generate", *overrides]) == 0
    assert main(["train", "-m", *overrides, "data=augmented", "seed=1,2"]) == 0
    assert main(["evaluate", "-m", *overrides, "system=toolformer", "benchmarks=[dateset]", "seed=1,2"]) == 0
    evaluated = results.runs("evaluate", "seeds")
    read = {run.setting("seed"): results.get(run.made_from[0]).setting("seed") for run in evaluated}
    assert read == {1: 1, 2: 2}


def test_a_training_reads_no_annotation_of_a_sweep(root: Path, refused: Refused) -> None:
    results = Results(root)
    (alone,) = results.runs("generate")
    assert main(["generate", "-m", *smoke_words(root), f"{OVER}=1,2"]) == 0
    assert main(["train", *smoke_words(root), "data=augmented", "trainer.learning_rate=3e-4"]) == 0
    assert results.runs("train")[0].made_from == [alone.id]
    assert main(["generate", "-m", *smoke_words(root), "name=swept", f"{OVER}=3,4"]) == 0
    line = refused("train", *smoke_words(root), "name=swept", "data=augmented")
    four, three = (run.id[:8] for run in results.runs("generate", "swept"))
    assert f"name one: {four} ({OVER}=4.0), {three} ({OVER}=3.0)" in line


def by_k(root: Path) -> Run:
    """The sweep over k."""
    (sweep,) = (run for run in Results(root).all_runs("sweep") if run.facts["swept"] == ["decoding.k"])
    return sweep


def test_a_sweep_groups_its_runs(root: Path) -> None:
    assert main(["evaluate", "-m", *smoke_words(root), *SWEPT]) == 0
    sweep = by_k(root)
    assert (sweep.status, sweep.name) == ("FINISHED", "smoke: evaluate over decoding.k")
    children = Results(root).swept("evaluate", sweep.id)
    assert [run.name for run in children] == [f"smoke: Toolformer model k={k}" for k in (3, 0)]
    assert sorted(run.id for run in children) == sorted(sweep.facts["runs"])


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_sweep_is_at_work_with_its_runs(root: Path, monkeypatch: Patch, interrupted: bool) -> None:
    original, during = suite.run, list[str]()

    def running(*arguments: Any, **named: Any) -> Any:
        during.append(by_k(root).status)
        if interrupted:
            raise KeyboardInterrupt
        return original(*arguments, **named)

    monkeypatch.setattr(suite, "run", running)
    code = main(["evaluate", "-m", *smoke_words(root), *SWEPT])
    ended = by_k(root).status
    if interrupted:
        assert (code, during, ended) == (130, ["RUNNING"], "KILLED")
    else:
        assert (code, during, ended) == (0, ["RUNNING"] * 2, "FINISHED")
