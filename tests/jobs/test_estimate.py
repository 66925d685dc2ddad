"""What `--plan` says besides the jobs: models, texts, disk and hours, without reading a text."""

import json
import re
from pathlib import Path

import pytest

from tests.build import GOLDEN, Capture, Patch, smoke_words
from toolformer.cli import main
from toolformer.data import Corpus
from toolformer.jobs import estimate


def planned(capsys: Capture, *words: str) -> dict[str, str]:
    """The lines of a plan by part, each with its state; those of equal parts joined."""
    capsys.readouterr()
    assert main(["run", *words, "--plan"]) == 0
    lines: dict[str, str] = {}
    for line in capsys.readouterr().out.splitlines():
        if match := re.fullmatch(r"(ok|--|no)  (model|texts|disk|hours) +(.*)", line):
            lines[match[2]] = f"{lines.get(match[2], '')}{match[1]} {match[3]}\n"
    return lines


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text(
        "".join(json.dumps({"text": f"{n} + 1 = {n + 1}", "date": "2020-01-01"}) + "\n" for n in range(9))
    )
    return path


def test_a_plan_says_what_it_needs_and_reads_no_text(
    tmp_path: Path, texts: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    def fail(corpus: Corpus) -> None:
        raise AssertionError("a text is read")

    monkeypatch.setattr(Corpus, "__iter__", fail)
    words = [*smoke_words(tmp_path), "corpus=jsonl", f"corpus.path={texts}", "corpus.limit=null"]
    plan = planned(capsys, *words)
    assert plan["model"].startswith(f"ok {GOLDEN}: ") and "weights" in plan["model"]
    assert re.fullmatch(
        r"ok texts.jsonl: 1 files, .* GB; texts are counted when they are read\n", plan["texts"]
    )
    assert "for 2 trained models" in plan["disk"] and " GB free" in plan["disk"]
    assert plan["hours"].startswith(
        "-- unknown: the rate of this machine is not measured; computed for one NVIDIA A100"
    )
    assert "per 10,000 texts at most" in plan["hours"]
    assert "9" not in planned(capsys, *words, "corpus.limit=5")["texts"].partition(":")[2].partition("GB")[2]


def test_hours_are_those_of_the_gpus_that_are_there(
    tmp_path: Path, texts: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    words = [
        *smoke_words(tmp_path),
        "corpus=jsonl",
        f"corpus.path={texts}",
        "generate.limit_per_tool=25000",
        "corpus.limit=null",
    ]
    monkeypatch.setattr(estimate, "device", lambda: ("NVIDIA H200", 8))
    plan = planned(capsys, *words)["hours"]
    assert (
        plan.startswith("ok computed for 8 x NVIDIA H200: ")
        and "if 1 % of the tried texts are kept (25,000 per tool)" in plan
    )
    monkeypatch.setattr(estimate, "device", lambda: ("Some GPU", 8))
    assert planned(capsys, *words)["hours"].startswith("-- unknown")


def test_models_that_are_not_here_are_counted_as_to_fetch(tmp_path: Path, capsys: Capture) -> None:
    plan = planned(
        capsys,
        *smoke_words(tmp_path)[:1],
        f"paths.root={tmp_path}",
        "tools=[calculator]",
        "model=EleutherAI/gpt-j-6b",
    )
    assert (
        plan["model"]
        == "-- EleutherAI/gpt-j-6b: 6.05 billion weights, 12 GB in bfloat16; not fetched yet, 24 GB at most\n"
    )
    assert (
        plan["disk"].startswith(("ok", "no"))
        and "48 GB for 2 trained models, 194 GB more while one is trained" in plan["disk"]
    )


def test_a_done_plan_needs_nothing(smoke_runs: Path, capsys: Capture) -> None:
    assert planned(capsys, *smoke_words(smoke_runs)) == {}
