"""The README's example, its command and its Python code as they stand, with a tiny model in place of the demo's."""

import re
import shlex
from pathlib import Path

import pytest

from tests.pages.page import ROOT
from tests.pages.test_commands import OURS
from tests.processes import save_taught_model
from toolformer.calls import find, linearise
from toolformer.cli import main
from toolformer.tracking import Tracker

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_gives_the_call_that_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model has learnt to write the call with a wrong result: the right one is the calculator's."""
    (words,) = [
        shlex.split(one) for one, pages in OURS.items() if one.startswith("complete") and "README.md" in pages
    ]
    (code,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    prompt = words[1]
    assert f'"{prompt}"' in code
    with_call, plain = re.findall(r'# with.*?: "(.*)"', code)
    ((_, _, call),) = find(with_call)
    assert with_call == linearise(call) + plain
    wrong = with_call.replace(f"-> {call.result}]", "-> 0]")
    folder = tmp_path / "runs" / "train" / "demo" / "model"
    save_taught_model(folder, [f"{prompt}{wrong}.\n"] * 400)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLFORMER_RUNS", "runs")
    tags = {"experiment": "demo", "data": "augmented", "model_path": str(folder)}
    with Tracker(None, Path("runs")).run(stage="train", name="demo", fingerprint="", config={}, tags=tags):
        pass
    capsys.readouterr()
    assert main(words) == 0, capsys.readouterr().err
    assert prompt + linearise(call) in capsys.readouterr().out
    exec(code, {})
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith(linearise(call)) and not find(second) and third == str(call)
