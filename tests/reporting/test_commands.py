"""The commands of missing cells: they compose, and make what stands beside the cell."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.reporting.conftest import accuracy, write_annotation
from toolformer.config import Config, compose, validate
from toolformer.errors import UserError
from toolformer.provenance import masked_flat
from toolformer.report import composed, conf
from toolformer.reporting import reader, tables
from toolformer.reporting.commands import evaluation_command, no_training, stage_command, train_command
from toolformer.reporting.evidence import Evidence, RunNote, Score
from toolformer.reporting.figures import scaling
from toolformer.reporting.grammar import absent, quoted, word_of
from toolformer.reporting.table9 import table9
from toolformer.reporting.words import differing, named, overrides_like, places_of_figure_4
from toolformer.tracking import Run, Tracker

NOTE = RunNote("r" * 32, "train", "augmented", "c", "2026-01-01", "cpu")


def read_back(command: str) -> Config:
    """The configuration that a command's last step runs with, its sweep left out."""
    program, stage, *words = shlex.split(command.split(" && ")[-1])
    assert program == "toolformer"
    return validate(compose(stage, [word for word in words if word != "-m" and "0,1,3,10" not in word]))


def evidence_of(config: Config, experiment: str) -> Evidence:
    """Evidence of an evaluation with this configuration and nothing else."""
    params = masked_flat(asdict(config))
    run = Run("r", "e", "FINISHED", datetime.now(UTC), {}, params, {}, "")
    word = named(experiment, conf())
    defaults = composed(word)
    overrides = overrides_like([run], composed=defaults)
    places = tuple(places_of_figure_4(params, composed("experiment=figure4")))
    recipe = tuple(differing(params, defaults))
    return Evidence(experiment, None, {}, {}, overrides=(word, *overrides), places=places, recipe=recipe)


def test_a_command_makes_the_run_that_stands_beside_the_cell(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    words = ["experiment=demo", "model=gpt2", f"paths.data_dir={quoted(str(folder))}", "evaluation.limit=20"]
    beside = validate(compose("evaluate", words))
    evidence = evidence_of(beside, "demo")
    found = read_back(evaluation_command(evidence, "model", ["svamp"]))
    assert (found.model, found.system, found.benchmarks) == ("gpt2", "model", ["svamp"])
    for part in (
        "evaluation",
        "decoding",
        "tool",
        "paths",
        "name",
    ):  # what the experiment alone has, and what it has not
        assert asdict(found)[part] == asdict(beside)[part], part
    assert read_back(stage_command(evidence, "generate")).corpus == beside.corpus
    assert read_back(train_command(evidence, "plain")).model == "gpt2"


@pytest.mark.parametrize("experiment", ["demo", "mine"])
def test_a_command_carries_whatever_is_set_otherwise(tmp_path: Path, experiment: str) -> None:
    beside = validate(
        compose(
            "evaluate",
            [
                named(experiment, conf()),
                "seed=3",
                "tools=[calculator,qa]",
                "decoding.max_calls=2",
                "trainer.max_steps=3",
            ]
            + ["corpus=jsonl", "corpus.path=mine.jsonl", "corpus.text_field=body", "corpus.date_field=null"]
            + ["heldout=jsonl", "heldout.path=mine.jsonl", "evaluation.limit=20"]
            + [f"paths.data_dir={tmp_path}"],
        )
    )
    evidence = evidence_of(beside, experiment)
    found = read_back(evaluation_command(evidence, "toolformer", ["svamp"]))
    for part in ("corpus", "heldout", "seed", "tools", "decoding", "evaluation", "name"):
        assert asdict(found)[part] == asdict(beside)[part], part
    assert read_back(train_command(evidence, "plain")).trainer == beside.trainer
    assert read_back(stage_command(evidence, "generate")).corpus == beside.corpus
    command = scaling(evidence).footnotes[0].command
    sizes = validate(compose("evaluate", shlex.split(command)[2:]))
    assert sizes.corpus == beside.corpus and "DIR" not in command


def test_an_annotation_is_told_the_rules_of_the_one_beside_it() -> None:
    words = [
        "experiment=demo",
        "propose.force_name=false",
        "propose.max_call_tokens=9",
        "filter.baseline=plain",
    ]
    beside = validate(compose("generate", [*words, "generate.shard_size=3", "score.dtype=float32"]))
    evidence = evidence_of(beside, "demo")
    found = read_back(stage_command(evidence, "generate"))
    for part in ("propose", "filter", "generate", "score"):
        assert asdict(found)[part] == asdict(beside)[part], part
    for stage in ("train", "evaluate"):
        command = stage_command(evidence, stage)
        assert not any(part in command for part in ("propose.", "filter.", "generate.", "score.")), command


@pytest.mark.parametrize("listed", [True, False])
def test_tools_of_ones_own_are_named_with_their_sources_and_settings(tmp_path: Path, listed: bool) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        'def roman(number: int) -> str:\n    """Writes a number in Roman numerals.\n\n    >>> roman(10)\n    \'X\'\n    """\n'
        '    return "X"\n'
    )
    source = quoted(str(file)) if listed else f"{{python:{quoted(str(file))},only:[roman]}}"
    words = [f"tool_sources=[{source}]", "tools=[calculator,roman]", "evaluation.limit=2"]
    words += ["+tool@tool.roman=user", "tool.roman.filter_threshold=0.1", "++tool.roman.inference.digits=3"]
    beside = validate(compose("evaluate", ["experiment=demo", *words]))
    evidence = logged(beside, tmp_path)
    stages = {stage: stage_command(evidence, stage) for stage in ("generate", "train", "evaluate")}
    for stage, command in stages.items():
        found = read_back(command)
        assert found.tool_sources == beside.tool_sources and found.tools == beside.tools
        assert ("filter_threshold=0.1" in command) is (stage == "generate")
    generate, evaluate = (read_back(stages[stage]).tool["roman"] for stage in ("generate", "evaluate"))
    assert generate == beside.tool["roman"]
    assert evaluate.inference == {"digits": 3} and evaluate.implementation == generate.implementation


def test_a_tool_of_ones_own_class_is_told_to_every_stage(tmp_path: Path) -> None:
    words = ["+tool@tool.sums=user", "tool.sums.name=Sums", "tool.sums.samples=3", "tools=[sums]"]
    words.append("++tool.sums.implementation._target_=toolformer.tools.calculator.Calculator")
    beside = validate(compose("evaluate", ["experiment=demo", *words]))
    evidence = logged(beside, tmp_path)
    for stage in ("generate", "train", "evaluate"):
        found = read_back(stage_command(evidence, stage))
        assert found.tools == ["sums"]
        assert found.tool["sums"].implementation == beside.tool["sums"].implementation
        assert found.tool["sums"].samples == (3 if stage == "generate" else 5)


def logged(config: Config, folder: Path) -> Evidence:
    """What a report reads from an evaluation with this configuration."""
    tracker = Tracker(None, folder / "runs")
    tags = {"system": "toolformer", "decoding.k": "10", "experiment": config.name}
    with tracker.run(stage="evaluate", name="e", fingerprint="e", config=asdict(config), tags=tags) as run:
        run.metrics(accuracy("svamp", 5.0, 10))
    return reader.read(tracker, config.name, conf=conf())


def test_texts_of_a_list_stay_texts() -> None:
    ids = ["12_3", "1.5", "true", "null", "-7", "1e5", "inf", "a b"]
    beside = validate(
        compose("evaluate", ["evaluation.samples=[" + ",".join(f'"{one}"' for one in ids) + "]"])
    )
    assert beside.evaluation.samples == ids
    command = evaluation_command(evidence_of(beside, "mine"), "model", ["svamp"])
    assert read_back(command).evaluation.samples == ids


def test_a_key_that_no_command_line_has_is_named_in_place_of_said() -> None:
    assert absent(word_of("tool.calculator.implementation.New York", "1", "r1")) == (
        "tool.calculator.implementation.New York",
        "r1",
    )
    assert absent(word_of("tool.calculator.implementation.2nd", "1", "r1"))
    assert (
        word_of("tool.calculator.implementation.table.0", "1", "r1")
        == "tool.calculator.implementation.table.0=1"
    )


def test_a_training_is_preceded_by_the_annotation_that_is_missing() -> None:
    evidence = Evidence(None, None, {}, {})
    assert train_command(evidence, "plain").split(" && ")[0] == "toolformer generate"
    assert no_training(evidence, "augmented")[1].startswith("toolformer generate && toolformer train")


def test_the_reader_finds_what_commands_carry(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    own = ["corpus=jsonl", "corpus.path=mine.jsonl"]
    train_id = ""
    for stage, words in (
        ("generate", own),
        ("train", ["trainer.max_steps=3"]),
        ("evaluate", ["evaluation.limit=20", "heldout=jsonl", "heldout.path=held.jsonl"]),
    ):
        config = validate(compose(stage, [*words, "model=gpt2"]))
        tags = {"data": "augmented"} if stage == "train" else {}
        if stage == "evaluate":
            tags = {"system": "toolformer", "decoding.k": "10", "lineage.train_run_id": train_id}
        with tracker.run(stage=stage, name=stage, fingerprint=stage, config=asdict(config), tags=tags) as run:
            for file in write_annotation(tmp_path) if stage == "generate" else ():
                run.artifact(file)
            if stage == "evaluate":
                run.metrics(accuracy("svamp", 5.0, 10))
        train_id = run.run_id if stage == "train" else train_id
    evidence = reader.read(tracker, conf=conf())
    found = read_back(train_command(evidence, "plain"))
    assert (found.corpus.source, found.corpus.path) == ("jsonl", "mine.jsonl")
    assert (found.heldout.source, found.heldout.path) == ("jsonl", "held.jsonl")
    assert (found.model, found.trainer.max_steps) == ("gpt2", 3)
    assert read_back(evaluation_command(evidence, "model", ["asdiv"])).evaluation.limit == 20


def test_the_runs_of_figure_4_stand_in_it_in_every_report(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    for experiment, model in (("paper", "m"), ("figure4", "gpt2"), ("figure4", "gpt2-xl"), ("mine", "x")):
        with tracker.run(
            stage="evaluate",
            name="e",
            fingerprint=model,
            config={"model": model},
            tags={"system": "toolformer", "decoding.k": "10", "experiment": experiment},
        ) as run:
            run.metrics(accuracy("svamp", 5.0, 10) | {"parameters": float(len(model))})
    evidence = reader.read(tracker, "paper")
    assert evidence.model == "m" and set(evidence.parameters) == {"m", "gpt2", "gpt2-xl"}
    assert scaling(evidence).panels and not scaling(evidence).footnotes
    assert set(reader.read(tracker, "mine").parameters) == {"x", "gpt2", "gpt2-xl"}
    assert reader.read(tracker, "mine").model == "x"
    assert set(reader.read(tracker, "figure4").parameters) == {"gpt2", "gpt2-xl"}


def test_ids_that_look_like_numbers_are_read_back() -> None:
    reads = {"augmented": "5123e678", "dataset": "12345e12"}
    evidence = Evidence(None, None, {}, {"augmented": NOTE}, reads=reads)
    assert read_back(evaluation_command(evidence, "toolformer", ["svamp"])).checkpoint == "5123e678"
    assert read_back(train_command(evidence, "plain")).dataset == "12345e12"


@pytest.mark.parametrize(("stage", "key"), [("evaluate", "checkpoint"), ("train", "dataset")])
@pytest.mark.parametrize("run_id", ["5123e678", "12345e12", "1234567e1"])
def test_an_id_that_was_read_as_a_number_is_told_with_its_cure(stage: str, key: str, run_id: str) -> None:
    with pytest.raises(UserError, match=f"{key} .*quote it.*'{key}=\"5123e678\"'"):
        validate(compose(stage, [f"{key}={run_id}"]))
    for good in ("12345678", "0123abcd", "latest"):
        assert getattr(validate(compose(stage, [f"{key}={good}"])), key) == good


def test_a_name_that_is_no_experiment_stays_a_name() -> None:
    beside = validate(compose("evaluate", ["name=mine", "model=gpt2", "decoding.min_new_tokens=8"]))
    command = evaluation_command(evidence_of(beside, "mine"), "model", ["svamp"])
    assert shlex.split(command)[2:4] == ["name=mine", "model=gpt2"] and "experiment=" not in command
    assert read_back(command).decoding == beside.decoding


def test_the_training_and_annotation_that_are_shown_are_named_where_they_are_not_the_newest() -> None:
    reads = {"augmented": "aaaaaaaa", "dataset": "dddddddd"}
    evidence = Evidence(None, None, {}, {"augmented": NOTE}, reads=reads)
    command = evaluation_command(evidence, "toolformer", ["svamp"])
    assert "checkpoint=aaaaaaaa" in command and " train " not in command
    assert "checkpoint" not in evaluation_command(evidence, "model", ["svamp"])
    steps = evaluation_command(evidence, "model_cc", ["svamp"]).split(" && ")
    assert steps[1] == "toolformer train data=plain dataset=dddddddd"


def test_latest_is_not_relied_on_where_it_is_another_training(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    ids = {}
    for name in ("shown", "newer"):
        with tracker.run(
            stage="train", name=name, fingerprint=name, config={"model": "gpt2"}, tags={"data": "augmented"}
        ) as run:
            ids[name] = run.run_id
    tags = {"system": "toolformer", "decoding.k": "10", "lineage.train_run_id": ids["shown"]}
    with tracker.run(stage="evaluate", name="e", fingerprint="e", config={"model": "gpt2"}, tags=tags) as run:
        run.metrics(accuracy("svamp", 5.0, 10))
    evidence = reader.read(tracker)
    assert evidence.overrides == ("model=gpt2",)
    assert read_back(evaluation_command(evidence, "toolformer", ["asdiv"])).checkpoint == ids["shown"][:8]


def test_all_english_has_a_dash_and_its_command() -> None:
    score = Score(15.0, 14.0, 16.0, 100, None, {}, NOTE)
    table = tables.multilingual(
        Evidence(None, None, {("model", "mlqa_es"): score, ("model", "mlqa_all_en_es"): score}, {})
    )
    (row,) = [row for row in table.rows if row[0].text == "M (All En)"]
    notes = {note.mark: note.command for note in table.footnotes}
    assert row[1].text == "15.0" and row[3].text == "–"
    assert read_back(notes[row[3].mark]).benchmarks == [
        f"mlqa_all_en_{one}" for one in ("de", "hi", "vi", "zh", "ar")
    ]
    assert all(cell.mark in notes for row in table.rows for cell in row if cell.text == "–")


def test_xquad_stands_beside_mlqa_and_does_not_displace_it() -> None:
    score = Score(15.0, 14.0, 16.0, 100, None, {}, NOTE)
    for tasks in (["xquad_es"], ["xquad_es", "mlqa_es"]):
        found = tables.content(Evidence(None, None, {("model", task): score for task in tasks}, {})).tables
        by_key = {one.key: one for one in found}
        assert by_key["xquad"].rows[0][1].text == "15.0"
        assert by_key["table6"].rows[0][2].text == "15.2"  # the paper's
        assert (by_key["table6"].rows[0][1].text == "15.0") == ("mlqa_es" in tasks)
    assert "xquad" not in {one.key for one in tables.content(Evidence(None, None, {}, {})).tables}


def test_the_figure_of_sizes_and_table_9_name_commands_that_compose(tmp_path: Path) -> None:
    beside = validate(compose("evaluate", ["experiment=demo", f"paths.data_dir={tmp_path}"]))
    evidence = evidence_of(beside, "demo")
    command = scaling(evidence).footnotes[0].command
    assert command == (
        f"toolformer run experiment=figure4 corpus.path=DIR heldout.path=DIR paths.data_dir={tmp_path}"
    )
    assert validate(compose("evaluate", shlex.split(command)[2:])).name == "figure4"
    (note,) = table9(evidence).footnotes
    command = note.command.split(" && ")[-1]
    assert "evaluate -m experiment=demo model=smollm2 " in command and "decoding.k=0,1,3,10" in command
    assert read_back(command).benchmarks == ["lama_trex", "webqs"]


@given(
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs"))).filter(
        lambda value: quoted(value) != value
    )
)
@example("a b")
@example("C:\\data\\")
@example('say \\"so"')
def test_quoted_values_are_read_back(value: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    assert OverridesParser.create().parse_override(f"key={quoted(value)}").value() == value
