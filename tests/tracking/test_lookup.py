"""Runs and artifacts looked up in a store."""

from __future__ import annotations

import shutil
import sqlite3
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.tracking.conftest import run
from toolformer.errors import UserError
from toolformer.tracking import Tracker


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


def test_a_store_that_was_moved_keeps_its_artifacts(store: Tracker, tmp_path: Path) -> None:
    with run(store, "moved", config={"a": 1}) as active:
        pass
    moved = Tracker(None, tmp_path / "moved")
    shutil.copytree(store.root, moved.root)
    found = moved.get(active.run_id)
    old = store.artifact_path(store.get(active.run_id), "config.yaml")
    old.rename(old.with_name("gone"))
    assert moved.artifact_path(found, "config.yaml").is_relative_to(moved.root)


@pytest.fixture
def empty(store: Tracker, tmp_path: Path) -> Tracker:
    """A store of its own that holds experiments of ours and no run, as `toolformer ui` makes it."""
    made = Tracker(None, tmp_path / "first")
    made.root.mkdir()
    shutil.copy(store.root / "mlflow.db", made.root)
    with sqlite3.connect(made.root / "mlflow.db") as database:
        for table in ("metrics", "latest_metrics", "params", "tags", "runs"):
            database.execute(f"DELETE FROM {table}")
    return made


def places(tracker: Tracker) -> list[Path]:
    """Where the database has the runs' artifacts, and those of runs to come."""
    with tracker.faults() as client:
        addresses = [client.get_run(run.run_id).info.artifact_uri for run in tracker.runs("moved")]
        addresses.append(client.get_experiment_by_name("toolformer").artifact_location)
    return [Path(unquote(urlsplit(address).path)) for address in addresses]


@pytest.mark.parametrize("used", [True, False])
def test_a_moved_store_leaves_new_artifacts_where_it_is_now(
    empty: Tracker, tmp_path: Path, used: bool
) -> None:
    if used:
        with run(empty, "moved", "before", config={"a": 1}) as active:
            (empty.root / "train").mkdir()
            active.model("m", empty.root / "train", {})
    root = tmp_path / "moved root"
    shutil.move(empty.root, root)
    moved = Tracker(None, root)
    with run(moved, "moved", "after", config={"a": 1}):
        pass
    assert not empty.root.exists()
    for found in moved.runs("moved"):
        assert moved.artifact_path(found, "config.yaml").is_relative_to(root)
    assert all(place.is_relative_to(root) for place in places(moved))
    if used:
        with moved.faults() as client:
            assert client.get_model_version("m", "1").source == (root / "train").as_uri()


def test_what_is_still_at_the_old_place_is_found_there(empty: Tracker, tmp_path: Path) -> None:
    for fingerprint in ("stays", "comes"):
        with run(empty, "moved", fingerprint, config={"a": 1}):
            pass
    root = tmp_path / "copy"
    shutil.copytree(empty.root, root)
    stays = empty.runs("moved")[1]
    shutil.rmtree(root / "artifacts" / stays.run_id)
    copied = Tracker(None, root)
    where = [copied.artifact_path(one, "config.yaml") for one in copied.runs("moved")]
    assert where[0].is_relative_to(root) and where[1].is_relative_to(empty.root)


def test_a_store_with_two_names_keeps_its_artifacts_whoever_opened_it_last(
    empty: Tracker, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(empty.root)
    inside = Tracker(None, link)
    with run(inside, "moved", "inside", config={"a": 1}):
        pass
    assert places(Tracker(None, empty.root)) == places(inside), (
        "the same folder by another name is no other place"
    )
    link.unlink()  # the other side does not know this name
    assert all(place.is_relative_to(empty.root) for place in places(Tracker(None, empty.root)))
    link.symlink_to(empty.root)
    with run(inside, "moved", "again", config={"a": 1}):
        pass
    for tracker in (inside, Tracker(None, empty.root)):
        for found in tracker.runs("moved"):
            assert tracker.artifact_path(found, "config.yaml").is_file()
    assert not list(empty.root.rglob("*.partial"))


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
