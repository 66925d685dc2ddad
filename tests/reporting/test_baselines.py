"""Models to compare with stand for none of our systems, whatever they are called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.reporting.conftest import accuracy
from tests.reporting.test_significance import scored, write
from toolformer.reporting import outcome_tables, reader, tables, viewer
from toolformer.reporting.significance import baseline_key
from toolformer.tracking import Tracker

WRONG, RIGHT = [0.0] * 40, [100.0] * 30 + [0.0] * 10
ANSWER: dict[str, Any] = {"completion": "", "tool": None, "call_input": None, "call_result": None}
ANSWER |= {"failed": None, "prediction": "", "tokens": 1, "seconds": 1.0}


def evaluated(
    tracker: Tracker,
    folder: Path,
    system: str,
    scores: Sequence[float],
    *,
    baseline: str = "",
    model: str = "m",
    first: int = 0,
    k: int = 10,
) -> str:
    """An evaluation on SVAMP whose questions begin with the given number, with its samples."""
    finger = f"{system}-{baseline}-{first}-{k}-{model.replace('/', '_')}"
    (folder / finger).mkdir(parents=True)
    rows = [scored(first + place, score, **ANSWER) for place, score in enumerate(scores)]
    file = write(folder / finger / "svamp.parquet", rows)
    tags = {"system": system, "decoding.k": str(k)} | ({"baseline": baseline} if baseline else {})
    with tracker.run(
        stage="evaluate", name="e", fingerprint=finger, config={"model": model}, tags=tags
    ) as run:
        run.metrics(accuracy("svamp", sum(scores) / len(scores), len(scores)))
        run.metrics({"svamp/n_ac": 0, "svamp/n_nc": len(scores)})
        run.artifact(file, "samples")
    return run.run_id


@pytest.mark.parametrize(("name", "system"), [("model", "toolformer"), ("toolformer", "model")])
def test_a_baseline_called_as_a_system_stands_for_none(tmp_path: Path, name: str, system: str) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    evaluated(tracker, tmp_path, system, WRONG)
    evaluated(tracker, tmp_path, "baseline", RIGHT, baseline=name, model=f"/data/llama/{name}")
    evidence = reader.read(tracker)
    against_m = {("svamp", baseline_key(name), "model")} if system == "model" else set()
    assert set(evidence.paired) == against_m
    (table,) = [one for one in tables.content(evidence).tables if one.key == "table4"]
    shown = {(row[0].text, row[0].detail): row[3] for row in table.rows}
    ours = shown["Toolformer", ""] if system == "toolformer" else shown["M", "(paper: GPT-J)"]
    assert ours.text == "0.0" and not ours.signs
    assert shown[name, "(baseline)"].signs == ("‡" if system == "model" else "")
    (row,) = outcome_tables.paired(evidence).rows
    assert {cell.text for cell in row[1:]} == {"–"}


def test_folders_of_one_last_name_are_told_apart(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    for place, scores in (("/a/llama", WRONG), ("/b/llama", RIGHT)):
        evaluated(tracker, tmp_path, "baseline", scores, baseline="llama", model=place)
    evaluated(tracker, tmp_path, "baseline", RIGHT, baseline="other", model="/c/other")
    evidence = reader.read(tracker)
    found = {name: score.value for (name, _), score in evidence.baselines.items()}
    assert found == {"llama (/a/llama)": 0.0, "llama (/b/llama)": 75.0, "other": 75.0}


def test_a_baseline_called_as_a_systems_name_is_shown_as_one(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    evaluated(tracker, tmp_path, "baseline", RIGHT, baseline="Toolformer", model="/a/Toolformer")
    (task,) = viewer.questions(reader.read(tracker).sampled)
    assert [run["title"] for run in task["runs"]] == ["Toolformer (baseline)"]
