"""A root of runs that was moved or copied, or has several names: where its artifacts are found, and what MLflow is told."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.tracking.conftest import run
from toolformer.tracking import Tracker


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


def test_a_copy_finds_its_own_artifacts_though_the_original_is_still_there(
    empty: Tracker, tmp_path: Path
) -> None:
    with run(empty, "moved", config={"a": 1}) as active:
        pass
    root = tmp_path / "copy"
    shutil.copytree(empty.root, root)
    found = empty.get(active.run_id)  # as the database of the copy has it until it is told
    assert Tracker(None, root).artifact_path(found, "config.yaml").is_relative_to(root)
    assert empty.artifact_path(found, "config.yaml").is_relative_to(empty.root)


def test_a_run_that_goes_on_in_a_copy_without_artifacts(empty: Tracker, tmp_path: Path) -> None:
    """The original is still there; the copy was opened, and told of its experiments, before the run went on."""
    result = tmp_path / "result.txt"
    result.write_text("first part")
    with pytest.raises(RuntimeError), run(empty, "moved", config={"a": 1}) as first:
        first.artifact(result, "samples")
        raise RuntimeError
    root = tmp_path / "copy"
    shutil.copytree(empty.root, root, ignore=shutil.ignore_patterns("artifacts"))
    copied = Tracker(None, root)
    assert copied.artifact_path(copied.get(first.run_id), "samples/result.txt").read_text() == "first part"
    result.write_text("whole")
    with run(copied, "moved", config={"a": 1}) as second:
        second.artifact(result, "samples")
    assert second.run_id == first.run_id
    for tracker in (copied, Tracker(None, root)):  # before the database is told, and after
        found = tracker.get(first.run_id)
        assert tracker.artifact_path(found, "samples/result.txt").read_text() == "whole"
    assert all(place.is_relative_to(root) for place in places(tracker))
    assert empty.artifact_path(empty.get(first.run_id), "samples/result.txt").read_text() == "first part"


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


@pytest.mark.parametrize("moved", [False, True])
def test_experiments_of_others_in_the_same_database_keep_their_place(
    empty: Tracker, tmp_path: Path, moved: bool
) -> None:
    """One that is theirs alone, and one into which runs of ours were made as well."""
    elsewhere = tmp_path / "mine" / "artifacts"
    elsewhere.mkdir(parents=True)
    with empty.faults() as client:
        ids = {
            name: client.create_experiment(name, artifact_location=elsewhere.as_uri())
            for name in ("theirs", "both")
        }
        theirs = [client.create_run(one).info.run_id for one in ids.values()]
        for one in theirs:
            (empty.root / "artifacts" / one).mkdir(parents=True)  # a folder of this name proves nothing
        client.create_registered_model("theirs")
        (empty.root / "train").mkdir()
        client.create_model_version("theirs", (empty.root / "train").as_uri(), theirs[0])
    with run(empty, "moved", "of ours", config={"a": 1}, experiment="both") as active:
        pass
    root = empty.root
    if moved:
        root = tmp_path / "moved root"
        shutil.move(empty.root, root)
    opened = Tracker(None, root)
    with opened.faults() as client:
        for name, one in zip(ids, theirs, strict=True):
            assert client.get_experiment_by_name(name).artifact_location == elsewhere.as_uri()
            assert client.get_run(one).info.artifact_uri.startswith(f"{elsewhere.as_uri()}/{one}/")
        assert client.get_model_version("theirs", "1").source == (empty.root / "train").as_uri()
        assert client.get_experiment_by_name("toolformer").artifact_location == (root / "artifacts").as_uri()
    found = opened.get(active.run_id)
    assert found.artifact_uri == (root / "artifacts" / active.run_id / "artifacts").as_uri()
