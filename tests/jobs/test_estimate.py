"""What `--plan` says besides the jobs: models, texts, disk and hours, without reading a text."""

import json
import re
from pathlib import Path

import pytest

from tests.build import GOLDEN, Capture, Patch, smoke_words
from toolformer.cli import main
from toolformer.data import Corpus
from toolformer.jobs import estimate


def planned(capsys: Capture, *words: str, command: str = "run") -> dict[str, str]:
    """The lines of a plan by part, each with its state; those of equal parts joined."""
    capsys.readouterr()
    assert main([command, *words, "--plan"]) == 0
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
        r"ok texts.jsonl: 1 file, 1 kB; texts are counted when they are read\n", plan["texts"]
    )
    assert "for 2 trained models" in plan["disk"] and " GB free" in plan["disk"]
    assert plan["hours"].startswith(
        "-- unknown: the rate of this machine is not measured; computed for one NVIDIA A100"
    )
    assert re.search("annotations (less than a minute|\\d+ minutes) per 10,000 texts at most", plan["hours"])
    assert "9" not in planned(capsys, *words, "corpus.limit=5")["texts"].partition(":")[2].partition("kB")[2]


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


def test_hours_of_an_unknown_gpu_are_those_of_one_that_is_known(
    tmp_path: Path, texts: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    words = [
        *smoke_words(tmp_path),
        "corpus=jsonl",
        f"corpus.path={texts}",
        "engine.workers=8",
        "trainer.processes=auto",
    ]
    hours = []
    for found in (("Some GPU", 1), ("Some GPU", 8), ("NVIDIA A100-SXM4-80GB", 1)):
        monkeypatch.setattr(estimate, "device", lambda found=found: found)
        hours.append(planned(capsys, *words)["hours"])
    assert hours[0] == hours[1] and "computed for one NVIDIA A100: " in hours[0]
    assert hours[0].partition("A100: ")[2] == hours[2].partition("80GB: ")[2]


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
        and "48 GB for 2 trained models; 194 GB more while one is trained" in plan["disk"]
    )


@pytest.mark.parametrize(
    ("setting", "size"),
    [("keep_checkpoints=6", 484), ("keep_checkpoints=1", 194), ("save_every=0", 48), ("lora_rank=8", 0)],
)
def test_disk_counts_the_checkpoints_that_are_kept(
    tmp_path: Path, capsys: Capture, setting: str, size: int
) -> None:
    """GPT-J has 6.05 billion weights; a checkpoint has 12 bytes of each, or 4, and there is one more while it is written."""
    words = ["experiment=smoke", f"paths.root={tmp_path}", "model=EleutherAI/gpt-j-6b"]
    disk = planned(capsys, *words, f"trainer.{setting}")["disk"]
    assert f"; {size} GB more while one is trained" in disk if size else "more while" not in disk


def test_a_plan_of_a_training_names_the_model_that_was_trained(smoke_runs: Path, capsys: Capture) -> None:
    (checkpoint, *_) = sorted(
        path.name
        for path in (smoke_runs / "train").iterdir()
        if "dataset_augmented" in (path / "result.json").read_text()
    )
    words = [
        f"paths.root={smoke_runs}",
        f"checkpoint={checkpoint}",
        "system=toolformer",
        "tools=[calculator]",
    ]
    plan = planned(capsys, *words, "benchmarks=[svamp]", "evaluation.limit=1", command="evaluate")
    assert plan["model"].startswith(f"ok {GOLDEN}: ")


def test_a_done_plan_needs_nothing(smoke_runs: Path, capsys: Capture) -> None:
    assert planned(capsys, *smoke_words(smoke_runs)) == {}
