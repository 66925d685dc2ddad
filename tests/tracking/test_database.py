"""The database of a root: made whole or not at all, shared by processes, moved with its root."""

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tracking.conftest import run, start
from toolformer.errors import UserError
from toolformer.tracking import Tracker
from toolformer.tracking.store import Store

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


@pytest.mark.chaos
def test_four_processes_at_once_on_a_fresh_store_lose_nothing(tmp_path: Path) -> None:
    processes = [start(LOGGER, str(tmp_path), str(number)) for number in range(4)]
    answers = [process.communicate(timeout=300) for process in processes]
    assert [error for _, error in answers] == ["", "", "", ""]  # no chatter, no traceback
    ids = [answer.split()[0] for answer, _ in answers]
    assert len({answer.split()[1] for answer, _ in answers}) == 1, "one parent"
    tracker = Tracker(None, tmp_path / "runs")
    runs = {run.run_id: run for run in tracker.runs("report")}
    assert set(runs) == set(ids)
    with tracker.store.faults() as client:
        assert client.search_runs(["0"]) == [], "nothing went to Default"
    for number, run_id in enumerate(ids):
        assert tracker.history(runs[run_id], "loss") == [(step, number + step) for step in range(20)]
        assert runs[run_id].params == {"number": str(number)}
        assert runs[run_id].tags["mlflow.parentRunId"] == answers[0][0].split()[1]
        assert tracker.artifact_path(runs[run_id], f"file-{number}.txt").read_text() == f"of {number}"


def test_what_a_kill_left_of_a_database_does_not_matter(tmp_path: Path) -> None:
    """Half of a database, and the journal by which SQLite would roll another one back."""
    part = f".mlflow.db.{'0' * 16}.part"
    (tmp_path / part).write_bytes(b"SQLite format 3\0 half")
    (tmp_path / f"{part}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    tracker = Tracker(None, tmp_path)
    assert tracker.latest("train") is None and not (tmp_path / "mlflow.db").exists(), "looking makes none"
    with run(tracker, "made") as active:
        pass
    assert tracker.get(active.run_id).status == "FINISHED"
    assert sorted(path.name for path in tmp_path.glob("*mlflow.db*")) == ["mlflow.db"]


def test_a_write_that_a_kill_cut_short_is_rolled_back_by_a_look_up(store: Tracker, tmp_path: Path) -> None:
    with run(store, "kept"):
        pass
    shutil.copytree(store.root, tmp_path / "runs")
    killed = start(
        """
        import os, signal, sqlite3, sys
        database = sqlite3.connect(sys.argv[1], isolation_level=None)
        database.execute("PRAGMA cache_size = 1")
        database.execute("BEGIN")
        database.execute("UPDATE runs SET name = hex(randomblob(5000)), status = 'FAILED'")
        numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 2000)"
        database.execute(f"CREATE TABLE spilled AS {numbers} SELECT hex(randomblob(500)) FROM n")
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        str(tmp_path / "runs" / "mlflow.db"),
    )
    killed.communicate()
    assert (tmp_path / "runs" / "mlflow.db-journal").stat().st_size > 512
    assert [found.name for found in Tracker(None, tmp_path / "runs").runs("kept")] == ["a kept"]


def test_a_database_holds_no_path_and_moves_with_its_root(store: Tracker, tmp_path: Path) -> None:
    with run(store, "moved", config={"a": 1}) as active:
        active.model("toolformer-moved", tmp_path / "model", {})
    root = tmp_path / "copy"
    shutil.copytree(store.root, root)
    copied = Tracker(None, root)
    path = copied.artifact_path(copied.get(active.run_id), "config.yaml")
    assert path.read_text() == "a: 1\n" and path.is_relative_to(root)
    with sqlite3.connect(root / "mlflow.db") as database:
        places = database.execute(
            "SELECT artifact_uri FROM runs UNION SELECT artifact_location FROM experiments "
            "UNION SELECT source FROM model_versions UNION SELECT storage_location FROM model_versions"
        ).fetchall()
    assert len(places) >= 4 and all(place.startswith(("mlflow-artifacts:/", "runs:/")) for (place,) in places)


def test_a_root_that_cannot_hold_runs_ends_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("this is no database" * 100)
    with pytest.raises(UserError, match="tracking store .* fails .*tracking.uri") as caught:
        Tracker(None, tmp_path).store.prepare()
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="tracking store .* fails"):
        Tracker(None, tmp_path).latest("train")
    with pytest.raises(UserError, match="cannot write"):
        Tracker(None, tmp_path / "mlflow.db").store.prepare()


def test_runs_read_by_sql_are_those_that_mlflow_reads(store: Tracker) -> None:
    with run(store, "by_sql", config={"a": 1, "b": {"c": "é"}}) as active:
        active.metrics({"loss": 3.0}, step=1)
        active.metrics({"loss": 2.5, "rate": float("nan")}, step=2)
    with pytest.raises(ValueError), run(store, "by_sql", "failed", tags={"system": "it's"}):
        raise ValueError
    with run(store, "by_sql", "deleted") as deleted:
        pass
    store.store.create("at work", {"stage": "by_sql"})
    with store.store.faults() as client:
        client.delete_run(deleted.run_id)
    known = store.store.search({"stage": "by_sql"})
    by_mlflow = Store(store.root, store.store.uri).search({"stage": "by_sql"})
    assert known == [replace(run, stored_as="") for run in by_mlflow]
    assert [found.status for found in known] == ["FAILED", "FINISHED", "RUNNING"]
    assert known[1].metrics["loss"] == 2.5 and "rate" not in known[1].metrics
    assert store.store.search({"stage": "by_sql", "system": "it's"}) == known[:1]


def test_a_users_own_setting_wins_and_importing_is_light(
    store: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    program = """
        import os, sys, pathlib
        from toolformer.tracking import Tracker
        tracker = Tracker(None, pathlib.Path(sys.argv[1]))
        assert tracker.all_runs()
        print("mlflow" in sys.modules, "torch" in sys.modules)
        tracker.store.prepare()
        print(os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"], os.environ["MLFLOW_DISABLE_TELEMETRY"])
    """
    output, error = start(program, str(store.root)).communicate(timeout=60)
    assert (output.split(), error) == (["False", "False", "77", "true"], "")
