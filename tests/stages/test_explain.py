"""`toolformer explain` of an evaluation and of an annotation, and what a report makes of it."""

import json
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.ladder.classes import CLASSES, RUNGS
from tests.conftest import Capture, Refused
from toolformer.cli import main
from toolformer.reporting.candidate_stats import FATES
from toolformer.tracking import Tracker


def test_an_evaluation_is_explained_once(root: Path, counted: list[str], capsys: Capture) -> None:
    place = f"paths.root={root}"
    assert main(["explain", "latest", "name=smoke", place]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*CLASSES.values(), "Dateset", "forced call", "n = 4"))
    tracker = Tracker(None, root)
    (run,) = tracker.runs("explain")
    evaluated = tracker.get(run.tags["lineage.evaluate_run_id"])
    assert evaluated.tags["system"] == "toolformer"
    assert sum(run.metrics[f"dateset/class/{name}"] for name in CLASSES) == run.metrics["dateset/n"] == 4
    assert run.metrics["dateset/rung/own"] == evaluated.metrics["dateset/score"]
    rows = pq.read_table(tracker.artifact_path(run, "ladder/dateset.parquet")).to_pylist()
    assert {row["call"] for row in rows} == {"[Calendar()]"}
    assert all(row["result"].startswith("Today is") for row in rows)
    assert all(row[f"{rung}_right"] is not None for row in rows for rung in RUNGS if rung != "gold_passage")
    assert counted
    counted.clear()
    assert main(["explain", run.tags["lineage.evaluate_run_id"][:8], place]) == 0
    assert not counted and capsys.readouterr().out == shown and len(tracker.runs("explain")) == 1
    assert main(["report", "name=smoke", place]) == 0
    folder = root / "report" / "smoke"
    assert "## Ladder: Why answers are right or wrong" in (folder / "report.md").read_text()
    assert (folder / "figures" / "ladder.svg").is_file()
    assert json.dumps(CLASSES[rows[0]["class"]]) in (folder / "samples.html").read_text()


def test_an_annotation_is_explained(root: Path, capsys: Capture) -> None:
    assert main(["explain", "latest:generate", "name=smoke", f"paths.root={root}"]) == 0
    shown = capsys.readouterr().out
    assert "Where the yield is lost" in shown
    assert all(word in shown for fate in FATES for word in fate.split())


def test_what_cannot_be_explained_is_one_line(root: Path, refused: Refused) -> None:
    tracker = Tracker(None, root)
    place = f"paths.root={root}"
    (model,) = tracker.runs("evaluate", system="model")
    assert "the ladder needs one of system=toolformer" in refused("explain", model.run_id, place)
    assert "there is no run 0123456" in refused("explain", "0123456", place)
    train = tracker.runs("train")[0].run_id
    assert "is a run of train" in refused("explain", train, place)
    given = ["explain", "latest", "name=smoke", place, "tools=[calculator]"]
    assert "no benchmark whose right call is known" in refused(*given)
