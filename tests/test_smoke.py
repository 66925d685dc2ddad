"""The smallest experiment with a tiny model: all four stages, interrupted and gone on with; then listed in the terminal."""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.processes import save_calling_model
from toolformer import experiments
from toolformer.cli import main
from toolformer.config import PAPER_SYSTEMS, STAGES, compose, validate
from toolformer.errors import UserError
from toolformer.launch import run_stage
from toolformer.tracking import Tracker


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calling") / "model"
    save_calling_model(folder)
    return folder


def planned(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[tuple[str, bool]]:
    capsys.readouterr()
    assert main(["run", *words, "--json"]) == 0
    return [(row["stage"], bool(row["run"])) for row in json.loads(capsys.readouterr().out)]


def test_smoke_goes_through_all_stages_and_does_only_what_is_missing(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "experiment=smoke",
        f"model={model}",
        f"paths.root={tmp_path}",
        "tools=[calendar]",
        "lm.dtype=float32",
    ]
    stages = ["generate", "train", "train", *["evaluate"] * 4, "report"]
    assert planned(words, capsys) == [(stage, False) for stage in stages]

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("benchmarks.suite.run", interrupted)
        assert main(["run", *words]) == 130
    assert planned(words, capsys) == [(stage, stage in ("generate", "train")) for stage in stages]
    # Two processes side by side, on one store.
    assert main(["run", *words, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]) == 0
    assert planned(words, capsys) == [(stage, stage != "report") for stage in stages]

    tracker = Tracker(None, tmp_path)
    (generated,) = tracker.runs("generate")
    trained = {run.tags["data"]: run for run in tracker.runs("train")}
    evaluated = {run.tags["system"]: run for run in tracker.runs("evaluate")}
    assert set(evaluated) == set(PAPER_SYSTEMS)
    assert {run.tags["lineage.dataset_run_id"] for run in trained.values()} == {generated.run_id}
    for system, data in (
        ("model_cc", "plain"),
        ("toolformer", "augmented"),
        ("toolformer_disabled", "augmented"),
    ):
        assert evaluated[system].tags["lineage.train_run_id"] == trained[data].run_id
    parents = {run.tags["mlflow.parentRunId"] for run in evaluated.values()}
    assert len(parents) == 1, "one sweep, though it was interrupted"
    assert tracker.get(parents.pop()).name == "smoke: evaluate"
    assert (tmp_path / "report" / "smoke" / "report.md").is_file()

    before = {run.run_id for stage in STAGES for run in tracker.runs(stage)}
    assert main(["run", *words]) == 0
    assert {run.run_id for stage in STAGES for run in tracker.runs(stage)} == before, "nothing was done twice"


@pytest.fixture(scope="module")
def words(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The smallest experiment of one system, all done."""
    own = [
        "experiment=smoke", f"model={model}", f"paths.root={tmp_path_factory.mktemp('runs')}", "tools=[calendar]",
        "lm.dtype=float32", "system=toolformer", "benchmarks=[dateset]",
    ]  # fmt: skip
    assert main(["run", *own]) == 0
    return own


def root(words: list[str]) -> Path:
    return Path(next(one for one in words if one.startswith("paths.root=")).partition("=")[2])


@pytest.mark.parametrize(
    ("stage", "place", "more", "said"),
    [
        ("train", "toolformer.training.trainer.train", "trainer.learning_rate=3e-4", "trains this model"),
        ("evaluate", "benchmarks.suite.run", "evaluation.bootstrap=30", "evaluates this system"),
    ],
)
def test_the_same_job_twice_at_once_is_done_once(
    words: list[str], stage: str, place: str, more: str, said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    caplog.set_level("INFO")
    config = validate(compose(stage, [*words, more]))
    module, _, name = place.rpartition(".")
    original = getattr(importlib.import_module(module), name)
    tracker = Tracker(None, root(words))
    before = {run.run_id for run in tracker.runs(stage)}
    second: list[Future[Any]] = []

    def at_work(*arguments: Any, **named: Any) -> Any:
        assert not second, "the second command does not do it again"
        second.append(pool.submit(run_stage, stage, config))
        deadline = time.monotonic() + 120
        while said not in caplog.text and not second[0].done() and time.monotonic() < deadline:
            time.sleep(0.05)
        return original(*arguments, **named)

    monkeypatch.setattr(place, at_work)
    with ThreadPoolExecutor(1) as pool:
        first = run_stage(stage, config)
        assert second[0].result().run_id == first.run_id
    assert caplog.text.count(said) == 1
    assert {run.run_id for run in tracker.runs(stage)} == before | {first.run_id}


def test_what_is_gone_is_made_again_when_it_is_read(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    stages = ["generate", "train", "evaluate", "report"]
    done = [(stage, stage != "report") for stage in stages]
    assert planned(words, capsys) == done
    for folder in (*root(words).glob("train/*/model"), *root(words).glob("artifacts/*/artifacts")):
        shutil.rmtree(folder)
    assert planned(words, capsys) == done, "nothing reads them"
    more = [*words, "evaluation.limit=3"]
    assert planned(more, capsys) == [(stage, False) for stage in stages]
    assert main(["run", *more]) == 0
    assert planned(more, capsys) == done


def test_a_job_that_fails_is_named_and_the_rest_is_done_and_reported(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = root(words) / "report" / "failing"
    # There is no data for the second.
    several = [*words, "name=failing", "system=model,baseline", "benchmarks=[dateset],[svamp]"]
    assert main(["run", *several]) == 2
    said = capsys.readouterr().err.splitlines()
    failed = [line for line in said if "failed:" in line]
    assert len(failed) == 2 and all("svamp" in line for line in failed)
    assert sum(line.startswith("toolformer:") for line in said) == 1
    assert not any("%|" in line for line in said), "no bars where there is no terminal"
    assert len(Tracker(None, root(words)).runs("evaluate", experiment="failing")) == 2
    assert (out / "report.md").is_file()


@pytest.mark.parametrize(("launcher", "bootstrap"), [("submitit_local", 40), ("ray", 50)])
def test_jobs_run_in_the_processes_of_a_launcher(
    words: list[str], launcher: str, bootstrap: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    if launcher == "ray" and not importlib.util.find_spec("hydra_plugins.hydra_ray_launcher"):
        pytest.skip("hydra-ray-launcher is not installed (make setup does)")

    def here(*_: object, **__: object) -> None:
        raise AssertionError("the job runs in the process of the command")

    monkeypatch.setattr("benchmarks.suite.run", here)
    tracker = Tracker(None, root(words))
    before = {run.run_id for run in tracker.runs("evaluate")}
    several = [
        *words,
        f"evaluation.bootstrap={bootstrap}",
        "system=model,toolformer",
        f"hydra/launcher={launcher}",
    ]
    assert main(["run", *several]) == 0, capsys.readouterr().err
    runs = [run for run in tracker.runs("evaluate") if run.run_id not in before]
    assert sorted(run.tags["system"] for run in runs) == ["model", "toolformer"]
    assert len({run.tags["mlflow.parentRunId"] for run in runs}) == 1


def test_a_run_that_is_named_is_read(model: Path, tmp_path: Path) -> None:
    words = ["experiment=smoke", f"model={model}", f"paths.root={tmp_path}", "system=toolformer"]
    with pytest.raises(UserError, match="there is no run abcdefgh"):
        experiments.plan([*words, "checkpoint=abcdefgh"])
