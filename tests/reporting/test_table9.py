"""Scores by k and other models in the report, from real runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reporting.conftest import accuracy, log_run, perplexity
from toolformer.reporting import build
from toolformer.reporting.layout import Content
from toolformer.tracking import Tracker


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Content:
    root = tmp_path_factory.mktemp("by_k")
    tracker = Tracker(None, root)
    for k, score, calls in (("0", 4.0, 0), ("1", 7.0, 30), ("10", 9.5, 100)):
        metrics = accuracy("svamp", score, n=100) | {"svamp/n_ac": calls, "svamp/n_nc": 100 - calls}
        if calls:
            metrics["svamp/score_ac"] = 12.0
        if calls < 100:
            metrics["svamp/score_nc"] = 4.0
        if k == "1":
            metrics |= accuracy("dateset", 1.0, n=50) | {"dateset/n_ac": 0.0, "dateset/n_nc": 50.0}
        log_run(tracker, "evaluate", metrics, fingerprint=k, system="toolformer", dotted={"decoding.k": k})
    metrics = accuracy("svamp", 20.0, n=100) | perplexity("wikitext_perplexity", 8.0)
    log_run(tracker, "evaluate", metrics, fingerprint="b", system="baseline", baseline="large/model")
    log_run(tracker, "evaluate", accuracy("svamp", 4.5), fingerprint="m", system="model")
    return build(tracker, None, Path(root) / "report").content


def test_a_row_for_every_k(content: Content) -> None:
    (table,) = [one for one in content.tables if one.key == "table9"]
    # Dateset was measured at one k only: no comparison.
    assert [(column.group, column.label) for column in table.columns] == [
        ("", "k"), *(("SVAMP", label) for label in ("All", "AC", "NC", "%")),
    ]  # fmt: skip
    assert table.columns[1].detail == "n = 100"
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["0", "4.0", "–", "4.0", "0.0"],
        ["1", "7.0", "12.0", "4.0", "30.0"],
        ["3", "–", "–", "–", "–"],
        ["10", "9.5", "12.0", "–", "100.0"],
    ]
    assert table.rows[1][2].detail == "(30)" and table.rows[1][3].detail == "(70)"
    assert table.footnotes[0].command == (
        "toolformer generate && toolformer train data=augmented && "
        "toolformer evaluate -m system=toolformer 'benchmarks=[svamp]' decoding.k=0,1,3,10"
    )


def test_another_model_has_a_row_of_its_own(content: Content) -> None:
    tables = {one.key: one for one in content.tables}
    rows = {row[0].text: row for row in tables["table4"].rows}
    assert list(rows)[4:] == ["large/model", "OPT (66B)", "GPT-3 (175B)"]
    assert rows["large/model"][3].text == "20.0" and rows["large/model"][3].detail.endswith("n = 100")
    assert rows["M"][3].text == "4.5"  # a baseline does not stand in for M
    assert [row[0].text for row in tables["table8"].rows][-1] == "large/model"
    assert any("SVAMP" in cells[3].text for cells in content.runs.rows if cells[2].text == "baseline")
