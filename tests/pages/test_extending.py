"""docs/extending.md: a tool, a corpus and a benchmark of one's own, by the page's files and commands, with a tiny model."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pages.page import Page, save_model, tiny
from toolformer.cli import main
from toolformer.tracking import Tracker

PAGE = Page("extending")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's files and a tiny model that calls."""
    PAGE.write_files(tmp_path)
    save_model(tmp_path / "model", ['has [moons("Mars")] 2', "moons [moons(x)] x", "the number"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLFORMER_RUNS", "runs")
    return tmp_path


def test_every_command_of_the_page_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [one.words[0] for one in PAGE.commands] == ["tool", "tool", "generate", "evaluate", "report"]
    assert not PAGE.others
    for command in PAGE.commands:
        if command.words[0] == "tool":
            command.answers(capsys)
            continue
        if command.words[0] == "generate":
            more = ["+tool@tool.moons=user", *tiny(place / "model", ["moons"], "notes.jsonl")]
        else:
            more = [f"model={place / 'model'}", "lm.dtype=float32"] if command.words[0] == "evaluate" else []
        assert main([*command.words, *more]) == 0, capsys.readouterr().err
    (path,) = place.glob("runs/generate/*/*/candidates.parquet")
    rows = pq.read_table(path).to_pylist()
    assert {row["doc_id"] for row in rows} <= {"1", "2", "3", "4"}
    assert any(row["call_input"] == "Mars" and row["result"] == "2" for row in rows)
    tracker = Tracker(None, Path("runs"))
    (run,) = tracker.runs("evaluate")
    assert {"moons_quiz/score", "dateset/score"} <= set(run.metrics) and run.metrics["moons_quiz/n"] == 2
    assert "moons_quiz" in (place / "runs" / "report" / "default" / "report.md").read_text(encoding="utf-8")
