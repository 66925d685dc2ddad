"""Sweeps as Hydra runs them: by launchers, grouped in MLflow, and what is refused."""

import importlib.util
from pathlib import Path

import pytest

from tests.build import Capture, Patch, Refused, smoke_words
from toolformer.cli import main, run
from toolformer.results import Results, Run

SWEPT = ["system=toolformer", "benchmarks=[dateset]", "decoding.k=0,3"]


def test_an_evaluation_reads_the_training_of_its_seed(root: Path) -> None:
    overrides, results = [*smoke_words(root), "evaluation.limit=2"], Results(root)
    dataset = f"dataset={results.runs('generate')[0].id}"
    assert main(["train", *overrides, "data=augmented", "seed=1", dataset]) == 0
    evaluations = run(["evaluate", "-m", *overrides, "system=toolformer", "benchmarks=[dateset]", "seed=0,1"])
    read = {run.setting("seed", 0): results.get(run.made_from[0]).setting("seed", 0) for run in evaluations}
    assert read == {0: 0, 1: 1}


def test_the_runs_of_a_sweep_share_a_group(root: Path) -> None:
    runs = run(["evaluate", "-m", *smoke_words(root), *SWEPT])
    assert [run.setting("decoding.k", 10) for run in runs] == [0, 3]
    (group,) = {run.parent for run in runs}
    assert group.startswith("decoding.k=0,3: evaluate ") and str(root) not in group
    assert "decoding.k=3" in runs[1].command and "-m" not in runs[1].command
    assert not [*root.glob("sweeps/*")], "Hydra's own files"


def test_what_is_done_is_not_done_again_in_another_sweep(root: Path) -> None:
    first = run(["evaluate", "-m", *smoke_words(root), *SWEPT])
    second = run(["evaluate", "-m", *smoke_words(root), *SWEPT[:2], "decoding.k=0,3,1"])
    assert [run.ended for run in second[:2]] == [run.ended for run in first] and len(second) == 3


def test_a_job_is_checked_with_its_own_values(root: Path) -> None:
    """What is impossible without the swept key is possible."""
    windows = "propose.window_overlap=8", "propose.window_tokens=16,32"
    assert len(run(["generate", "-m", *smoke_words(root), *windows])) == 2


def test_a_job_that_fails_keeps_no_other_from_running(root: Path, refused: Refused) -> None:
    line = refused("evaluate", "-m", *smoke_words(root), "system=model", "evaluation.limit=0,1")
    assert "evaluation.limit is 0" in line
    assert [run for run in Results(root).runs("evaluate") if run.setting("evaluation.limit") == 1]


def test_an_experiment_is_swept_as_a_whole(root: Path) -> None:
    runs = run(["run", "-m", *smoke_words(root), "system=toolformer", "seed=0,1"])
    assert [run.stage for run in runs] == ["generate", "train", "evaluate"] * 2
    assert [run.setting("seed", 0) for run in runs] == [0, 0, 0, 1, 1, 1]
    (parent,) = {run.parent for run in runs[3:]}  # the others were done before
    assert parent.startswith("seed=0,1: run experiment=smoke")


def made_elsewhere(root: Path, launcher: str, limit: int, monkeypatch: Patch) -> list[Run]:
    """The evaluations that a sweep makes in other processes."""
    monkeypatch.setattr(
        "toolformer.evaluation.suite.evaluate_tasks",
        lambda *_, **__: pytest.fail("the job runs in the command's process"),
    )
    results = Results(root)
    before = {run.id for run in results.runs("evaluate")}
    words = [*smoke_words(root), f"evaluation.limit={limit}", "system=model,toolformer"]
    assert main(["evaluate", "-m", *words, f"hydra/launcher={launcher}"]) == 0
    return [run for run in results.runs("evaluate") if run.id not in before]


@pytest.mark.chaos
@pytest.mark.parametrize(("launcher", "limit"), [("submitit_local", 1), ("joblib", 2), ("ray", 3)])
def test_jobs_run_in_the_processes_of_a_launcher(
    pipeline: Path, launcher: str, limit: int, monkeypatch: Patch
) -> None:
    if launcher == "ray" and not importlib.util.find_spec("hydra_plugins.hydra_ray_launcher"):
        pytest.skip("hydra-ray-launcher is not installed")
    runs = made_elsewhere(pipeline, launcher, limit, monkeypatch)
    assert sorted(run.facts["system"] for run in runs) == ["model", "toolformer"]
    assert len({run.parent for run in runs}) == 1


@pytest.mark.chaos
def test_a_job_that_fails_elsewhere_is_one_line(pipeline: Path, refused: Refused) -> None:
    words = [*smoke_words(pipeline), "system=model", "evaluation.limit=0,1", "hydra/launcher=joblib"]
    assert "evaluation.limit is 0" in refused("evaluate", "-m", *words)


@pytest.mark.chaos
def test_a_launchers_process_that_is_killed_is_one_line(pipeline: Path, refused: Refused) -> None:
    killed = "tool.calendar.implementation._target_=tests.processes.Killed"
    words = [*smoke_words(pipeline), killed, "system=toolformer", "seed=0,1", "hydra/launcher=joblib"]
    said = refused("evaluate", "-m", *words)
    assert "hydra/launcher: " in said and "the same command resumes" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hydra/launcher=slurm"], 'Could not detect "srun"'),
        (["decodng.k=1,2"], "there is no key 'decodng.k' (did you mean decoding.k=1,2"),
        (["seed=1,abc"], "seed=abc"),
        (["trainer.learning_rate=interval(0,1)"], "sweep type"),
        (["hydra/launcher=slrm"], "did you mean slurm?"),
        (["hydra.launcher.memory=8", "hydra/launcher=slurm"], "memory"),
    ],
)
def test_a_sweep_is_refused_in_one_line(
    words: list[str], said: str, tmp_path: Path, refused: Refused
) -> None:
    assert said in refused("train", "-m", f"paths.root={tmp_path}", *words)


def test_several_values_ask_for_a_sweep(refused: Refused) -> None:
    assert "add -m to sweep over several values" in refused("run", "experiment=smoke", "seed=0,1,2")


def test_a_command_gives_back_its_run(root: Path, capsys: Capture) -> None:
    (with_calls,) = run(["evaluate", *smoke_words(root), "system=toolformer"])
    (without,) = run(["evaluate", *smoke_words(root), "system=toolformer_disabled"])
    assert [run.facts["system"] for run in (with_calls, without)] == ["toolformer", "toolformer_disabled"]
