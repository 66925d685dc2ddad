"""What is read from real runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reporting.conftest import ROWS, TEXTS, accuracy, log_run, write_annotation
from toolformer.errors import UserError
from toolformer.reporting import paper, reader, tables
from toolformer.reporting.evidence import Counts
from toolformer.tracking import Tracker


def test_of_equally_large_runs_the_newest_counts_for_each_system_and_task(tracker: Tracker) -> None:
    scores = reader.read(tracker, "default").scores
    assert scores["model", "svamp"].value == 4.0  # not the older 99.0
    assert scores["model", "dateset"].n == 9400
    assert ("model", "asdiv") not in scores
    score = scores["toolformer", "svamp"]
    assert (score.low, score.value, score.high, score.n) == (10.34, 12.34, 14.34, 1000)
    assert score.call_share == 0.75 and score.tool_shares == {"calculator": 0.5, "qa": 0.25}
    assert scores["model", "wikitext_perplexity"].value == 20.5


def test_a_sweep_over_k_does_not_stand_in_for_the_plain_run(tracker: Tracker) -> None:
    assert 77.0 not in {score.value for score in reader.read(tracker).scores.values()}


def test_an_experiment_can_be_singled_out(tracker: Tracker) -> None:
    evidence = reader.read(tracker, "other")
    assert {key: score.value for key, score in evidence.scores.items()} == {("toolformer", "svamp"): 33.0}
    assert evidence.annotation is None and not evidence.trained
    # The newer 33.0 is of a model of unknown training, with fewer figures.
    assert reader.read(tracker).scores["toolformer", "svamp"].value == 12.34
    with pytest.raises(UserError, match="no finished run is of the experiment absent: .*name=absent"):
        reader.read(tracker, "absent")


def test_table_2_is_counted_from_the_candidates(tracker: Tracker) -> None:
    annotation = reader.read(tracker, "default").annotation
    assert annotation is not None
    # Two samples at one place are one call; a text with two calls is one example.
    assert annotation.counts["calculator", 0.5] == Counts(examples=1, calls=2)
    assert annotation.counts["calculator", 1.0] == Counts(examples=1, calls=1)
    assert annotation.counts["calendar", 1.0] == Counts(examples=1, calls=2)
    assert annotation.counts["calendar", 2.0] == Counts(examples=1, calls=1)  # the threshold itself is kept
    assert annotation.counts["qa", 2.0] == Counts(examples=1, calls=1)
    assert annotation.counts["search", 0.5] == Counts(0, 0)  # tried, nothing found
    assert ("translation", 0.5) not in annotation.counts  # not tried


def test_examples_are_kept_calls_and_near_and_far_misses(tracker: Tracker) -> None:
    annotation = reader.read(tracker, "default").annotation
    assert annotation is not None
    shown = [(one.doc_id, one.position, one.gain, one.kept) for one in annotation.examples]
    assert shown == [
        ("math", 77, 2.5, True),
        ("nile", 37, 2.08, True),
        ("date", 35, 2.0, True),
        ("date", 51, 1.5, True),
        ("evil", 10, 1.2, True),
        ("math", 60, 0.75, False),
        ("lost", 3, 0.1, False),
        ("math", 10, -0.5, False),
    ]
    by_document = {one.doc_id: one for one in annotation.examples}
    assert by_document["nile"].text == TEXTS["nile"] and by_document["lost"].text is None
    assert by_document["nile"].call.quoted and by_document["nile"].call.result == "6,853 km"


def test_the_lineage_is_followed(tracker: Tracker) -> None:
    evidence = reader.read(tracker, "default")
    assert sorted(note.system for note in evidence.lineage) == ["augmented", "plain"]
    assert set(evidence.trained) == {"augmented", "plain"}
    others, uneven = evidence.remarks
    assert "an unknown training was evaluated too" in others  # the run with k = 1
    assert "on Dateset: no figure is bold there" in uneven  # M has 9,400 examples of it, the others 500


def test_a_newer_annotation_than_the_evaluated_one_is_remarked(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    old = log_run(tracker, "generate", fingerprint="1", files=write_annotation(tmp_path))
    train = log_run(tracker, "train", data="augmented", dotted={"lineage.dataset_run_id": old})
    lineage = {"lineage.train_run_id": train, "lineage.dataset_run_id": old}
    log_run(tracker, "evaluate", accuracy("svamp", 1.0), system="toolformer", dotted=lineage)
    assert reader.read(tracker).remarks == ()
    new = log_run(tracker, "generate", fingerprint="2", files=write_annotation(tmp_path))
    evidence = reader.read(tracker)
    assert len(evidence.remarks) == 1 and old[:8] in evidence.remarks[0] and new[:8] in evidence.remarks[0]
    assert evidence.annotation is not None and evidence.annotation.run.run_id == old
    assert {note.run_id for note in evidence.lineage} == {train}


def test_an_empty_annotation_is_read(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    nothing = [(*row[:6], "no result", None) for row in ROWS]
    log_run(tracker, "generate", files=write_annotation(tmp_path, nothing))
    annotation = reader.read(tracker).annotation
    assert annotation is not None and annotation.examples == ()
    assert set(annotation.counts.values()) == {Counts(0, 0)}


@pytest.mark.parametrize("content", ["[broken", None])
@pytest.mark.parametrize("name", ["candidates.parquet", "dataset_plain.parquet", "funnel.json"])
def test_an_annotation_that_cannot_be_read_is_said_with_the_command_that_makes_it_again(
    tmp_path: Path, name: str, content: str | None
) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    with tracker.run(stage="generate", name="g", fingerprint="g", config={"model": "gpt2"}) as run:
        for file in write_annotation(tmp_path):
            run.artifact(file)
    path = tracker.artifact_path(tracker.get(run.run_id), name)
    path.unlink()
    if content:
        path.write_text(content)
    train = log_run(tracker, "train", data="augmented", dotted={"lineage.dataset_run_id": run.run_id})
    evidence = reader.read(tracker)
    (remark,) = evidence.remarks
    assert remark.startswith(
        f"Generate run {run.run_id[:8]}, on whose data the models were trained, cannot be read ("
    )
    assert (content is not None or f"({name} is gone)" in remark) and "\n" not in remark
    assert evidence.annotation is None and evidence.trained["augmented"].run_id == train
    for table in tables.content(evidence).tables:
        if table.key in ("table2", "funnel"):
            assert [note.command for note in table.footnotes] == ["toolformer generate model=gpt2"], table.key
    again = log_run(tracker, "generate", files=write_annotation(tmp_path))
    evidence = reader.read(tracker)
    assert evidence.annotation is not None and evidence.annotation.run.run_id == again
    assert evidence.remarks == (remark.replace(").", f"); the tables on annotation show run {again[:8]}."),)


def test_the_papers_figures_are_those_of_its_tables() -> None:
    assert paper.EXAMPLES_KEPT["search"] == (207_241, 60_974, 13_944)
    assert paper.SCORES["asdiv"]["Toolformer"] == 40.4 and paper.SCORES["dateset"]["GPT-3 (175B)"] == 0.8
    assert paper.SCORES["heldout_perplexity"]["GPT-J + CC"] == 10.5
    for task, figures in paper.SCORES.items():
        assert list(figures)[:3] == ["GPT-J", "GPT-J + CC", "Toolformer (disabled)"], task
        assert len(figures) == (3 if task.endswith("perplexity") else 6), task
