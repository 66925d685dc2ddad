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
from toolformer import Toolformer
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


SUMS = ["It fell by 23, and 14 - 23 = -9 degrees was the lowest.", "We sold 7 + 5 = 12 tickets."]
WRITTEN = [" 5 + 7 = [Calculator(5 + 7)] 12", " 9 - 4 = [Calculator(9 - 4)] 5", "the number"]


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in SUMS))
    return path


def test_the_reward_of_a_call_is_its_gain(sums: Path) -> None:
    reward = runpy.run_path(str(EXAMPLES / "reward.py"))
    scorer = Toolformer.from_pretrained(GOLDEN, ["tools=[calculator]", "lm.dtype=float32"])
    (_, place) = reward["places"](sums)
    written = ["7 + 5)] 12", "7 / 0)]", "no call"]
    gain, *others = reward["rewards"](scorer, written, [place["text"]] * 3, [place["position"]] * 3)
    assert place["prompt"] == "We sold 7 + 5 = [Calculator("
    assert gain == scorer.gain(place["text"], place["position"], "Calculator(7 + 5)", "12")
    assert others == [-1.0, -1.0]


def test_a_model_is_trained_by_gain(sums: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    pytest.importorskip("trl")
    save_model(tmp_path / "model", WRITTEN)
    options = [
        "--max_steps=2",
        "--per_device_train_batch_size=2",
        "--num_generations=2",
        "--learning_rate=1e-2",
        "--use_cpu=True",
    ]
    arguments = ["reward.py", *map(str, (tmp_path / "model", sums, tmp_path / "trained")), *options]
    monkeypatch.setattr("sys.argv", arguments)
    runpy.run_path(str(EXAMPLES / "reward.py"), run_name="__main__")
    before, after = (
        AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict() for name in ("model", "trained")
    )
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_the_best_of_several_calls_is_kept(
    sums: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    save_model(tmp_path / "model", WRITTEN)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    main = runpy.run_path(str(EXAMPLES / "best_of.py"))["main"]
    torch.manual_seed(0)
    main(str(tmp_path / "model"), str(sums), str(tmp_path / "kept.jsonl"), samples=8, threshold=-10.0)
    kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert kept and all("= [Calculator(" in row["text"] and "] " in row["text"] for row in kept)
    assert capsys.readouterr().out == f"{len(kept)} calls kept\n"
