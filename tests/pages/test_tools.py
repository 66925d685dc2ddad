"""docs/tools.md, block by block: its files are written, its commands run, from annotation to decoding, with a tiny model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.pages.page import Page, save_model, tiny
from toolformer.calls import find
from toolformer.cli import main
from toolformer.tools.functions import FunctionTool

PAGE = Page("tools")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's files, and a model that has learnt to write calls, most of them without results."""
    folder = tmp_path_factory.mktemp("page")
    PAGE.write_files(folder)
    save_model(folder / "model", ["is [roman(14)] XIV", "is [roman(9)] IX", "is [roman(x)] x", "the number"])
    return folder


def test_the_page_shows_what_this_test_runs() -> None:
    assert {name.rpartition(".")[2] for name, _ in PAGE.files} == {"py", "yaml", "jsonl", "txt"}
    assert [command.words[0] for command in PAGE.commands] == [
        *["tool"] * 4, "generate", "train", "complete", "generate", "generate",
    ]  # fmt: skip


def test_every_command_of_the_page_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("TOOLFORMER_RUNS", "runs")
    folders: set[Path] = set()
    for command in PAGE.commands:
        stage = command.words[0]
        if stage == "tool":
            command.answers(capsys)
            continue
        more = [*tiny(place / "model", ["roman"], "texts.jsonl"), "trainer.max_steps=30"]
        assert main([*command.words, *more]) == 0, capsys.readouterr().err
        shown = capsys.readouterr().out
        if stage == "generate":
            (folder,) = set(Path("runs/generate").glob("*")) - folders
            folders.add(folder)
            check_annotation(folder)
        if stage == "complete":
            ((_, _, call),) = find(shown)
            assert call.tool == "roman" and call.input in ("14", "9") and call.result in ("XIV", "IX"), shown


def check_annotation(folder: Path) -> None:
    """Each of the page's annotations has a folder of its own, and calls that the page's function answered."""
    (path,) = folder.glob("*/candidates.parquet")
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    scored = [(row["call_input"], row["result"]) for row in rows if row["status"] == "scored"]
    inputs, results = zip(*scored, strict=True)
    assert {"14", "9"} & set(inputs)
    assert list(results) == [one.text for one in FunctionTool("roman.py:roman").run(inputs, [])]
    refused = {row["status"] for row in rows}
    assert any(reason.startswith("argument number: input should be a valid integer") for reason in refused), (
        refused
    )
    (data,) = folder.glob("*/dataset_augmented.parquet")
    for row in pq.read_table(data).to_pylist():
        assert find(row["text"]), "C* holds the calls with their results"


def test_an_open_webui_file_needs_no_more_than_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "dragon.py"
    file.write_text(
        "class Tools:\n    def dragon_fire(self, value: int, __event_emitter__=None) -> str:\n"
        '        """Tell how hot so many dragons are."""\n        return f"dragon fire {value * value}"\n'
    )
    assert main(["tool", "dragon_fire", "343", f"tool_sources=[{os.fspath(file)}]"]) == 0
    assert capsys.readouterr().out == "dragon fire 117649\n"
