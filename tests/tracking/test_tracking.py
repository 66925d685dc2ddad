"""Tracking against real MLflow stores on SQLite: races, interruptions, faults."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tracking.conftest import run, start
from toolformer import provenance
from toolformer.errors import UserError
from toolformer.provenance import masked_flat
from toolformer.tracking import Tracker

LOGGER = """
    import pathlib, sys, time
    from toolformer.tracking import Tracker
    root, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    (root / f"ready-{number}").touch()
    while len(list(root.glob("ready-*"))) < 4:
        time.sleep(0.005)
    tracker = Tracker(None, root / "runs")
    parent = tracker.parent_run("sweep one", "a sweep")
    with tracker.run(stage="report", name=f"run {number}", fingerprint=f"f{number}", config={"number": number},
                     parent=parent) as run:
        for step in range(20):
            run.metrics({"loss": number + step, "rate": 1 / (step + 1)}, step=step)
        path = root / f"file-{number}.txt"
        path.write_text(f"of {number}")
        run.artifact(path)
    print(run.run_id, parent)
"""


def test_four_processes_at_once_on_a_fresh_store_lose_nothing(tmp_path: Path) -> None:
    processes = [start(LOGGER, str(tmp_path), str(number)) for number in range(4)]
    answers = [process.communicate(timeout=300) for process in processes]
    assert [error for _, error in answers] == ["", "", "", ""]  # no chatter, no traceback
    ids = [answer.split()[0] for answer, _ in answers]
    assert len({answer.split()[1] for answer, _ in answers}) == 1, "one parent"

    tracker = Tracker(None, tmp_path / "runs")
    found = {one.run_id: one for one in tracker.runs("report")}
    assert set(found) == set(ids)
    with tracker.faults() as client:
        assert client.search_runs(["0"]) == [], "nothing went to Default"
        for number, run_id in enumerate(ids):
            history = client.get_metric_history(run_id, "loss")
            assert sorted((row.step, row.value) for row in history) == [(s, number + s) for s in range(20)]
    for number, run_id in enumerate(ids):
        one = found[run_id]
        assert one.params == {"number": str(number)}
        assert one.tags["mlflow.parentRunId"] == answers[0][0].split()[1]
        assert tracker.artifact_path(one, f"file-{number}.txt").read_text() == f"of {number}"
        assert one.metrics["duration_seconds"] > 0


def test_importing_does_not_import_mlflow() -> None:
    process = start("import sys, toolformer.tracking; print('mlflow' in sys.modules, 'torch' in sys.modules)")
    assert process.communicate(timeout=60)[0].split() == ["False", "False"]


def test_a_run_says_what_made_it(store: Tracker) -> None:
    with run(
        store, "made", config={"lm": {"dtype": "float32"}}, tags={"lineage.train_run_id": "abc"}
    ) as active:
        active.metrics({"a/score": 12.5, "a/nothing": None})
        active.tag("note", 3)
    found = store.get(active.run_id)
    assert found.status == "FINISHED"
    assert found.metrics["a/score"] == 12.5 and "a/nothing" not in found.metrics
    assert found.tags["lineage.train_run_id"] == "abc" and found.tags["note"] == "3"
    assert found.tags["device"] in ("cpu", "cuda") and found.tags["device_name"]
    assert found.tags["version.mlflow"] and found.tags["version.torch"] and found.tags["git_commit"]
    assert socket.gethostname() not in found.tags.values() and "mlflow.user" not in found.tags
    assert found.started.utcoffset() is not None


def test_the_device_given_by_the_stage_stands(store: Tracker) -> None:
    with run(store, "given", tags={"device": "cuda"}) as active:
        pass
    assert store.get(active.run_id).tags["device"] == "cuda"


def test_a_failed_run_is_gone_on_with(store: Tracker) -> None:
    with (
        pytest.raises(ValueError, match="broken"),
        run(store, "fails", config={"a": 1, "workers": 2}) as first,
    ):
        first.metrics({"loss": 1.0}, step=0)
        time.sleep(0.05)
        raise ValueError("broken\nsecond line")
    failed = store.get(first.run_id)
    assert failed.status == "FAILED" and failed.tags["error"].startswith("ValueError: broken")
    assert store.find_finished("fails", "f") is None

    with run(store, "fails", config={"a": 1, "workers": 8, "new": "x"}) as second:
        second.metrics({"loss": 0.5}, step=1)
    finished = store.get(second.run_id)
    assert second.run_id == first.run_id and second.resumed and not first.resumed
    assert finished.status == "FINISHED"
    assert finished.params == {"a": "1", "workers": "2", "new": "x"}
    assert finished.tags["changed.workers"] == "8"
    assert finished.metrics["duration_seconds"] > failed.metrics["duration_seconds"] >= 0.05
    assert not list((store.root / "locks").glob(f"{first.run_id}*"))
    with run(store, "fails", config={"a": 1}) as third:
        pass
    assert third.run_id != first.run_id, "a finished run is left alone"


def test_an_interrupted_run_is_killed_and_gone_on_with(store: Tracker) -> None:
    with pytest.raises(KeyboardInterrupt), run(store, "interrupted") as first:
        raise KeyboardInterrupt
    assert store.get(first.run_id).status == "KILLED"
    with run(store, "interrupted", fingerprint="other") as other:
        pass
    with run(store, "interrupted") as second:
        pass
    assert second.run_id == first.run_id != other.run_id


HOLDER = """
    import sys, time
    from pathlib import Path
    from toolformer.tracking import Tracker
    with Tracker(None, Path(sys.argv[1])).run(stage="held", name="a", fingerprint="f", config={}, tags={"device": "cpu"}) as run:
        print(run.run_id, flush=True)
        time.sleep(100)
"""


def test_a_run_at_work_elsewhere_is_left_alone_and_one_killed_hard_is_gone_on_with(store: Tracker) -> None:
    process = start(HOLDER, str(store.root))
    assert process.stdout is not None
    held = process.stdout.readline().strip()
    try:
        with run(store, "held") as own:
            assert own.run_id != held and not own.resumed
        assert store.get(held).status == "RUNNING"
    finally:
        process.kill()
        process.communicate()
    with run(store, "held") as again:
        assert again.run_id == held and again.resumed
    assert store.get(held).status == "FINISHED"


def test_a_running_run_of_another_machine_is_left_alone(store: Tracker) -> None:
    with store.faults() as client:
        tags = {"stage": "far", "fingerprint": "f", "project": "toolformer"}
        far = client.create_run(store.prepare(), tags=tags).info.run_id
    with run(store, "far") as active:
        assert active.run_id != far


def test_the_configuration_is_logged_whole(store: Tracker) -> None:
    config: dict[str, Any] = {
        "many": {f"key{n}": n for n in range(250)},
        "long": "é" * 700,
        "empty": "",
        "none": None,
    }
    config |= {
        "tools": ["qa", "calendar"],
        "nested": [{"a": 1}, [2, 3]],
        "path": Path("x/y"),
        "odd key!": 1,
        "no": {},
    }
    with run(store, "whole", config=config) as active:
        pass
    found = store.get(active.run_id)
    assert len(found.params) == 250 + 9
    assert found.params["many.key249"] == "249"
    assert found.params["tools"] == '["qa", "calendar"]'
    assert found.params["nested.0.a"] == "1" and found.params["nested.1"] == "[2, 3]"
    assert (
        found.params["none"] == "null" and found.params["path"] == "x/y" and found.params["odd key_"] == "1"
    )
    assert len(found.params["long"]) == 500 and "sha256" in found.params["long"]
    written = yaml.safe_load(store.artifact_path(found, "config.yaml").read_text(encoding="utf-8"))
    assert written["long"] == "é" * 700 and written["many"]["key7"] == 7 and written["path"] == "x/y"


def test_two_long_values_that_differ_late_stay_different() -> None:
    one, other = masked_flat({"p": "x" * 600 + "a"}), masked_flat({"p": "x" * 600 + "b"})
    assert one != other


def test_sweeps_have_one_parent(store: Tracker) -> None:
    parent = store.parent_run("k", "sweep over k")
    assert store.parent_run("k", "sweep over k") == parent != store.parent_run("other", "x")
    assert store.get(parent).status == "FINISHED" and store.get(parent).stage == ""
    with run(store, "child", parent=parent) as active:
        pass
    assert store.get(active.run_id).tags["mlflow.parentRunId"] == parent


def test_a_file_that_is_no_database_ends_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("this is no database" * 100)
    with pytest.raises(UserError, match="tracking store .* fails .*tracking.uri") as caught:
        Tracker(None, tmp_path).prepare()
    assert "\n" not in str(caught.value)


def test_a_root_that_is_a_file_ends_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("")
    with pytest.raises(UserError, match="paths.root"):
        Tracker(None, tmp_path / "root").prepare()


def test_a_deleted_experiment_is_named(store: Tracker) -> None:
    identity = store.prepare("gone")
    with store.faults() as client:
        client.delete_experiment(identity)
    with pytest.raises(UserError, match="experiment gone is deleted"):
        Tracker(None, store.root).prepare("gone")


def test_a_fault_of_the_stage_is_not_hidden_by_a_fault_of_the_store(
    store: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise UserError("the store is gone")

    with pytest.raises(ValueError, match="the first"), run(store, "both"):
        monkeypatch.setattr(Tracker, "_end", broken)
        raise ValueError("the first")


def test_the_commit_is_marked_when_dirty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", *identity, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    code = tmp_path / "tracking.py"
    code.write_text("1")
    monkeypatch.setattr(provenance, "__file__", str(code))
    commit = provenance.git_commit.__wrapped__
    assert commit() == "unknown"
    git("init", "-q")
    assert commit() == "unknown"  # inside a repository that does not track it
    git("add", "tracking.py")
    git("commit", "-q", "-m", "one")
    assert commit() == git("rev-parse", "HEAD")
    (tmp_path / "untracked").write_text("")
    assert not commit().endswith("-dirty")
    code.write_text("2")
    assert commit() == git("rev-parse", "HEAD") + "-dirty"


def test_a_users_own_setting_wins(store: Tracker) -> None:
    program = """
        import os, sys, pathlib
        from toolformer.tracking import Tracker
        Tracker(None, pathlib.Path(sys.argv[1])).prepare()
        print(os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"], os.environ["MLFLOW_DISABLE_TELEMETRY"])
    """
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"], before = "77", os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT")
    try:
        output, error = start(program, str(store.root)).communicate(timeout=60)
    finally:
        del os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"]
        if before is not None:
            os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = before
    assert (output.split(), error) == (["77", "true"], "")
