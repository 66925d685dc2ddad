"""Runs on MLflow's own tracking server: what it takes, refuses, and gets later."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.browser import chromium, needs_browser, shot
from tests.tracking.conftest import Server, run, wait_for
from toolformer import registry
from toolformer.cli import main
from toolformer.descriptions import describe
from toolformer.tracking import Run, Tracker, sending
from toolformer.tracking.journal import BEGIN, PARAMS, STATUS, Journal


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
    wait_for(lambda: not tracker.unsent())
    (found,) = on_server(server, "train")
    assert found.metrics["after"] == 1.0 and found.tags["registered_model"] == "models:/toolformer-whole/1"
    elsewhere = Tracker(server.address, tmp_path / "elsewhere")
    assert registry.resolve(elsewhere, "models:/toolformer-whole/latest").run_id == active.run_id
    with elsewhere.faults() as client:
        (version,) = client.search_model_versions("name = 'toolformer-whole'")
    assert version.tags["model_path"] == str(model.resolve())
    assert tracker.unsent() == [] and tracker.resend().runs == 0


def test_what_a_server_refuses_holds_nothing_back(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tracker = Tracker(server.address, tmp_path / "runs")
    identity = tracker.prepare("thrown away")
    with tracker.faults() as client:
        client.delete_experiment(identity)

    def journal(name: str, experiment: str = "toolformer") -> Journal:
        one = Journal(tmp_path / "runs" / "journal" / name)
        tags = {"stage": "refused", "project": "toolformer"}
        one.append(BEGIN, {"name": name, "experiment": experiment, "tags": tags, "started": 1})
        return one

    nowhere, partly, whole = journal("1-nowhere", "thrown away"), journal("2-partly"), journal("3-whole")
    (tmp_path / "gone.txt").write_text("gone")
    partly.append(PARAMS, {"a": "1"})
    partly.append(PARAMS, {"a": "2", "b": "3"})
    partly.append("artifact", {"path": str(tmp_path / "gone.txt"), "folder": None})
    shutil.rmtree(partly.artifacts)
    for one in (nowhere, partly, whole):
        one.append(STATUS, {"status": "FINISHED", "time": 2})
    command = ["runs", "resend", f"paths.root={tmp_path / 'runs'}", f"tracking.uri={server.address}"]
    assert main(command) == 2
    output, error = capsys.readouterr()
    assert "2 runs sent" in output and "2 of their events are refused" in output
    assert "1 run not taken" in error and "thrown away is deleted" in error
    found = {one.run_id: one for one in on_server(server, "refused")}
    assert set(found) == {"2-partly", "3-whole"}
    assert found["2-partly"].params == {"a": "1", "b": "3"} and found["2-partly"].status == "FINISHED"
    assert partly.refused.read_text().count("\n") == 2 and "gone.txt" in partly.refused.read_text()
    assert [one.run_id for one in tracker.unsent()] == ["1-nowhere"]
    assert tracker.prune() == 1 and partly.refused.exists(), "what is nowhere else is kept"


def test_a_run_is_one_run_wherever_its_beginning_was_cut_off(server: Server, tmp_path: Path) -> None:
    tracker = Tracker(server.address, tmp_path / "runs")
    with run(tracker, "once") as active:
        pass
    wait_for(lambda: not tracker.unsent())
    (tmp_path / "runs" / "journal" / active.run_id / "sent.json").unlink()  # as if killed before the mark
    tracker.resend()
    assert [one.run_id for one in on_server(server, "once")] == [active.run_id]


def test_journals_that_a_server_has_whole_are_removed(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tracker = Tracker(server.address, tmp_path / "runs")
    (tmp_path / "made.txt").write_text("made")
    parent = tracker.parent_run("pruned", "a sweep")
    with run(tracker, "pruned", parent=parent) as done:
        done.artifact(tmp_path / "made.txt")
    with run(
        tracker, "pruned", "other", parent=parent, description=describe("", {}, [tracker.get(done.run_id)])
    ) as at_work:
        wait_for(lambda: not tracker.unsent())
        words = ["runs", "prune", f"paths.root={tmp_path / 'runs'}", f"tracking.uri={server.address}"]
        assert main(words) == 0 and "2 runs removed" in capsys.readouterr().out
        left = [folder.name for folder in (tmp_path / "runs" / "journal").iterdir()]
        assert left == [at_work.run_id]
        at_work.tag("parent", parent)
    found = tracker.get(done.run_id)
    assert found.status == "FINISHED"
    assert tracker.artifact_path(found, "made.txt").read_text() == "made"
    assert tracker.parent_run("pruned", "a sweep") == parent
    # MLflow's own pages follow its own ids.
    wait_for(lambda: not tracker.unsent())
    other = tracker.get(at_work.run_id)
    assert other.tags["mlflow.parentRunId"] == tracker.get(parent).stored_as
    assert f"(#/runs/{found.stored_as})" in other.tags["mlflow.note.content"]


def test_a_server_that_hangs_under_a_run_gets_the_rest_later(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sending, "CLOSING", 0.2)
    tracker = Tracker(server.address, tmp_path / "runs")
    made = tmp_path / "made.txt"
    made.write_text("made")
    try:
        with run(tracker, "hung", config={"a": 1}) as active:
            active.metrics({"loss": 2.0}, step=0)
            wait_for(lambda: not tracker.unsent(), 60)  # it is sent while the run is at work
            server.hang()
            active.metrics({"loss": 1.0}, step=1)
            active.artifact(made, "samples")
        assert [one.run_id for one in tracker.unsent()] == [active.run_id]
        assert tracker.get(active.run_id).status == "FINISHED"
        assert "is slow" in caplog.text, "its end waited for a while only"
    finally:
        server.go_on()
    fresh = Tracker(server.address, tmp_path / "runs")
    fresh.resend()
    assert fresh.unsent() == []
    elsewhere = Tracker(server.address, tmp_path / "another machine")
    found = elsewhere.get(active.run_id)
    assert found.status == "FINISHED" and found.metrics["loss"] == 1.0 and found.params["a"] == "1"
    assert elsewhere.artifact_path(found, "samples/made.txt").read_text() == "made"
    for reference in (active.run_id, found.stored_as, active.run_id[:8]):
        assert elsewhere.resolve("hung", reference).run_id == active.run_id


@needs_browser
def test_two_evaluations_are_compared_in_mlflows_own_pages(server: Server, tmp_path: Path) -> None:
    tracker = Tracker(server.address, tmp_path / "runs")
    scores = {"Toolformer": 34.56, "Toolformer (disabled)": 12.34}
    parent = tracker.parent_run("seen", "evaluate -m system=toolformer,toolformer_disabled")
    with run(tracker, "train", "seen") as trained:
        pass
    for system, score in scores.items():
        facts = {"system": system, "model": "gpt2"}
        note = describe(f"toolformer evaluate system={system}", facts, [tracker.get(trained.run_id)])
        with tracker.run(
            stage="evaluate", name=f"{system} gpt2", fingerprint=system, config={"system": system}, parent=parent,
            description=note,
        ) as one:  # fmt: skip
            one.metrics({"svamp/score": score, "svamp/n": 1000})
    wait_for(lambda: not tracker.unsent(), 60)
    runs = [one for one in on_server(server, "evaluate") if one.name.endswith("gpt2")]
    experiment = tracker.prepare()
    compared = f"runs={json.dumps([one.stored_as for one in runs])}&experiments={json.dumps([experiment])}"

    with chromium(tmp_path / "profile") as browser:
        size = {"width": 1900, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

        def seen(name: str, *words: str, browser: Any = browser) -> None:
            text = "return document.body.innerText"
            try:
                wait_for(lambda: all(word in browser.execute_script(text) for word in words), 90)
            finally:
                shot(browser, f"mlflow-{name}")

        names = [f"{system} gpt2" for system in scores]
        browser.get(f"{server.address}/#/experiments/{experiment}/runs")
        seen("experiment", "Runs of Toolformer's stages", "evaluate -m system", "a train")
        link = f"//a[contains(@href, '{tracker.get(parent).stored_as}')]"
        browser.find_element("xpath", f"{link}/ancestor::*[.//button][1]//button").click()
        seen("experiment-children", *names)
        browser.get(f"{server.address}/#/compare-runs?{compared}")
        seen("compare", *names, "svamp/score", "34.56", "12.34", "system")
        (first,) = [one for one in runs if one.metrics["svamp/score"] == 34.56]
        browser.get(f"{server.address}/#/runs/{first.stored_as}")
        command = "toolformer evaluate system=Toolformer"
        seen("run", names[0], "model: gpt2", "made from a train", command, "34.56")
        (made_from,) = browser.find_elements("link text", "a train")
        assert made_from.get_attribute("href").endswith(f"#/runs/{tracker.get(trained.run_id).stored_as}")
