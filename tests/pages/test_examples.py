"""examples/: the files of docs/extending.md, the notebook cell by cell with a tiny model, and the commands of the Slurm script."""

import json
import os
import runpy
import shlex
import subprocess
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.build import GOLDEN, Capture, Patch, smoke_words
from tests.pages.page import ROOT, Page, save_model
from toolformer.cli import main
from toolformer.jobs.config import compose, validate
from toolformer.results import Results

EXAMPLES = ROOT / "examples"
PAGE_FILES = dict(Page("extending").files)
TINY = [
    "model=model", "lm.dtype=float32", "engine.threads=1", "corpus.limit=4", "propose.force_name=true",
    "tool.calculator.filter_threshold=-100", "screen.result_ahead=null", "screen.new_result=false",
    "trainer.max_steps=1", "evaluation.limit=4", "evaluation.perplexity_limit=2",
    "heldout.limit=2",
]  # fmt: skip


def test_the_page_of_extensions_shows_files() -> None:
    assert set(PAGE_FILES) > {"planets.py", "notes.jsonl", "tasks/moons.yaml"}


@pytest.mark.parametrize("name", PAGE_FILES)
def test_a_file_is_as_the_page_of_extensions_shows_it(name: str) -> None:
    assert (EXAMPLES / name).read_text(encoding="utf-8") == PAGE_FILES[name]


def cells() -> list[str]:
    notebook = json.loads((EXAMPLES / "teach_a_calculator.ipynb").read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_runs(tmp_path: Path, monkeypatch: Patch) -> None:
    """Its own settings are the demo's; here its first cell's list gets those of a tiny model."""
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOOLFORMER_RUNS", raising=False)
    save_model(tmp_path / "model", ["= [Calculator(2 + 3)] 5", "is [Calculator(9 - 4)] 5", "the number"])
    settings, *others = cells()
    names: dict[str, Any] = {}
    exec(settings, names)
    assert names["OVERRIDES"] == ["experiment=demo", "name=notebook"]
    names["OVERRIDES"] += TINY
    for cell in others:
        exec(cell, names)
    assert names["candidates"]["kept"].any() and "[Calculator(" in names["dataset"]["text"].iloc[0]
    assert len(names["completions"]) == len(names["PROMPTS"])
    scores = names["scores"]
    for system, score in scores.items():
        (evaluation,) = Results("runs").runs("evaluate", "notebook", system=system)
        assert evaluation.tasks["arithmetic"]["score"] == score
    exec(next(cell for cell in others if cell.startswith("scores")), names)
    assert names["scores"] == scores, "each of its own run, also when nothing is left to do"
    assert set(names["scores"]) == {"toolformer_disabled", "toolformer"}


def test_preferences_train_a_model_that_is_evaluated(
    smoke_runs: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """Each call in the rows is written as the annotation's; the model has changed, and answers."""
    pytest.importorskip("trl")
    rows, trained = tmp_path / "rows", tmp_path / "trained"
    words = smoke_words(smoke_runs)
    assert main(["export", "dataset", "latest", str(rows), "format=dpo", *words]) == 0
    options = [
        "--per_device_train_batch_size=2",
        "--max_steps=2",
        "--use_cpu=True",
        "--learning_rate=1e-3",
        "--bf16=False",
    ]
    monkeypatch.setattr("sys.argv", ["preferences.py", str(GOLDEN), str(rows), str(trained), *options])
    runpy.run_path(str(EXAMPLES / "preferences.py"), run_name="__main__")
    before, after = (AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (GOLDEN, trained))
    assert any(not torch.equal(before[name], after[name]) for name in before)
    capsys.readouterr()
    elsewhere = [f"paths.root={tmp_path / 'runs'}", "benchmarks=[dateset]", f"checkpoint={trained}"]
    assert main(["evaluate", *words, *elsewhere]) == 0, capsys.readouterr().err
    (run,) = Results(tmp_path / "runs").runs("evaluate")
    assert run.facts["system"] == "toolformer" and not run.made_from


@pytest.fixture
def stand_ins(tmp_path: Path) -> dict[str, str]:
    """Slurm's environment with an srun that writes down its command instead of starting it."""
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text('#!/bin/bash\nprintf "%q " "$@"\necho\n')
    srun.chmod(0o755)
    path = f"{srun.parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "MODEL": "/shared/a model", "CORPUS": "/shared/texts.jsonl", "SHARED": "/shared/me"}


def slurm(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(EXAMPLES / "slurm.sh")]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_the_slurm_script_starts_two_valid_stages(stand_ins: dict[str, str]) -> None:
    started = slurm(stand_ins)
    assert started.returncode == 0, started.stderr
    stages = []
    for line in started.stdout.splitlines():
        words = shlex.split(line)
        stage, *overrides = words[next(n for n, word in enumerate(words) if "toolformer" in word) + 1 :]
        assert "model=/shared/a model" in overrides
        validate(compose(stage, overrides))
        stages.append(stage)
    assert stages == ["generate", "train"]


def test_the_slurm_script_stops_at_the_first_stage_that_fails(stand_ins: dict[str, str]) -> None:
    srun = Path(stand_ins["PATH"].split(os.pathsep)[0]) / "srun"
    srun.write_text("#!/bin/bash\necho started\nexit 3\n")
    failed = slurm(stand_ins)
    assert (failed.returncode, failed.stdout) == (3, "started\n")


@pytest.mark.parametrize("name", ["MODEL", "CORPUS", "SHARED"])
def test_the_slurm_script_names_the_variable_that_is_missing(name: str, stand_ins: dict[str, str]) -> None:
    del stand_ins[name]
    refused = slurm(stand_ins)
    assert refused.returncode != 0 and f"{name}: name a" in refused.stderr and not refused.stdout
