"""Runs on MLflow's own tracking server: what it takes, refuses, and gets later."""

from __future__ import annotations

import time
from pathlib import Path

from tests.tracking.conftest import Server, run
from toolformer import registry
from toolformer.tracking import Run, Tracker


def on_server(server: Server, stage: str) -> list[Run]:
    """What another machine finds there."""
    return Tracker(server.address, server.folder / "another machine").runs(stage)


def test_a_training_is_whole_on_the_server(server: Server, tmp_path: Path) -> None:
    tracker = Tracker(server.address, tmp_path / "runs")
    model = tmp_path / "runs" / "train" / "augmented" / "model"
    model.mkdir(parents=True)
    with run(tracker, "train", "whole") as active:
        active.model("toolformer-whole", model, {"data": "augmented"})
        active.metrics({"after": 1.0})
    (found,) = on_server(server, "train")
    assert found.metrics["after"] == 1.0 and found.tags["registered_model"] == "models:/toolformer-whole/1"
    elsewhere = Tracker(server.address, tmp_path / "elsewhere")
    assert registry.resolve(elsewhere, "models:/toolformer-whole/latest").run_id == active.run_id
    with elsewhere.faults() as client:
        (version,) = client.search_model_versions("name = 'toolformer-whole'")
    assert version.tags["model_path"] == str(model.resolve())
    assert tracker.unsent() == [] and tracker.resend() == 0


def test_a_server_that_dies_under_a_run_gets_the_rest_later(server: Server, tmp_path: Path) -> None:
    tracker = Tracker(server.address, tmp_path / "runs")
    made = tmp_path / "made.txt"
    made.write_text("made")
    with tracker.run(stage="train", name="n", fingerprint="f", config={"a": 1}) as run:
        run.metrics({"loss": 2.0}, step=0)
        deadline = time.monotonic() + 60
        while tracker.unsent():
            assert time.monotonic() < deadline, "what a server takes is sent while the run is at work"
            time.sleep(0.05)
        server.kill()
        run.metrics({"loss": 1.0}, step=1)
        run.artifact(made, "samples")
    assert tracker.get(run.run_id).status == "FINISHED"
    with tracker.run(
        stage="evaluate", name="n", fingerprint="g", config={}, tags={"lineage.train_run_id": run.run_id}
    ) as after:
        pass
    assert [one.run_id for one in tracker.unsent()] == [run.run_id, after.run_id]

    server.start()
    fresh = Tracker(server.address, tmp_path / "runs")
    assert fresh.resend() == 2 and fresh.resend() == 0
    elsewhere = Tracker(server.address, tmp_path / "another machine")
    found = elsewhere.get(run.run_id)
    assert found.status == "FINISHED" and found.stored_as == "", "begun on the server, it has the server's id"
    assert found.metrics["loss"] == 1.0 and found.params["a"] == "1"
    assert elsewhere.artifact_path(found, "samples/made.txt").read_text() == "made"
    assert elsewhere.resolve("evaluate", after.run_id).tags["lineage.train_run_id"] == run.run_id
    assert {run.run_id, after.run_id} <= {one.run_id for one in elsewhere.all_runs()}
