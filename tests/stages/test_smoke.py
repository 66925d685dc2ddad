"""The smallest experiment with a tiny model: all four stages, interrupted and gone on with; several commands at once."""

import importlib
import importlib.util
import json
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Capture, Log, Patch, smoke_words
from toolformer.cli import main
from toolformer.decoding.settings import PAPER_SYSTEMS, SYSTEMS
from toolformer.errors import UserError
from toolformer.lm import text_generator
from toolformer.stages import experiments
from toolformer.stages.config import STAGES, compose, validate
from toolformer.stages.launch import run_stage
from toolformer.tracking import Tracker


def planned(words: list[str], capsys: Capture) -> list[tuple[str, bool]]:
    capsys.readouterr()
    assert main(["run", *words, "--json"]) == 0
    return [(row["stage"], bool(row["run"])) for row in json.loads(capsys.readouterr().out)]


def test_smoke_goes_through_all_stages_and_does_only_what_is_missing(
    tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    words = smoke_words(tmp_path)
    stages = ["generate", "train", "train", *["evaluate"] * 4, "report"]
    assert planned(words, capsys) == [(stage, False) for stage in stages]

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("benchmarks.suite.run", interrupted)
        assert main(["run", *words]) == 130
    assert text_generator.load.cache_info().currsize == 0, (
        "the annotation's model is not held beside a trained one"
    )
    assert planned(words, capsys) == [(stage, stage in ("generate", "train")) for stage in stages]
    assert main(["run", *words]) == 0
    assert planned(words, capsys) == [(stage, stage != "report") for stage in stages]
    tracker = Tracker(None, tmp_path)
    evaluated = tracker.runs("evaluate")
    assert {run.tags["system"] for run in evaluated} == set(PAPER_SYSTEMS)
    (parent,) = {run.tags["mlflow.parentRunId"] for run in evaluated}
    assert tracker.get(parent).name == "smoke: evaluate", "one sweep, though it was interrupted"
    before = {run.run_id for stage in STAGES for run in tracker.runs(stage)}
    capsys.readouterr()
    assert main(["run", *words]) == 0
    shown = capsys.readouterr().out
    assert "Annotated 4 texts" in shown and all(SYSTEMS[system] in shown for system in PAPER_SYSTEMS)
    assert {run.run_id for stage in STAGES for run in tracker.runs(stage)} == before, "nothing was done twice"


@pytest.mark.parametrize(
    ("stage", "place", "more", "said"),
    [
        ("train", "toolformer.training.trainer.train", "trainer.learning_rate=3e-4", "trains this model"),
        ("evaluate", "benchmarks.suite.run", "evaluation.bootstrap=30", "evaluates this system"),
    ],
)
def test_the_same_job_twice_at_once_is_done_once(
    pipeline: Path, stage: str, place: str, more: str, said: str, caplog: Log,
    monkeypatch: Patch, capsys: Capture,
) -> None:  # fmt: skip
    caplog.set_level("INFO")
    config = validate(compose(stage, [*smoke_words(pipeline), more]))
    module, _, name = place.rpartition(".")
    original = getattr(importlib.import_module(module), name)
    tracker = Tracker(None, pipeline)
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
    assert "contexts" not in capsys.readouterr().err, "bars of lm-eval"


def test_a_second_seed_joins_the_row_of_the_first(root: Path) -> None:
    assert main(["run", *smoke_words(root), "system=toolformer", "seed=0,1"]) == 0
    tracker = Tracker(None, root)
    assert len({run.tags["replicate"] for run in tracker.runs("train", data="augmented")}) == 1
    evaluated = tracker.runs("evaluate", system="toolformer")
    assert sorted(run.params["seed"] for run in evaluated) == ["0", "1"]
    lines = (root / "report" / "smoke" / "report.md").read_text(encoding="utf-8").splitlines()
    (row,) = (line for line in lines if line.startswith("| Toolformer |") and "seeds)" in line)
    mean = sum(run.metrics["dateset/score"] for run in evaluated) / 2
    assert f"{mean:.1f}" in row and "(2 seeds)" in row
    (parent,) = {run.tags["mlflow.parentRunId"] for run in evaluated if run.params["seed"] == "1"}
    assert tracker.get(parent).metrics["dateset/score"] == mean, "with what was done before"


def test_what_is_gone_is_made_again_when_it_is_read(pipeline: Path, capsys: Capture) -> None:
    words = [*smoke_words(pipeline), "system=toolformer"]
    stages = ["generate", "train", "evaluate", "report"]
    done = [(stage, stage != "report") for stage in stages]
    for folder in (*pipeline.glob("train/*/model"), *pipeline.glob("artifacts/*/artifacts")):
        shutil.rmtree(folder)
    assert planned(words, capsys) == done, "nothing reads them"
    more = [*words, "evaluation.limit=3"]
    assert planned(more, capsys) == [(stage, False) for stage in stages]
    assert main(["run", *more]) == 0
    assert planned(more, capsys) == done


def test_a_job_that_fails_is_named_and_the_rest_is_done_and_reported(pipeline: Path, capsys: Capture) -> None:
    # There is no data for the second.
    several = ["name=failing", "system=model,baseline", "benchmarks=[dateset],[svamp]"]
    assert main(["run", *smoke_words(pipeline), *several]) == 2
    said = capsys.readouterr().err.splitlines()
    failed = [line for line in said if "failed:" in line]
    assert len(failed) == 2 and all("svamp" in line for line in failed)
    assert sum(line.startswith("toolformer:") for line in said) == 1
    assert len(Tracker(None, pipeline).runs("evaluate", experiment="failing")) == 2
    assert (pipeline / "report" / "failing" / "report.md").is_file()
    with pytest.raises(UserError, match="there is no run abcdefgh"):
        experiments.plan([*smoke_words(pipeline), "system=toolformer", "checkpoint=abcdefgh"])


@pytest.mark.chaos
@pytest.mark.parametrize(("launcher", "bootstrap"), [("submitit_local", 40), ("joblib", 50), ("ray", 60)])
def test_jobs_run_in_the_processes_of_a_launcher(
    pipeline: Path, launcher: str, bootstrap: int, monkeypatch: Patch, capsys: Capture
) -> None:  # fmt: skip
    if launcher == "ray" and not importlib.util.find_spec("hydra_plugins.hydra_ray_launcher"):
        pytest.skip("hydra-ray-launcher is not installed (conf/hydra/launcher/ray.yaml)")
    monkeypatch.setattr(
        "benchmarks.suite.run", lambda *_, **__: pytest.fail("the job runs in the command's process")
    )
    tracker = Tracker(None, pipeline)
    before = {run.run_id for run in tracker.runs("evaluate")}
    several = [f"evaluation.bootstrap={bootstrap}", "system=model,toolformer", f"hydra/launcher={launcher}"]
    assert main(["run", *smoke_words(pipeline), *several]) == 0, capsys.readouterr().err
    runs = [run for run in tracker.runs("evaluate") if run.run_id not in before]
    assert sorted(run.tags["system"] for run in runs) == ["model", "toolformer"]
    assert len({run.tags["mlflow.parentRunId"] for run in runs}) == 1
