"""docs/quickstart.md, command by command, with a tiny model in the place of the embedded one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.page import Page
from tests.processes import save_calling_model
from toolformer.cli import main
from toolformer.tracking import Tracker

PAGE = Page("quickstart")


def test_the_set_up_is_the_readmes() -> None:
    assert PAGE.others == ["make setup", "source .venv/bin/activate"]


def test_every_command_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_calling_model(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLFORMER_RUNS", "runs")
    small = [f"model={tmp_path / 'model'}", "lm.dtype=float32", "engine.threads=1", "tools=[calendar]"]
    smaller = {
        "generate": [*small, "trainer.sequence_length=128", "corpus.limit=4"],
        "train": [*small, "trainer.sequence_length=128", "trainer.batch_size=2"],
        "evaluate": [*small, "evaluation.perplexity_limit=2"],
        "complete": small,
    }
    for command in PAGE.commands:
        stage = command.words[0]
        if (
            stage == "tool" and "search" not in command.words
        ):  # the index of ten thousand articles is for real tests
            command.answers(capsys)
        elif stage not in ("tool", "doctor"):
            # A tiny model's calls gain nothing: each threshold of the page stands for one that lets them pass.
            low = {"tool.calendar.filter_threshold=0.5": "tool.calendar.filter_threshold=-50"}
            words = [low.get(word, word) for word in command.words if not word.startswith("corpus.limit")]
            if stage == "generate" and not any("filter_threshold" in word for word in words):
                words.append("tool.calendar.filter_threshold=-100")
            assert main([*words, *smaller.get(stage, [])]) == 0, capsys.readouterr().err
    tracker = Tracker(None, Path("runs"))
    stages = [len(tracker.runs(stage)) for stage in ("generate", "train", "evaluate")]
    assert stages == [2, 2, 2]
    assert (tmp_path / "runs" / "report" / "default" / "report.md").is_file()


@pytest.mark.real
def test_what_search_answers(capsys: pytest.CaptureFixture[str]) -> None:
    (search,) = (command for command in PAGE.commands if "search" in command.words)
    search.answers(capsys)
