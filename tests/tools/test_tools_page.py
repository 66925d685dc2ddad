"""docs/tools.md, block by block: its files are written, its commands run, from annotation to decoding, with a tiny model."""

from __future__ import annotations

import os
import random
import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.conftest import teach, tiny_model, tiny_tokenizer
from toolformer.calls import find
from toolformer.cli import main
from toolformer.tools.functions import FunctionTool

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tools.md"
FILES = re.findall(
    r'^```\w+ title="([^"]+)"\n(.*?)^```', PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
COMMANDS = [
    line
    for block in re.findall(
        r"^```bash\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    for line in block.splitlines()
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's files, and a model that has learnt to write calls, most of them without results."""
    folder = tmp_path_factory.mktemp("page")
    for name, content in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    tokenizer = tiny_tokenizer()
    model = tiny_model("gpt2", len(tokenizer), context=1024)
    pieces = ["is [roman(14)] XIV", "is [roman(9)] IX", "is [roman(x)] x", "the number"]
    chance = random.Random(0)
    teach(model, tokenizer, (" ".join(chance.choice(pieces) for _ in range(20)) for _ in range(150)))
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder


def tiny(place: Path, tool: str) -> list[str]:
    """What makes a stage fit a tiny model."""
    return [
        f"model={place / 'model'}", "lm.dtype=float32", "engine.threads=1", "propose.force_name=true",
        f"tool.{tool}.filter_threshold=-100", f"tool.{tool}.max_positions=5", f"tool.{tool}.max_call_tokens=12",
        "heldout=jsonl", "heldout.path=texts.jsonl", "trainer.learning_rate=3e-3", "trainer.max_steps=30",
        "trainer.batch_size=2", "trainer.micro_batch_size=2", "trainer.sequence_length=128", "trainer.eval_every=30",
        "decoding.max_call_tokens=16", "decoding.max_result_tokens=16",
    ]  # fmt: skip


def test_the_page_shows_what_this_test_runs() -> None:
    assert {name.rpartition(".")[2] for name, _ in FILES} == {"py", "yaml", "jsonl", "txt"}
    assert [shlex.split(line)[1] for line in COMMANDS] == [
        *["tool"] * 4, "generate", "train", "complete", "generate", "generate",
    ]  # fmt: skip


def test_every_command_of_the_page_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("TOOLFORMER_RUNS", "runs")
    folders: set[Path] = set()
    for line in COMMANDS:
        command, _, promise = line.partition("#")
        _, stage, *words = shlex.split(command)
        if stage == "tool":
            code = main([stage, *words])
            captured = capsys.readouterr()
            promised = promise.strip()
            if promised.startswith("no result: "):
                assert code == 1 and f"gave {promised}" in captured.err
            else:
                assert (code, captured.out) == (0, f"{promised}\n")
            continue
        assert main([stage, *words, *tiny(place, "roman")]) == 0, capsys.readouterr().err
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
