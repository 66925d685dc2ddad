"""A runs folder or a server of somebody else: nothing it holds becomes a path elsewhere, or a terminal's command."""

import sqlite3
from pathlib import Path

import pytest

from tests.tracking.conftest import run
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.reporting.console import show
from toolformer.reporting.pairing import compare_groups
from toolformer.stages.compare import Comparison, content
from toolformer.tracking import Tracker

HOSTILE = "../../precious"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "work.txt").write_text("years of work")
    return folder


@pytest.mark.parametrize("local_id", ["/../../precious", HOSTILE, "0" * 31, "A" * 32])
def test_a_tag_of_a_server_is_no_path(tmp_path: Path, precious: Path, local_id: str) -> None:
    """Another user of a shared server tagged a run."""
    theirs = Tracker(f"sqlite:///{tmp_path / 'server' / 'mlflow.db'}", tmp_path / "theirs")
    with run(theirs, "train", "hostile") as active:
        pass
    assert theirs.server
    copy = Tracker(theirs.server.uri, tmp_path / "x").get(active.run_id).stored_as
    theirs.server.log(copy, tags={"local_id": local_id})
    ours = Tracker(theirs.server.uri, tmp_path / "ours" / "runs")
    (found,) = ours.runs("train")
    assert found.run_id == copy
    assert ours.artifact_path(found, "config.yaml").is_relative_to(ours.root)
    for name in (f"{HOSTILE}/work.txt", "../x", "/etc/passwd", ".hidden"):
        with pytest.raises(UserError, match="is no file name"):
            ours.artifact_path(found, name)
    assert (precious / "work.txt").read_text() == "years of work"


def test_a_runs_folder_leads_nowhere_else(tmp_path: Path, precious: Path) -> None:
    store = Tracker(None, tmp_path / "runs")
    with run(store, "train", "hostile") as active:
        pass
    (store.root / "artifacts" / active.run_id / "artifacts" / "link").symlink_to(precious)
    with pytest.raises(UserError, match="leads out of"):
        store.artifact_path(store.get(active.run_id), "link/work.txt")
    with sqlite3.connect(store.root / "mlflow.db") as database:
        database.execute("UPDATE runs SET status = 'KILLED'")
        for table in ("runs", "tags", "params", "metrics", "latest_metrics"):
            database.execute(f"UPDATE {table} SET run_uuid = ?", [HOSTILE])
    with pytest.raises(UserError, match="is no file name"), run(store, "train", "hostile"):
        pass
    assert [path.name for path in precious.iterdir()] == ["work.txt"]


def test_names_are_neither_escape_sequences_nor_markup(
    store: Tracker, capsys: pytest.CaptureFixture[str]
) -> None:
    with store.run(stage="evaluate", name="\x1b]0;owned\x07 [/b] \u202etxt", fingerprint="escape", config={}):
        pass
    assert main(["runs", f"paths.root='{store.root}'", "--stage", "evaluate"]) == 0
    output = capsys.readouterr().out
    assert "[/b]" in output and not set(output) & {"\x1b", "\x07", "\u202e"}


def test_a_comparison_shows_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": str(index), "prompt": "p", "target": ["1"], "score": 0.0} for index in range(3)]
    compared = compare_groups("[/b]task\x1b[2J", [(0, rows)], [(0, rows)], seed=0, resamples=20)
    assert compared
    name = "[/b] \x1b]0;owned\x07 (1a2b3c4d)"
    comparison = Comparison("a", "b", name, name, (compared,), (name,), (), {}, same_scoring=True)
    show(content(comparison))
    output = capsys.readouterr().out
    assert output.count("[/b]") >= 3 and not set(output) & {"\x1b", "\x07"}
