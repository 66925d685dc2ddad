"""One step per stage: the plan, the run, the stage and the comparison agree on it."""

import importlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.build import Capture, Log, smoke_words
from toolformer.cli import main
from toolformer.jobs import steps
from toolformer.jobs.compare import compare, default_of
from toolformer.jobs.plan import plan, survey
from toolformer.jobs.versions import VERSIONS
from toolformer.results import Results, RunInfo
from toolformer.results.run import RUN_STEPS
from toolformer.step import STAGES


def swept(**keys: str) -> list[str]:
    """Overrides that sweep an experiment's stages over keys."""
    stages = ("generate", "train", "evaluate")
    return [
        f"++run.stages.{stage}={{{', '.join(f'{key}: {keys[key]}' for key in keys)}}}" for stage in stages
    ]


CONFIGURATIONS = {
    "smoke": [],
    "seeds": [*swept(seed="[0, 1]"), "system=toolformer"],
    "thresholds": [
        *swept(filter_threshold="[0.1, 0.3]"),
        "tool.calculator.filter_threshold=null",
        "system=toolformer",
    ],
    "lora": [
        "trainer.lora_rank=2",
        "lm.dtype=bfloat16",
        "run.stages.evaluate.system=[toolformer_disabled,toolformer]",
    ],
    "filters": ["filter.leak=drop", "tool.calendar.chance=0.5", "system=toolformer"],
    "k": [
        "decoding.k=3",
        "tool.calendar.k=1",
        "run.stages.evaluate.system=[toolformer,prompted]",
    ],
    "explained": ["evaluation.oracles=true", "system=toolformer"],
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_stage_makes_the_step_that_was_planned(name: str, tmp_path: Path) -> None:
    """Of runs that are named, of runs that `latest` names, and again once all are done."""
    words = ["experiment=smoke", f"paths.root={tmp_path}", *CONFIGURATIONS[name]]
    results, (done, jobs) = Results(tmp_path, versions=VERSIONS), survey(plan("run", words))
    assert not done
    for job in jobs:
        if job.stage == "report":
            continue
        by_latest = [
            override for override in job.overrides if not override.startswith(("dataset=", "checkpoint="))
        ]
        for overrides in (job.overrides, by_latest if name in ("smoke", "explained") else job.overrides):
            (again,) = plan(job.stage, overrides)
            assert again.step == job.step, (job.stage, job.label)
        config = job.config
        info = RunInfo("x", asdict(config), experiment=config.name, facts={"data": config.data})
        with results.open(job.step, info):
            pass
    done, again = survey(plan("run", words))
    assert [job.step for job in again] == [job.step for job in jobs]
    assert {job.stage for job in again if job.key not in done} <= {"report"}


def test_the_runs_of_an_experiment_are_those_of_its_plan(smoke_runs: Path) -> None:
    done, jobs = survey(plan("run", smoke_words(smoke_runs)))
    made = {run.id for run in Results(smoke_runs).all_runs("generate", "train", "evaluate")}
    assert {run.id for run in done.values()} <= made and len(done) == 7
    assert {run.step for run in done.values()} == {job.step for job in jobs if job.stage != "report"}


def test_a_comparison_names_what_planned_steps_differ_in(smoke_runs: Path) -> None:
    done, _ = survey(plan("run", smoke_words(smoke_runs)))
    planned = {run.facts["system"]: run.step for run in done.values() if run.stage == "evaluate"}
    for one, two in (("toolformer_disabled", "toolformer"), ("model_cc", "toolformer")):
        first, second = planned[one].flat(), planned[two].flat()
        differ = {key for key in first | second if first.get(key) != second.get(key)}
        differ = {key for key in differ if not key.startswith("answer.tool.")}  # the first calls no tool
        shown = compare(Results(smoke_runs), f"latest:{one}", f"latest:{two}", "smoke").settings
        assert {*shown} == {key.removeprefix("answer.") for key in differ}


def test_a_plan_writes_nothing(smoke_runs: Path, tmp_path: Path) -> None:
    root = shutil.copytree(smoke_runs, tmp_path / "runs")
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert len(survey(plan("run", [*smoke_words(root), "name=another"]))[0]) == 7
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    survey(plan("run", smoke_words(tmp_path / "none")))
    assert not (tmp_path / "none").exists()


def test_jobs_of_a_sweep_that_are_the_same_work_are_named(smoke_runs: Path, caplog: Log) -> None:
    caplog.set_level("INFO")
    (run,) = Results(smoke_runs).runs("generate")
    given = ["+run.stages.train={filter_threshold: [0.1, 0.3]}", "data=plain", "system=model_cc"]
    jobs = plan("run", [*smoke_words(smoke_runs), f"dataset={run.id}", *given])
    assert [job.stage for job in jobs].count("train") == 1
    assert "run: train filter_threshold=0.3 is the same work as filter_threshold=0.1" in caplog.text


def test_a_stage_alone_is_planned(smoke_runs: Path, tmp_path: Path, capsys: Capture) -> None:
    (run,) = Results(smoke_runs).runs("generate")
    assert main(["generate", "--plan", *smoke_words(smoke_runs)]) == 0
    assert f"done, run {run.id[:8]}" in capsys.readouterr().out
    assert main(["generate", "--json", *smoke_words(tmp_path / "none")]) == 0
    assert json.loads(capsys.readouterr().out) == [{"stage": "generate", "job": "", "run": None}]
    assert (
        main(["evaluate", "-m", "--plan", "decoding.k=1,2", *smoke_words(smoke_runs), "system=toolformer"])
        == 0
    )
    assert capsys.readouterr().out.count("1 of 1 to do") == 2
    assert main(["report", "--plan", *smoke_words(smoke_runs)]) == 0
    assert "report" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_an_override_that_a_named_run_makes_moot_is_named(smoke_runs: Path, capsys: Capture) -> None:
    (run,) = Results(smoke_runs).runs("generate")
    words = [*smoke_words(smoke_runs), f"dataset={run.id}", "filter_threshold=0.1,0.3"]
    assert main(["run", "-m", "--plan", *words]) == 0
    said = capsys.readouterr().err
    for threshold in ("0.1", "0.3"):
        assert f"filter_threshold={threshold} has no effect together with dataset={run.id}" in said


def test_a_setting_that_is_left_out_is_shown_with_its_default() -> None:
    assert default_of("train.trainer.max_steps") == 2000 and default_of("decoding.k") == 10
    assert default_of("train.generate[2].annotate.tool.qa.samples") == 5 and default_of("x") == ""


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_a_step_and_a_function(stage: str) -> None:
    module = importlib.import_module(f"toolformer.jobs.{stage}")
    assert callable(getattr(steps, stage)) and (hasattr(module, "Work") or stage == "report")
    assert stage in VERSIONS or stage not in RUN_STEPS
