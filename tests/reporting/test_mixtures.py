"""What is bold, and what is said, where systems were asked otherwise or models were measured beside the tables'."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reporting.conftest import accuracy
from tests.reporting.test_baselines import RIGHT, WRONG, evaluated
from toolformer.reporting import reader, tables
from toolformer.reporting.evidence import Evidence, RunNote, Score
from toolformer.reporting.figures import overview, scaling
from toolformer.reporting.outcome_tables import SIGNS
from toolformer.tracking import Tracker

NOTE = RunNote("r" * 32, "evaluate", "model", "c", "2026-01-01", "cpu")


@pytest.mark.parametrize("systems", [("model", "model_cc"), ("model_cc", "toolformer")])
@pytest.mark.parametrize("first", [0, 7, 40])
def test_nothing_is_bold_among_other_questions(tmp_path: Path, systems: tuple[str, str], first: int) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    evaluated(tracker, tmp_path, systems[0], WRONG)
    evaluated(tracker, tmp_path, systems[1], RIGHT, first=first)
    evidence = reader.read(tracker)
    (table,) = [one for one in tables.content(evidence).tables if one.key == "table4"]
    assert [row[3].text for row in table.rows if row[3].bold] == ([] if first else ["75.0"])
    said = [one for one in evidence.remarks if "asked the same examples on SVAMP, though as many" in one]
    assert len(said) == bool(first)


@pytest.mark.parametrize("first", [0, 7])
def test_no_row_of_table_9_is_bold_among_other_questions(tmp_path: Path, first: int) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    evaluated(tracker, tmp_path, "toolformer", WRONG, k=0)
    evaluated(tracker, tmp_path, "toolformer", RIGHT, first=first)
    evidence = reader.read(tracker)
    (table,) = [one for one in tables.content(evidence).tables if one.key == "table9"]
    assert [cell.text for row in table.rows for cell in row if cell.bold] == ([] if first else ["75.0"])
    said = "Not all k were asked the same examples on SVAMP"
    assert any(one.startswith(said) for one in evidence.remarks) is bool(first)


def sized(tracker: Tracker, model: str, size: float, *tasks: str) -> list[str]:
    """A training and the evaluation of what it made; their ids."""
    config, tags = {"model": model}, {"data": "augmented"}
    with tracker.run(stage="train", name="t", fingerprint=model, config=config, tags=tags) as trained:
        pass
    tags = {"system": "toolformer", "decoding.k": "10", "lineage.train_run_id": trained.run_id}
    with tracker.run(stage="evaluate", name="e", fingerprint=model, config=config, tags=tags) as run:
        for task in tasks:
            run.metrics(accuracy(task, 5.0, 10))
        run.metrics({"parameters": size})
    return [trained.run_id, run.run_id]


def test_what_stands_behind_figure_4_is_listed_and_what_it_does_not_draw_is_said(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    ids = {
        "small": sized(tracker, "small", 1e6, "svamp", "dateset"),
        "large": sized(tracker, "large", 1e9, "svamp"),
        "dated": sized(tracker, "dated", 1e7, "dateset"),
    }
    evidence = reader.read(tracker)
    assert evidence.model == "small" and scaling(evidence).panels
    listed = {row[0].text for row in tables.runs(evidence).rows}
    for model, own in ids.items():
        assert ({run_id[:8] for run_id in own} <= listed) == (model != "dated")
    said = " ".join(evidence.remarks)
    assert "; large was measured too: Figure 4." in said
    assert "; dated was measured too, and left out of the tables." in said


def test_the_overview_has_benchmarks_of_ones_own() -> None:
    score = Score(15.0, 14.0, 16.0, 100, None, {}, NOTE)
    for tasks in (["mine"], ["mine", "svamp"]):
        figure = overview(Evidence(None, None, {("model", task): score for task in tasks}, {}))
        assert figure is not None
        (panel,) = figure.panels
        assert {name for _, name in panel.y.ticks} == {{"svamp": "SVAMP"}.get(task, task) for task in tasks}
    assert overview(Evidence(None, None, {("model", "my_perplexity"): score}, {})) is None


def test_the_signs_say_how_graded_scores_are_judged() -> None:
    assert "graded scores and perplexity" in SIGNS
