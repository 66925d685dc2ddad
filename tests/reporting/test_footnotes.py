"""Every step of every footnote is given to the command line itself, its work left out: none is refused, all fill the report."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.reporting.conftest import accuracy, perplexity
from toolformer import build, cli, launch
from toolformer.config import Config, compose, validate
from toolformer.report import conf, places, report
from toolformer.reporting import paper, reader, tables
from toolformer.reporting.commands import evaluation_command, stage_command
from toolformer.reporting.evidence import Annotation, Counts, Evidence, RunNote
from toolformer.reporting.grammar import quoted
from toolformer.reporting.layout import footnote
from toolformer.tracking import Tracker

REPORTS = {
    "paper": ["experiment=table4"],
    "demo": ["experiment=demo"],
    "table3": ["experiment=table3", "name=table3"],
    "lr=1e-4, (draft)": [f"name={quoted('lr=1e-4, (draft)')}"],
}
"""Names of reports, and what a run of one is made with."""


def steps_of(evidence: Evidence, alike: tuple[str, ...]) -> list[str]:
    """The steps of all footnotes' commands; of those that differ in the words that begin like these only, one."""
    content = tables.content(evidence)
    shown: list[Any] = [*content.tables, *content.figures]
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


def logged(tracker: Tracker, system: str, words: list[str], metrics: dict[str, float]) -> None:
    """An evaluation in the report of the demo, made with these words."""
    config = validate(compose("evaluate", ["experiment=demo", f"system={system}", *words]))
    tags = {"system": system, "experiment": "demo", "decoding.k": "10"}
    fingerprint = f"{system} {words} {sorted(metrics)}".replace("'", "")
    with tracker.run(
        stage="evaluate", name="e", fingerprint=fingerprint, config=asdict(config), tags=tags
    ) as run:
        run.metrics(metrics)


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Two benchmarks with limits of their own, and one without any."""
    folder = tmp_path_factory.mktemp("limited")
    tracker = Tracker(None, folder / "runs")
    words = [f"paths.data_dir={folder}", "decoding.batch_size=4"]
    logged(tracker, "model", [*words, "evaluation.limit=20"], accuracy("lama_squad", 5.0, 20))
    logged(tracker, "model", [*words, "evaluation.limit=48"], accuracy("svamp", 5.0, 48))
    logged(
        tracker, "model", [*words, "evaluation.perplexity_limit=5"], perplexity("wikitext_perplexity", 9.0)
    )
    return reader.read(tracker, "demo", conf=conf())


def test_a_missing_cell_is_measured_with_the_limit_of_its_column(limited: Evidence) -> None:
    command = evaluation_command(limited, "model_cc", ["lama_squad", "svamp", "wikitext_perplexity"])
    *_, squad, svamp, wikitext = command.split(" && ")
    assert "evaluation.limit=20" in squad and "benchmarks=[lama_squad]" in squad
    assert "evaluation.limit=48" in svamp and "benchmarks=[svamp]" in svamp
    assert "evaluation.limit" not in wikitext and "evaluation.perplexity_limit=5" in wikitext
    together = evaluation_command(limited, "model", ["svamp", "wikitext_perplexity"])
    assert " && " not in together and "evaluation.limit=48 evaluation.perplexity_limit=5" in together
    whole = evaluation_command(limited, "model", ["paper"]).split(" && ")
    assert len(whole) > 1 and not any("benchmarks=[paper]" in one for one in whole)


def test_stages_are_told_only_what_they_read_and_each_step_stands_once(limited: Evidence) -> None:
    content = tables.content(limited)
    commands = [note.command for one in content.tables for note in one.footnotes if note.command]
    steps = [command.split(" && ") for command in commands]
    assert all(len(own) == len(set(own)) for own in steps)
    assert any(sum(" train " in step for step in own) for own in steps)
    for step in (step for own in steps for step in own):
        assert "decoding.batch_size" not in step
        if not step.startswith("toolformer evaluate"):
            assert not {"decoding", "evaluation", "paths"} & {
                word.split(".")[0] for word in shlex.split(step)
            }


SETTINGS = {
    "a choice": [
        "tool@tool.qa=qa_endpoint",
        "tool.qa.implementation.generate.url=http://127.0.0.1:9/v1/completions",
        "tool.qa.implementation.generate.model=m",
        "tool@tool.search=search_lucene",
    ],
    "arguments": ["tool.calendar.inference.use_clock=false", "++tool.calculator.implementation.digits=3"],
    "another class": [
        "tool.search.implementation._target_=mine.Search",
        "~tool.search.implementation.retriever",
    ],
    "the model": ["lm.dtype=float32", "decoding.max_calls=2", "evaluation.samples=[a,b]"]
    + ["evaluation.limit=null", "evaluation.perplexity_limit=null"],
    "values with parts": ["evaluation.samples={svamp:[a,'b, c'],asdiv:[d]}"]
    + ["evaluation.limit=null", "evaluation.perplexity_limit=null"]
    + ["++tool.calculator.implementation.tables=[{a:1,b:[x,y]},[1,2],'it said, twice']"],
}


@pytest.mark.parametrize("made", SETTINGS)
def test_settings_of_tools_and_of_the_model_are_carried(made: str, tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    words = ["lm.device=cpu", "tool.translation.workers=2", *SETTINGS[made]]
    logged(tracker, "model", words, accuracy("svamp", 5.0, 10))
    evidence = reader.read(tracker, "demo", conf=conf())
    command = evaluation_command(evidence, "model", ["svamp"])
    beside = validate(compose("report", ["experiment=demo", *words]), "report")
    found = validate(compose("report", shlex.split(command)[2:]), "report")
    beside.lm.device, beside.tool["translation"].workers = found.lm.device, found.tool["translation"].workers
    for part in ("tool", "lm", "decoding", "evaluation"):
        assert asdict(found)[part] == asdict(beside)[part], command
    assert "lm.device" not in command and "workers" not in command
    assert ("tool@tool.qa=qa_endpoint" in command) == ("tool@tool.search=search_lucene" in command)
    assert ("tool@" in command) == (made == "a choice")


def test_rules_of_annotation_are_told_to_the_stage_that_reads_them_and_secrets_to_none(
    tmp_path: Path,
) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    words = ["tool.qa.filter_threshold=0.7", "++tool.qa.implementation.api_key=hidden-hidden", "tools=[qa]"]
    logged(tracker, "model", [*words, "tool.search.implementation.max_tokens=9"], accuracy("svamp", 5.0, 10))
    evidence = reader.read(tracker, "demo", conf=conf())
    assert "tool.qa.filter_threshold=0.7" in stage_command(evidence, "generate")
    for command in (stage_command(evidence, "train"), evaluation_command(evidence, "model", ["svamp"])):
        assert "filter_threshold" not in command
    commands = stage_command(evidence, "generate"), evaluation_command(evidence, "model", ["svamp"])
    for command in commands:
        assert "api_key" not in command and "hidden" not in command and "max_tokens" not in command
        said = footnote("a", "Not measured yet:", command).text
        run_id = evidence.scores["model", "svamp"].run.run_id[:8]
        assert said == f"Not measured yet, with tool.qa.implementation.api_key as in run {run_id}:"


def test_demonstrations_of_ones_own_are_told_to_the_annotation(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    words = ["tools=[calculator]", "tool.calculator.instruction='Add calls, where they help.'"]
    texts = [f"It is {number} + 1, or more." for number in range(11)]
    shown = [f'{{text:"{one}",annotated:"[Calculator(1 + 1)] {one}"}}' for one in texts]
    words.append(f"tool.calculator.demonstrations=[{','.join(shown)}]")
    logged(tracker, "toolformer", words, accuracy("svamp", 5.0, 10))
    evidence = reader.read(tracker, "demo", conf=conf())
    beside = validate(compose("generate", ["experiment=demo", *words]))
    command = stage_command(evidence, "generate")
    found = validate(compose("generate", shlex.split(command)[2:]))
    assert found.tool == beside.tool and build.tool_settings(found, "calculator").prompt
    assert "demonstrations" not in stage_command(evidence, "evaluate")


def test_a_footnote_names_what_its_command_cannot_say(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    ids = ",".join(f"example_number_{number}" for number in range(60))
    words = [f"evaluation.samples=[{ids}]", "evaluation.limit=null", "evaluation.perplexity_limit=null"]
    words.append(f"tool.calculator.instruction='{'Add calls. ' * 60}'")
    logged(tracker, "model", words, accuracy("svamp", 5.0, 60))
    logged(tracker, "toolformer", words, accuracy("svamp", 5.0, 60))
    evidence = reader.read(tracker, "demo", conf=conf())
    (table,) = [one for one in tables.content(evidence).tables if one.key == "table4"]
    texts = {note.text for note in table.footnotes if " generate " not in note.command}
    assert len(texts) == 1
    (text,) = texts
    ids_of = [score.run.run_id[:8] for score in evidence.scores.values()]
    assert text in {f"Not measured yet, with evaluation.samples as in run {one}:" for one in ids_of}
    with_rules = {note.text for note in table.footnotes} - texts
    assert all("tool.calculator.instruction and evaluation.samples as in run" in one for one in with_rules)
    assert with_rules


def test_tools_whose_source_cannot_be_told_are_not_left_out_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text('def moons(planet: str) -> str:\n    """Its moons."""\n    return "2"\n')
    tracker = Tracker(None, tmp_path / "runs")
    source = f"{{python:{quoted(str(tmp_path / 'own.py'))},valves:{{api_key:hidden}}}}"
    words = [f"tool_sources=[{source}]", "tools=[calculator,moons]"]
    logged(tracker, "toolformer", words, accuracy("svamp", 5.0, 10))
    command = evaluation_command(reader.read(tracker, "demo", conf=conf()), "toolformer", ["asdiv"])
    assert "tool_sources as in run" in footnote("a", "Not measured yet:", command).text
    assert cli.main(shlex.split(command.split(" && ")[-1])[1:]) == 2
    assert "there is no tool 'moons'; known are calculator, calendar, qa" in capsys.readouterr().err


def test_an_annotation_of_more_tools_keeps_those_it_has() -> None:
    note = RunNote("r" * 32, "generate", "", "c", "2026-01-01", "cpu")
    counts = {("moons", threshold): Counts(1, 1) for threshold in paper.THRESHOLDS}
    annotation = Annotation(note, counts, {}, ())
    (note,) = tables.examples_kept(Evidence(None, annotation, {}, {})).footnotes
    assert note.text == "Not annotated yet, and all is made anew with it:"
    assert note.command == "toolformer generate 'tools=[qa,search,calculator,calendar,translation,moons]'"


@pytest.mark.parametrize("uri", ["", "sqlite:///{}/other.db"])
def test_commands_say_where_the_runs_are(
    uri: str, tmp_path: Path, ran: list[Config], caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "my runs"
    where = [f"paths.root={quoted(str(root))}", *([f"tracking.uri={uri.format(tmp_path)}"] if uri else [])]
    tracker = Tracker(uri.format(tmp_path) or None, root)
    logged(tracker, "model", [], accuracy("svamp", 5.0, 10))
    config = validate(compose("report", ["experiment=demo", *where]), "report")
    caplog.set_level("INFO")
    made = report(config)
    assert shlex.join(["toolformer", "ui", *where]) in caplog.text
    (table,) = [one for one in made.content.tables if one.key == "table4"]
    for step in (step for note in table.footnotes for step in note.command.split(" && ")):
        assert cli.main(shlex.split(step)[1:]) == 0, step
    assert {one.paths.root for one in ran} == {str(root)}
    assert {one.tracking.uri for one in ran} == {uri.format(tmp_path) or None}
    (figure,) = [one for one in made.content.figures if one.key == "figure4"]
    assert shlex.join(where) in figure.footnotes[0].command


def test_no_command_has_the_credentials_of_a_server() -> None:
    words = ["tracking.uri=http://me:pass@host:5000/mlflow"]
    found = places(validate(compose("report", words), "report"))
    assert found == ["tracking.uri=http://host:5000/mlflow"]
    assert places(validate(compose("report", []), "report")) == []
