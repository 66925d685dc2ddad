"""Every step of every footnote is given to the command line itself, its work left out: none is refused, all fill the report."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.reporting.conftest import accuracy
from toolformer import cli, launch
from toolformer.config import Config, compose, validate
from toolformer.report import conf
from toolformer.reporting import reader, tables
from toolformer.reporting.words import quoted
from toolformer.tracking import Tracker

REPORTS = {
    "paper": ["experiment=table4"],
    "demo": ["experiment=demo"],
    "table3": ["experiment=table3", "name=table3"],
    "lr=1e-4, (draft)": [f"name={quoted('lr=1e-4, (draft)')}"],
}
"""Names of reports, and what a run of one is made with."""


def steps_of(evidence: Any, alike: tuple[str, ...]) -> list[str]:
    """The steps of all footnotes' commands; of those that differ in the words that begin like these only, one."""
    content = tables.content(evidence)
    shown = (*content.tables, *content.figures)
    commands = [note.command for one in shown for note in one.footnotes if note.command]
    different = {}
    for command in commands:
        for step in command.split(" && "):
            words = shlex.split(step)
            different[tuple(word for word in words if not word.startswith(alike))] = step
    return list(different.values())


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations that stages were started with, in place of running them."""
    found: list[Config] = []

    def launched(stage: str, jobs: list[list[str]], *_: object) -> list[Any]:
        found.extend(validate(compose(stage, job), stage) for job in jobs[:1])
        return []

    monkeypatch.setattr(launch, "run_stage", lambda stage, config, **_: found.append(config))
    monkeypatch.setattr(launch, "parent_run", lambda *_, **__: None)
    monkeypatch.setattr(launch, "launch", launched)
    return found


@pytest.mark.parametrize("name", REPORTS)
def test_no_step_is_refused_and_each_makes_a_run_of_this_report(
    name: str, tmp_path: Path, ran: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"raw_content": "x y", "text": "x y"}\n')
    places = [f"corpus.path={texts}", f"heldout.path={texts}"] if name in ("paper", "table3") else []
    config = validate(compose("evaluate", [*REPORTS[name], *places]))
    assert config.name == name
    tracker = Tracker(None, tmp_path / "runs")
    tags = {"system": "model", "experiment": name}
    with tracker.run(stage="evaluate", name="e", fingerprint="e", config=asdict(config), tags=tags) as run:
        run.metrics(accuracy("svamp", 5.0, 10))
    alike = ("benchmarks=",) if name == "paper" else ("benchmarks=", "system=")
    steps = [step for step in steps_of(reader.read(tracker, name, conf=conf()), alike) if " run " not in step]
    assert {step.split()[1] for step in steps} == {"generate", "train", "evaluate"}
    for step in steps:
        assert cli.main(shlex.split(step)[1:]) == 0, (step, capsys.readouterr().err)
    assert len(ran) == len(steps)
    assert {one.name for one in ran} == {name} and {one.model for one in ran} == {config.model}
