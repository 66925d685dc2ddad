"""Evaluations and annotations explained: the classes, the report's page, what is made again, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.build import Capture, Refused, smoke_words
from toolformer.cli import main
from toolformer.evaluation.ladder.classes import CLASSES, RUNGS
from toolformer.reporting.candidate_stats import FATES
from toolformer.reporting.reader import explained_tasks
from toolformer.results import Results, Run


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory, smoke_runs: Path) -> Path:
    """The runs of the smallest experiment with an explanation of Toolformer's evaluation."""
    root = Path(shutil.copytree(smoke_runs, tmp_path_factory.mktemp("explained") / "runs"))
    assert main(command(root)) == 0
    return root


def command(root: Path, stage: str = "explain", *more: str) -> list[str]:
    return [stage, *["latest"] * (stage == "explain"), "name=smoke", f"paths.root={root}", *more]


def explanation(root: Path) -> tuple[Run, list[dict[str, Any]]]:
    """The run, and the row of each example."""
    (run,) = filter(explained_tasks, Results(root).runs("evaluate"))
    return run, pq.read_table(run.folder / "ladder" / "dateset.parquet").to_pylist()


def test_every_example_of_an_evaluation_has_one_class(explained: Path) -> None:
    run, rows = explanation(explained)
    assert run.facts["system"] == "toolformer"
    metrics = run.tasks["dateset"]
    assert sum(metrics[f"class/{name}"] for name in CLASSES) == metrics["n"] == len(rows) == 4
    assert metrics["rung/own"] == metrics["score"]


def test_no_question_of_the_evaluation_is_asked_again(root: Path, counted: list[str]) -> None:
    assert main(command(root)) == 0
    _, rows = explanation(root)
    assert len(counted) <= 3 * len(rows), "a forced call, the right call, and the right result"


def test_every_oracle_condition_is_answered(explained: Path) -> None:
    _, rows = explanation(explained)
    assert {row["call"] for row in rows} == {"[Calendar()]"}
    assert all(row["result"].startswith("Today is") for row in rows)
    assert all(row[f"{rung}_right"] is not None for row in rows for rung in RUNGS if rung != "gold_passage")


def test_an_explanation_is_made_once(explained: Path, counted: list[str], capsys: Capture) -> None:
    assert main(command(explained)) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*CLASSES.values(), "Dateset", "forced call", "n = 4"))
    assert not counted and len([*filter(explained_tasks, Results(explained).runs("evaluate"))]) == 1


def test_an_explanation_is_shown_in_a_report(explained: Path) -> None:
    _, rows = explanation(explained)
    assert main(command(explained, "report")) == 0
    folder = explained / "report" / "smoke"
    assert "## Ladder: Why answers are right or wrong" in (folder / "report.md").read_text()
    assert (folder / "figures" / "ladder.svg").is_file()
    assert json.dumps(CLASSES[rows[0]["class"]]) in (folder / "samples.html").read_text()


def test_a_damaged_explanation_is_made_again_from_answers(
    explained: Path, tmp_path: Path, counted: list[str], capsys: Capture
) -> None:
    root = Path(shutil.copytree(explained, tmp_path / "runs"))
    run, _ = explanation(root)
    path = run.folder / "ladder" / "dateset.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert main(command(root, "report")) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"ladder/dateset.parquet of evaluate run {run.id[:8]} is damaged; run its command again" in said
    assert main(command(root)) == 0
    assert path.read_bytes() == whole and not counted


def test_an_annotation_is_explained(smoke_runs: Path, capsys: Capture) -> None:
    assert main(["explain", "latest:generate", "name=smoke", f"paths.root={smoke_runs}"]) == 0
    shown = capsys.readouterr().out
    assert "Where the yield is lost" in shown
    assert all(word in shown for fate in FATES for word in fate.split())


def test_what_cannot_be_explained_is_one_line(smoke_runs: Path, refused: Refused) -> None:
    results = Results(smoke_runs)
    place = f"paths.root={smoke_runs}"
    (model,) = results.runs("evaluate", system="model")
    assert "oracle conditions need system=toolformer, but this run has system=model" in refused(
        "explain", model.id, place
    )
    oracles = ["evaluate", *smoke_words(smoke_runs), "evaluation.oracles=true"]
    for overrides in (["system=prompted"], ["decoding.k=0"]):
        assert "evaluation.oracles needs system=toolformer and decoding.k of 1 or more" in refused(
            *oracles, *overrides
        )
    said = refused("run", *smoke_words(smoke_runs), "+run.stages.explain={}")
    assert (
        "run.stages.explain: an evaluation explains its answers itself: set evaluation.oracles=true" in said
    )
    assert "there is no run 0123456" in refused("explain", "0123456", place)
    train = results.runs("train")[0].id
    assert "is a run of train" in refused("explain", train, place)
    said = refused(*command(smoke_runs, "explain", "tools=[calculator]"))
    assert "needs a benchmark whose right call is known" in said
