"""The smallest experiment with a tiny model: all four stages, interrupted and gone on with; then listed in the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import save_calling_model
from toolformer import experiments
from toolformer.cli import main
from toolformer.config import PAPER_SYSTEMS, STAGES
from toolformer.errors import UserError
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


def test_a_run_that_is_named_is_read(model: Path, tmp_path: Path) -> None:
    words = ["experiment=smoke", f"model={model}", f"paths.root={tmp_path}", "system=toolformer"]
    with pytest.raises(UserError, match="there is no run abcdefgh"):
        experiments.plan([*words, "checkpoint=abcdefgh"])
