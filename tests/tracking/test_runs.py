"""Runs in a real MLflow store on SQLite: what they log, how they end, go on and are looked up."""

import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from toolformer.tracking.entities import Dataset

from tests.conftest import Log
from tests.tracking.conftest import run, start
from toolformer.errors import UserError
from toolformer.tracking import Tracker


def test_a_run_holds_what_it_logs(store: Tracker, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("one")
    with run(store, "files") as active:
        active.metrics({"a/score": 12.5, "a/nothing": None, "odd key!": 1})
        active.tags({"note": 3})
        active.artifact(tmp_path / "one.txt", "samples")
        with pytest.raises(UserError, match="no such file"):
            active.artifact(tmp_path / "absent")
    logged = store.get(active.run_id)
    assert logged.status == "FINISHED" and logged.started.utcoffset() is not None
    assert set(logged.metrics) == {"a/score", "odd key_", "duration_seconds"}
    assert logged.metrics["a/score"] == 12.5 and logged.tags["note"] == "3"
    assert socket.gethostname() not in logged.tags.values() and not {"mlflow.user", "_"} & set(logged.tags)
    assert store.artifact_path(logged, "samples/one.txt").read_text() == "one"
    said = f"files run {logged.run_id[:8]} has no absent: run `toolformer files`"
    with pytest.raises(UserError, match=said):
        store.artifact_path(logged, "absent")


def test_runs_that_log_the_same_new_data_at_once(store: Tracker) -> None:
    """MLflow looks whether a data set is there before it makes it; two that look at once both make it."""
    data = [Dataset("C*", f"digest{n}", "training", "runs:/1/data.parquet", n) for n in range(30)]
    with run(store, "data", "a") as first, run(store, "data", "b") as second, ThreadPoolExecutor() as pool:
        for each in data:
            list(pool.map(lambda active, each=each: active.datasets(each), (first, second)))
    with store.store.faults() as client:
        counts = [len(client.get_run(id).inputs.dataset_inputs) for id in (first.run_id, second.run_id)]
    assert counts == [30, 30]


def test_the_configuration_is_logged_whole(store: Tracker) -> None:
    config: dict[str, Any] = {
        "many": {f"key{n}": n for n in range(250)}, "long": "é" * 700, "empty": "", "tools": ["qa", "calendar"],
        "nested": [{"a": 1}, [2, 3]], "path": Path("x/y"), "none": None, "odd key!": 1, "no": {},
    }  # fmt: skip
    with run(store, "whole", config=config) as active:
        pass
    logged = store.get(active.run_id)
    assert len(logged.params) == 250 + 9
    expected = {"many.key249": "249", "tools": '["qa", "calendar"]', "nested.0.a": "1", "nested.1": "[2, 3]"}
    expected |= {"none": "null", "path": "x/y", "odd key_": "1"}
    assert expected.items() <= dict(logged.params).items()
    assert len(logged.params["long"]) == 500 and "sha256" in logged.params["long"]
    written = yaml.safe_load(store.artifact_path(logged, "config.yaml").read_text(encoding="utf-8"))
    assert written["long"] == "é" * 700 and written["many"]["key7"] == 7 and written["path"] == "x/y"


def test_a_failed_run_is_continued(store: Tracker) -> None:
    config = {"a": 1, "workers": 2}
    with pytest.raises(ValueError, match="broken"), run(store, "fails", config=config) as first:
        time.sleep(0.05)
        raise ValueError("broken\nsecond line")
    failed = store.get(first.run_id)
    assert failed.status == "FAILED" and failed.tags["error"].startswith("ValueError: broken")
    assert store.latest("fails", fingerprint="f") is None
    with run(store, "fails", config={"a": 1, "workers": 8, "new": "x"}) as second:
        pass
    finished = store.get(second.run_id)
    assert second.run_id == first.run_id
    assert finished.status == "FINISHED" and finished.tags["changed.workers"] == "8"
    assert finished.params == {"a": "1", "workers": "2", "new": "x"}
    assert finished.metrics["duration_seconds"] > failed.metrics["duration_seconds"] >= 0.05
    with run(store, "fails", config={"a": 1}) as third:
        pass
    assert third.run_id != first.run_id, "a finished run is left alone"
    with store.store.faults() as client:  # and one that runs on another machine
        tags = {"stage": "far", "fingerprint": "f", "project": "toolformer"}
        far = client.create_run(store.store.prepare(), tags=tags).info.run_id
    with run(store, "far") as active:
        assert active.run_id != far


def test_a_continued_runs_curves_have_each_step_once(store: Tracker) -> None:
    with pytest.raises(KeyboardInterrupt), run(store, "steps") as first:
        for step in range(4):
            first.metrics({"loss": 4.0 - step}, step=step)
        first.metrics({"texts": 7, "seconds": 1.5})
        raise KeyboardInterrupt
    assert store.get(first.run_id).status == "KILLED"
    with run(store, "steps", fingerprint="other") as other:
        pass
    with run(store, "steps") as second:  # from the checkpoint of step 1
        for step in range(2, 6):
            second.metrics({"loss": 4.0 - step}, step=step)
        second.metrics({"texts": 7, "seconds": 2.5})
    assert second.run_id == first.run_id != other.run_id
    logged = store.get(second.run_id)
    assert logged.metrics["seconds"] == 2.5
    assert store.history(logged, "seconds") == [(0, 2.5)]
    assert store.history(logged, "loss") == [(step, 4.0 - step) for step in range(6)]


COMMAND = """
    import sys, time
    from pathlib import Path
    from toolformer import cli
    from toolformer.cli import runs
    from toolformer.tracking import Tracker

    def stage(arguments):
        with Tracker(None, Path(sys.argv[1])).run(stage=sys.argv[2], name="a", fingerprint="f", config={},
                                                  tags={"lineage.dataset_run_id": "abc", "device": "cpu"}) as run:
            print(run.run_id, flush=True)
            time.sleep(100)

    runs.main = stage
    sys.exit(cli.main(["runs"]))
"""


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("sign", "said", "code"),
    [(signal.SIGTERM, "terminated", 143), (signal.SIGINT, "interrupted", 130), (signal.SIGKILL, "", -9)],
)
def test_a_run_at_work_is_left_alone_ends_in_one_line_by_a_signal_and_is_continued(
    store: Tracker, sign: signal.Signals, said: str, code: int
) -> None:
    process = start(COMMAND, str(store.root), sign.name)
    assert process.stdout is not None
    held = process.stdout.readline().strip()
    with run(store, sign.name) as own:
        assert own.run_id != held
    assert store.get(held).status == "RUNNING"
    process.send_signal(sign)
    _, error = process.communicate(timeout=60)
    line = f"toolformer: {said}; run the same command again to resume\n" if said else ""
    assert (process.returncode, error) == (code, line)
    ended = store.get(held)
    assert ended.status == ("KILLED" if said else "RUNNING")
    assert ended.tags["lineage.dataset_run_id"] == "abc"
    with run(store, sign.name) as again:
        assert again.run_id == held
    assert store.get(held).status == "FINISHED"


READER = """
    import os, signal, sys
    from pathlib import Path
    from sqlalchemy.engine.default import DefaultDialect
    from toolformer import cli
    from toolformer.cli import runs
    from toolformer.tracking import Tracker

    def read(arguments):
        tracker, execute = Tracker(None, Path(sys.argv[1])), DefaultDialect.do_execute

        def interrupted(dialect, cursor, statement, *more):
            execute(dialect, cursor, statement, *more)
            if "FROM metrics" in statement:  # its first row is there, the others are not
                DefaultDialect.do_execute = execute
                os.kill(os.getpid(), signal.SIGTERM)

        with tracker.run(stage="cut", name="a", fingerprint="f", config={}) as run:
            for step in range(3):
                run.metrics({"loss": 1.0}, step=step)
            DefaultDialect.do_execute = interrupted
            tracker.store.history(run.run_id, "loss")

    runs.main = read
    sys.exit(cli.main(["runs"]))
"""


@pytest.mark.chaos
def test_a_signal_inside_a_read_of_the_database_ends_the_run(store: Tracker) -> None:
    process = start(READER, str(store.root))
    _, error = process.communicate(timeout=60)
    assert (process.returncode, "terminated" in error) == (143, True)
    assert [run.status for run in store.all_runs(stage="cut")] == ["KILLED"]


def test_looking_up(store: Tracker) -> None:
    for fingerprint, data in (("a", "augmented"), ("b", "plain"), ("c", "augmented")):
        tags = {"data": data, "lineage.dataset_run_id": "d'1"}
        with run(store, "looked", fingerprint, tags=tags) as active:
            pass
    plain = store.latest("looked", data="plain")
    assert plain is not None and plain.tags["fingerprint"] == "b"
    assert len(store.runs("looked", **{"lineage.dataset_run_id": "d'1"})) == 3
    found = store.latest("looked", fingerprint="a")
    assert found is not None and store.latest("looked", fingerprint="z") is None
    assert store.resolve("looked", "latest").run_id == active.run_id
    assert store.resolve("looked", "latest", experiment="toolformer").run_id == active.run_id
    for reference in (found.run_id, found.run_id[:12]):
        assert store.resolve("looked", reference).run_id == found.run_id
    said = f"of name=mine: say which one.*: name=toolformer has {active.run_id[:8]}$"
    with pytest.raises(UserError, match=said):
        store.resolve("looked", "latest", experiment="mine")
    said = "^there is no finished train run with data=plain: run `toolformer train data=plain` first$"
    with pytest.raises(UserError, match=said):
        store.resolve("train", "latest", data="plain")
    with pytest.raises(RuntimeError), run(store, "other", "broken") as broken:
        raise RuntimeError
    with run(store, "other") as other:
        with pytest.raises(UserError, match="is RUNNING"):
            store.resolve("other", other.run_id)
    for stage, reference, said in (
        ("train", "feedbeef", "there is no run feedbeef"),
        ("other", broken.run_id[:8], "is FAILED"),
        ("train", other.run_id[:8], "is a run of other: name one of `toolformer train`"),
        ("train", other.run_id[:5], "at least its first 6 characters"),
    ):
        with pytest.raises(UserError, match=said):
            store.resolve(stage, reference)
    with run(store, "other", "broken"):  # goes on: the newest run is the one that ended last
        pass
    newest = store.latest("other")
    assert newest is not None and newest.run_id == broken.run_id


def made(store: Tracker, stage: str, parent: str | None = None, **params: object) -> str:
    with run(store, stage, str(params), config=params, parent=parent) as active:
        return str(active.run_id)


def test_latest_is_of_the_preferred_seed_where_there_is_one(store: Tracker, caplog: Log) -> None:
    parent = store.parent_run("seeds", "a sweep", {"swept": "seed"})
    ids = [made(store, "seeded", parent, seed=seed) for seed in range(3)]
    for seed in range(3):
        assert store.resolve("seeded", "latest", {"seed": str(seed)}).run_id == ids[seed]
    caplog.set_level("INFO")
    assert store.resolve("seeded", "latest", {"seed": "7"}).run_id == ids[2]
    assert f"latest seeded run: {ids[2][:8]} (none has seed=7)" in caplog.text


def test_latest_is_no_run_of_a_sweep_over_something_else(store: Tracker, caplog: Log) -> None:
    caplog.set_level("INFO")
    parent = store.parent_run("thresholds", "a sweep", {"swept": "filter_threshold"})
    ids = [made(store, "filtered", parent, seed=0, filter_threshold=value) for value in (0.1, 0.5)]
    said = (
        "the newest is of a sweep over filter_threshold; instead of latest name one: "
        rf"{ids[1][:8]} \(filter_threshold=0.5\), {ids[0][:8]} \(filter_threshold=0.1\)$"
    )
    with pytest.raises(UserError, match=said):
        store.resolve("filtered", "latest", {"seed": "0"})
    assert store.resolve("filtered", "latest", None, False).run_id == ids[1]
    assert f"{ids[1][:8]} (the newest is of a sweep over filter_threshold; name another" in caplog.text
    assert store.resolve("filtered", "latest", {"filter_threshold": "0.1"}).run_id == ids[0]
    alone = made(store, "filtered", filter_threshold=1.0)
    made(store, "filtered", parent, filter_threshold=0.7)
    caplog.clear()
    assert store.resolve("filtered", "latest").run_id == alone
    assert f"{alone[:8]} (the newest is of a sweep over filter_threshold)" in caplog.text


def test_a_run_that_was_deleted_in_mlflow_is_not_there(store: Tracker) -> None:
    with run(store, "deleted") as active:
        pass
    with store.store.faults() as client:
        client.delete_run(active.run_id)
    for reference in (active.run_id, active.run_id[:8]):
        with pytest.raises(UserError, match=f"there is no run {reference} in "):
            store.resolve("deleted", reference)
    with pytest.raises(UserError, match="there is no run"):
        store.get(active.run_id)
