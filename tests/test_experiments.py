"""Experiments: every file composes and names what there is; plans; bad input."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from hydra.utils import instantiate

from benchmarks.suite import load, task_names
from toolformer import build, experiments
from toolformer.cli import main
from toolformer.config import CONF, PAPER_SYSTEMS, STAGES, compose, validate
from toolformer.config.sweeps import parse
from toolformer.errors import UserError
from toolformer.training.settings import TrainingSettings

NAMES = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
PLACES = ["corpus.path=corpus", "heldout.path=heldout"]


def test_there_is_an_experiment_for_every_result() -> None:
    tables = {f"table{number}" for number in range(2, 11)}
    assert set(NAMES) == tables | {"figure4", "paper", "demo", "smoke"}
    assert set(validate(compose("report", ["experiment=paper", *PLACES])).run.experiments) == tables | {
        "figure4"
    }


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A corpus as cc_net writes it."""
    path = tmp_path_factory.mktemp("ccnet") / "en_head_0000.json.gz"
    row = {
        "url": "https://example.org/2020/05/01/a",
        "raw_content": "Seven and five are twelve.",
        "digest": "x",
    }
    path.write_bytes(gzip.compress(json.dumps(row).encode() + b"\n"))
    return [f"corpus.path={path}", f"heldout.path={path}"]


def needs_places(name: str) -> bool:
    """Whether the experiment reads files; the embedded corpus is refused a path."""
    return name not in ("demo", "smoke")


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_composes_and_names_what_there_is(name: str, places: list[str]) -> None:
    """The first job of every stage, with its corpus, tools, thresholds, recipe and benchmarks."""
    sweep = parse("evaluate", [f"experiment={name}", *(places if needs_places(name) else [])])
    stages = validate(compose("evaluate", sweep.fixed)).run.stages
    claimed = {key for keys in stages.values() for key in keys}
    assert claimed == set(sweep.choices), "each swept key is some stage's, and each stage's key is swept"
    for stage in stages:
        config = validate(compose(stage, sweep.jobs(stage, stages)[0]))
        if stage == "generate":
            assert next(iter(build.documents(config.corpus))).text
            assert set(build.tools(config)) == set(config.tools)
            for key in config.tools:
                settings = build.tool_settings(config, key)
                assert settings.name == config.tool[key].name and settings.prompt.fill("x")
        elif stage == "train":
            trainer = {**asdict(config.trainer)}
            del trainer["limit_per_tool"], trainer["other_tokenizer"]
            assert TrainingSettings(**trainer).accumulation(1) >= 1
            assert next(iter(build.documents(config.heldout))).text
        elif stage == "evaluate":
            assert set(build.tools(config, inference=True)) == set(config.tools)
            names = task_names(config.benchmarks)
            assert names
            if "dateset" in names:  # the one whose rows need neither data nor a hub
                assert set(load(["dateset"], {"subset": 2, "seed": 0}).names) == {"dateset"}


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_opens_with_its_command(name: str) -> None:
    lines = (CONF / "experiment" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    head = lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]
    commands = [line.removeprefix("#").split() for line in head if re.search(r" toolformer (run|demo)", line)]
    assert commands and any(f"experiment={name}" in words or words[-1:] == ["demo"] for words in commands)
    for words in commands:
        given = [word.replace("DIR", "/") for word in words if "=" in word and word != "model=FOLDER"]
        validate(compose("report", given))


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_can_be_reported_without_its_data(name: str, tmp_path: Path) -> None:
    words = [f"experiment={name}", f"paths.data_dir={tmp_path / 'unmounted'}"]
    assert validate(compose("report", words), "report").name in (name, "paper", "demo", "smoke")
    with pytest.raises(UserError, match=r"paths\.data_dir|corpus\.path"):
        validate(compose("evaluate", words), "evaluate")


def test_the_report_of_an_experiment_is_asked_for_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "experiment=table3", f"paths.root={tmp_path}"]) == 2
    assert "no finished run is of the experiment paper" in capsys.readouterr().err


def jobs(name: str, stage: str, *more: str) -> list[list[str]]:
    sweep = parse(stage, [f"experiment={name}", *more])
    return [
        [word for word in job if word not in sweep.fixed]
        for job in sweep.jobs(stage, validate(compose("report", sweep.fixed), "report").run.stages)
    ]


def test_sweeps_are_those_of_the_paper() -> None:
    assert jobs("table9", "evaluate") == [[f"decoding.k={k}"] for k in (0, 1, 3, 10)]
    assert jobs("table9", "train") == jobs("table9", "generate") == [[]]
    assert jobs("table3", "evaluate") == [[f"system={system}"] for system in PAPER_SYSTEMS]
    assert jobs("table8", "evaluate") == [[f"system={system}"] for system in PAPER_SYSTEMS[:3]]
    assert len(jobs("figure4", "generate")) == 5 and len(jobs("figure4", "evaluate")) == 15


def test_the_command_line_goes_before_the_experiment() -> None:
    assert jobs("table9", "evaluate", "decoding.k=0,5") == [["decoding.k=0"], ["decoding.k=5"]]
    assert jobs("table9", "evaluate", "decoding.k=3") == [[]]
    assert jobs("table9", "train", "decoding.k=0,5") == [[]]
    assert len(jobs("table9", "train", "seed=0,1")) == 2


@pytest.mark.parametrize("stage", ["generate", "train", "evaluate"])
def test_a_stage_by_hand_sweeps_over_what_concerns_it(stage: str, tmp_path: Path) -> None:
    found = parse(stage, ["experiment=demo", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"])
    assert found.of_hydra == ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    number = {"generate": 1, "train": 2, "evaluate": 4}[stage]
    assert len(found.jobs(stage, validate(compose(stage, found.fixed)).run.stages)) == number


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name one experiment"),
        (["experiment=smoke,demo"], "name one experiment"),
        (["experiment=smoke", "experiment=demo"], "name one experiment"),
        (["experiment=smoke", "model=/a folder, (old)"], "quote a value"),
        (["experiment=smoke", "seed=1,2", "model=/a (old)"], "model='/a folder, (old)'"),
        (["experiment=smok"], "did you mean smoke"),
        (["experiment=table3"], "corpus.path"),
        (["experiment=smoke", "+run.stages.trian=[]"], "did you mean train"),
        (["experiment=smoke", "seed=range(0,3"], "range(0,3"),
        (["experiment=smoke", "trainer.learning_rate=interval(0,1)"], "one by one"),
        (["experiment=smoke", "corpus.path=mine.jsonl"], "corpus.source is demo, which reads none"),
        (["experiment=smoke", "heldout.path=mine.jsonl"], "for example heldout=jsonl"),
        (["experiment=smoke", "corpus=wikipedia", "corpus.path=x"], "corpus.source is wikipedia"),
        (["experiment=smoke", "system=modell"], "system is 'modell'"),
        (["experiment=smoke", "model=/no/such/model"], "there is no folder /no/such/model"),
    ],
)
def test_bad_input_ends_before_anything_is_done(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words, f"paths.root={tmp_path}"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("toolformer:")]
    assert said in line


def test_experiments_of_experiments_share_what_they_have_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    for stage in experiments._FINISHED:
        monkeypatch.setitem(experiments._FINISHED, stage, lambda config: None)
    made = experiments.plan(
        ["experiment=paper", "run.experiments=[table2,table9,figure4]", "system=toolformer", *PLACES]
    )
    count = {stage: sum(job.stage == stage for job in made.jobs) for stage in STAGES}
    # GPT-J annotates with five tools, and each model with three for Figure 4.
    assert count == {"generate": 1 + 5, "train": 1 + 5, "evaluate": 4 + 5, "report": 2}
    assert all(job.needs for job in made.jobs if job.stage in ("train", "evaluate"))
    (medium,) = (job for job in made.jobs if job.stage == "evaluate" and "model=gpt2-medium" in job.overrides)
    assert medium.needs and medium.needs.shown == "model=gpt2-medium"
    assert medium.command({medium.needs.key: "abc"})[-1] == "checkpoint=abc"


def planned(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[tuple[str, str]]:
    for stage in experiments._FINISHED:
        monkeypatch.setitem(experiments._FINISHED, stage, lambda config: None)
    return [(job.stage, job.shown.split()[0]) for job in experiments.plan(words).jobs if job.shown]


def test_equal_work_is_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned(
        monkeypatch, "experiment=smoke", "system=model,toolformer", "decoding.k=0,3", "trainer.max_steps=1,2"
    )
    # M neither calls nor was trained; Toolformer does both.
    assert sum(stage == "evaluate" for stage, _ in found) == 1 + 2 * 2
    found = planned(
        monkeypatch, "experiment=smoke", "system=toolformer_disabled", "tools=[calculator],[calendar]"
    )
    assert sum(stage == "evaluate" for stage, _ in found) == 2, "it was trained on another data set"


@pytest.mark.parametrize(
    ("swept", "jobs"),
    [
        ("++tool.calculator.inference.digits=1,2", (2, 2, 2)),
        ("decoding.max_calls=1,2", (1, 1, 2)),
        ("tool.calculator.filter_threshold=1,2", (2, 2, 2)),
        ("heldout.limit=8,9", (1, 2, 2)),
    ],
)
def test_what_a_stage_does_not_read_makes_no_further_job(
    swept: str, jobs: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [stage for stage, _ in planned(monkeypatch, "experiment=smoke", "system=toolformer", swept)]
    assert tuple(map(found.count, ("generate", "train", "evaluate"))) == jobs


@pytest.mark.parametrize(
    ("words", "stages"),
    [
        (["system=model"], {"evaluate", "report"}),
        (["system=model_cc"], {"generate", "train", "evaluate", "report"}),
        (["checkpoint=0123456789abcdef"], {"evaluate", "report"}),
    ],
)
def test_nothing_is_trained_that_nobody_reads(
    words: list[str], stages: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for stage in experiments._FINISHED:
        monkeypatch.setitem(experiments._FINISHED, stage, lambda config: None)
    made = experiments.plan(["+experiment=smoke", *words])
    assert {job.stage for job in made.jobs} == stages
    assert [job.shown for job in made.jobs if job.stage == "train"] == ["data=plain"] * ("train" in stages)


def test_slurm_jobs_are_submitits() -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    words = [
        "experiment=smoke",
        "hydra/launcher=slurm",
        "hydra.launcher.partition=long",
        "hydra.launcher.mem_gb=8",
    ]
    launcher = compose("evaluate", words, with_hydra=True).hydra.launcher
    assert launcher.partition == "long" and launcher.mem_gb == 8 and launcher.max_num_timeout == 8
    with pytest.raises(UserError, match="memory"):
        compose("evaluate", [*words, "hydra.launcher.memory=8"], with_hydra=True)
    assert type(instantiate(launcher, submitit_folder="x", _convert_="all")).__name__ == "SlurmLauncher"
