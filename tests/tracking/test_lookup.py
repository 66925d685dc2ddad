"""Runs and artifacts looked up in a store."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.tracking.conftest import run
from toolformer.errors import UserError
from toolformer.tracking import NotFound, Tracker


def test_looking_up(store: Tracker) -> None:
    for fingerprint, data in (("a", "augmented"), ("b", "plain"), ("c", "augmented")):
        with run(
            store, "looked", fingerprint, tags={"data": data, "lineage.dataset_run_id": "d'1"}
        ) as active:
            pass
    newest = store.latest("looked")
    assert newest is not None and newest.run_id == active.run_id
    plain = store.latest("looked", data="plain")
    assert plain is not None and plain.tags["fingerprint"] == "b"
    assert len(store.runs("looked", **{"lineage.dataset_run_id": "d'1"})) == 3
    found = store.find_finished("looked", "a")
    assert found is not None and store.find_finished("looked", "z") is None
    assert store.resolve("looked", "latest").run_id == newest.run_id
    assert store.resolve("looked", found.run_id).run_id == found.run_id
    assert store.resolve("looked", found.run_id[:12]).run_id == found.run_id


def test_the_newest_run_is_the_one_that_ended_last(store: Tracker) -> None:
    with pytest.raises(ValueError), run(store, "order", "early") as early:
        raise ValueError
    with run(store, "order", "late"):
        pass
    time.sleep(0.01)
    with run(store, "order", "early"):
        pass
    newest = store.latest("order")
    assert newest is not None and newest.run_id == early.run_id


def test_looking_up_what_is_not_there(store: Tracker) -> None:
    with pytest.raises(
        UserError, match="^there is no finished train run with data=plain: run `toolformer train` first$"
    ):
        store.resolve("train", "latest", data="plain")
    with pytest.raises(UserError, match="there is no run feedbeef"):
        store.resolve("train", "feedbeef")
    with run(store, "other") as active:
        with pytest.raises(UserError, match="is RUNNING"):
            store.resolve("other", active.run_id)
    with pytest.raises(UserError, match="is a run of other: name one of `toolformer train`"):
        store.resolve("train", active.run_id)


def test_what_a_few_characters_name_and_do_not(store: Tracker) -> None:
    with pytest.raises(RuntimeError), run(store, "few", "broken") as broken:
        raise RuntimeError
    with run(store, "other", "few") as other:
        pass
    for reference, said in (
        (broken.run_id[:8], "is FAILED"),
        (other.run_id[:8], "is a run of other: name one of `toolformer few`"),
        (other.run_id[:5], "name the id of 6 characters at least"),
    ):
        with pytest.raises(UserError, match=said):
            store.resolve("few", reference)


def test_a_run_that_was_deleted_in_mlflow_is_not_there(store: Tracker) -> None:
    with run(store, "deleted") as active:
        pass
    with store.faults() as client:
        client.delete_run(active.run_id)
    for reference in (active.run_id, active.run_id[:8]):
        with pytest.raises(UserError, match=f"there is no run {reference} in .*; name the id of a run of"):
            store.resolve("deleted", reference)
    with pytest.raises(NotFound):
        store.get(active.run_id)


def test_looking_up_in_no_store_makes_none(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "nothing")
    assert tracker.latest("train") is None
    with pytest.raises(UserError, match="toolformer generate"):
        tracker.resolve("generate", "latest")
    with pytest.raises(UserError, match="does not exist yet"):
        tracker.get("0" * 32)
    assert not (tmp_path / "nothing").exists()


def test_artifacts(store: Tracker, tmp_path: Path) -> None:
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "deep" / "x.txt").write_text("deep")
    (tmp_path / "one.txt").write_text("one")
    with run(store, "files") as active:
        active.artifact(tmp_path / "one.txt", "samples")
        active.artifact_dir(tmp_path / "folder")
        with pytest.raises(UserError, match="no such file"):
            active.artifact(tmp_path / "absent")
        with pytest.raises(UserError, match="no such folder"):
            active.artifact_dir(tmp_path / "one.txt")
    found = store.get(active.run_id)
    assert store.artifact_path(found, "samples/one.txt").read_text() == "one"
    assert (store.artifact_path(found, "folder") / "deep" / "x.txt").read_text() == "deep"
    with pytest.raises(
        UserError, match=f"files run {found.run_id} has no absent: run `toolformer files` again"
    ):
        store.artifact_path(found, "absent")


def test_a_clock_that_was_wrong_is_named(store: Tracker, caplog: pytest.LogCaptureFixture) -> None:
    with run(store, "clock", "a"):
        pass
    assert store.resolve("clock", "latest") and not caplog.records
    for fingerprint, ended in (("b", 1), ("c", 4_000_000_000_000)):  # milliseconds
        with run(store, "clock", fingerprint) as active:
            pass
        with store.faults() as client:
            client.set_terminated(active.run_id, end_time=ended)
    newest = store.resolve("clock", "latest").run_id
    lines = [one.getMessage() for one in caplog.records]
    assert newest == active.run_id and len(lines) == 2
    assert (
        "in the future" in lines[0]
        and "before it began" in lines[1]
        and all(newest in line for line in lines)
    )
    store.resolve("clock", "latest")
    assert len(caplog.records) == 2, "each once"
