"""docs/quickstart.md, docs/your-own.md, docs/extending.md and the README, command by command, with tiny models."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.build import Capture, Patch
from tests.pages.page import COMMANDS_OF_PAGES, ROOT, Page, save_model, tiny
from tests.processes import save_taught_model, trained
from toolformer.calls import find_calls, linearise
from toolformer.cli import main
from toolformer.results import Results
from toolformer.tools.user.functions import FunctionTool

QUICKSTART, YOUR_OWN, EXTENDING = Page("quickstart"), Page("your-own"), Page("extending")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLFORMER_RUNS", "runs")
    return tmp_path


def test_every_command_of_the_quickstart_runs(place: Path, calling_model: Path, capsys: Capture) -> None:
    small = [f"model={calling_model}", "lm.dtype=float32", "engine.threads=1", "tools=[calendar]"]
    smaller = {
        "generate": [*small, "trainer.sequence_length=128", "corpus.limit=4"],
        "train": [*small, "trainer.sequence_length=128", "trainer.batch_size=2"],
        "evaluate": [*small, "evaluation.perplexity_limit=2"],
        "complete": small,
    }
    for command in QUICKSTART.commands:
        stage = command.words[0]
        if stage == "tool":
            if "search" not in command.words:  # tests/tools asks the embedded index
                command.answers(capsys)
        elif stage != "doctor":
            # A tiny model's calls gain nothing: each threshold of the page stands for one that lets them pass.
            low = {"filter_threshold=0.5": "filter_threshold=-50"}
            words = [low.get(word, word) for word in command.words if not word.startswith("corpus.limit")]
            if stage == "generate" and not any("filter_threshold" in word for word in words):
                words.append("tool.calendar.filter_threshold=-100")
            assert main([*words, *smaller.get(stage, [])]) == 0, capsys.readouterr().err
    results = Results(Path("runs"))
    assert [len(results.runs(stage)) for stage in ("generate", "train", "evaluate")] == [2, 2, 2]
    assert (place / "runs" / "report" / "default" / "report.md").is_file()


@pytest.fixture
def tutorial(place: Path) -> list[str]:
    """The tutorial's files, and overrides for a model that has learnt to write calls; they keep every call at any threshold."""
    YOUR_OWN.write_files(place)
    subprocess.run([sys.executable, "make_texts.py"], check=True)
    save_model(place / "model", ["is [roman(14)] XIV", "is [roman(9)] IX", "is [roman(x)] x", "the number"])
    few = [
        "score.floor=-100",
        "tool.roman.result_ahead=0",
        "trainer.epochs=null",
        "trainer.max_steps=30",
        "evaluation.limit=2",
        "evaluation.perplexity_limit=2",
    ]
    heldout = "".join(f'{{"text": "Heir {number} is called by a number."}}\n' for number in range(6))
    (place / "heldout.jsonl").write_text(heldout)
    return [*tiny(place / "model", ["roman"], "heldout.jsonl"), *few]


def test_every_command_of_the_tutorial_runs(place: Path, tutorial: list[str], capsys: Capture) -> None:
    for command in YOUR_OWN.commands:
        stage = command.words[0]
        if "--demonstrations" in command.words:
            assert main(command.words) == 0
            assert "that is [roman(1740)] MDCCXL, and" in capsys.readouterr().out
            continue
        if stage == "tool":
            command.answers(capsys)
            continue
        more = [] if stage in ("compare", "report") else [*tutorial]
        if stage == "generate" and not any(word.startswith("corpus.limit") for word in command.words):
            more.append("corpus.limit=8")
        assert main([*command.words, *more]) == 0, capsys.readouterr().err
        shown = capsys.readouterr().out
        if stage == "complete":
            ((_, _, call),) = find_calls(shown, {"roman"})
            assert call.tool == "roman" and call.input in ("14", "9") and call.result in ("XIV", "IX"), shown
    results = Results(Path("runs"))
    assert [len(results.runs(stage)) for stage in ("generate", "train", "evaluate")] == [2, 2, 4]
    for run in results.runs("generate"):
        rows: list[dict[str, Any]] = pq.read_table(run.folder / "candidates.parquet").to_pylist()
        scored = [(row["call"]["input"], row["call"]["result"]) for row in rows if row["status"] == "scored"]
        inputs, answers = zip(*scored, strict=True)
        assert {"14", "9"} & set(inputs)
        assert list(answers) == [result.text for result in FunctionTool("roman.py:roman").run(inputs, [])]
    report = (place / "runs" / "report" / "roman" / "report.md").read_text(encoding="utf-8")
    assert r"roman\_quiz" in report
    (python,) = re.findall(
        r"^```python\n(from toolformer import.*?)^```", YOUR_OWN.text, re.MULTILINE | re.DOTALL
    )
    exec(python.replace('"experiment=roman"', f'"experiment=roman", *{tutorial!r}'), {})
    assert "[roman(" in capsys.readouterr().out


def test_every_command_of_the_page_of_extensions_runs(place: Path, capsys: Capture) -> None:
    EXTENDING.write_files(place)
    save_model(place / "model", ['has [moons("Mars")] 2', "moons [moons(x)] x", "the number"])
    own = [f"model={place / 'model'}", "lm.dtype=float32"]
    more = {
        "generate": ["+tool@tool.moons=user", *tiny(place / "model", ["moons"], "notes.jsonl")],
        "evaluate": own,
    }
    for command in EXTENDING.commands:
        if command.words[0] == "tool":
            command.answers(capsys)
        else:
            assert main([*command.words, *more.get(command.words[0], [])]) == 0, capsys.readouterr().err
    (path,) = place.glob("runs/generate/*/candidates.parquet")
    rows = pq.read_table(path).to_pylist()
    assert {row["doc_id"] for row in rows} <= {"1", "2", "3", "4"}
    assert ("Mars", "2") in [(row["call"]["input"], row["call"]["result"]) for row in rows if row["call"]]
    (run,) = Results(Path("runs")).runs("evaluate")
    assert {"moons_quiz", "dateset"} <= set(run.tasks) and run.tasks["moons_quiz"]["n"] == 2
    report = (place / "runs" / "report" / "default" / "report.md").read_text(encoding="utf-8")
    assert r"moons\_quiz" in report


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_gives_the_call_that_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model has learnt to write the call with a wrong result: the right one is the calculator's."""
    (words,) = [
        shlex.split(one)
        for one, pages in COMMANDS_OF_PAGES.items()
        if one.startswith("complete") and "README.md" in pages
    ]
    (code,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    prompt = words[1]
    assert f'"{prompt}"' in code
    with_call, plain = re.findall(r'# with.*?: "(.*)"', code)
    ((_, _, call),) = find_calls(with_call, {"Calculator"})
    assert with_call == linearise(call) + plain
    wrong = with_call.replace(f"-> {call.result}]", "-> 0]")
    save_taught_model(tmp_path / "taught", [f"{prompt}{wrong}.\n"] * 400)
    trained(tmp_path / "runs", tmp_path / "taught", "demo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLFORMER_RUNS", "runs")
    capsys.readouterr()
    assert main(words) == 0, capsys.readouterr().err
    assert prompt + linearise(call) in capsys.readouterr().out
    exec(code, {})
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith(linearise(call)) and not find_calls(second, {"Calculator"}) and third == str(call)
