"""Scores by k and other models in the report, from real runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reporting.conftest import accuracy, log_run, perplexity
from toolformer.reporting import build
from toolformer.reporting.evidence import Evidence, KScore, RunNote
from toolformer.reporting.layout import Content
from toolformer.reporting.table9 import table9
from toolformer.tracking import Tracker

NOTE = RunNote("r" * 32, "train", "augmented", "c", "2026-01-01", "cpu")


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
    # The paper's benchmarks come first. Dateset was measured at one k only: no comparison.
    groups = ("T-REx", "T-REx, paper", "WebQS", "WebQS, paper", "SVAMP")
    assert [(column.group, column.label) for column in table.columns] == [
        ("", "k"), *((group, label) for group in groups for label in ("All", "AC", "NC", "%")),
    ]  # fmt: skip
    assert table.columns[17].detail == "n = 100"
    assert table.rows[0][1].mark and table.rows[0][5].text == "34.9"
    assert [[row[0].text, *(cell.text for cell in row[17:])] for row in table.rows] == [
        ["0", "4.0", "–", "4.0", "0.0"],
        ["1", "7.0", "12.0", "4.0", "30.0"],
        ["3", "–", "–", "–", "–"],
        ["10", "9.5", "12.0", "–", "100.0"],
    ]
    # The figures are of no training that is there: what was measured is measured again with the new one.
    generate, train, *_, other, last = table.footnotes[0].command.split(" && ")
    assert (generate, train) == ("toolformer generate", "toolformer train data=augmented")
    assert other.endswith("-m system=toolformer 'benchmarks=[lama_trex,webqs]' decoding.k=0,1,3,10")
    assert last == ("toolformer evaluate -m system=toolformer 'benchmarks=[svamp]' decoding.k=3")


def test_a_k_that_the_paper_has_not_is_measured_where_it_is_missing() -> None:
    score = KScore(5.0, 10, None, 0, 5.0, 10)
    measured = {(k, task): score for k in (0, 1, 3, 10) for task in ("webqs", "lama_trex")}
    evidence = Evidence(None, None, {}, {"augmented": NOTE}, by_k=measured | {(5, "lama_trex"): score})
    (note,) = table9(evidence).footnotes
    assert note.command.endswith("toolformer evaluate -m system=toolformer 'benchmarks=[webqs]' decoding.k=5")


def test_table_9_has_intervals_and_its_best_in_bold(content: Content) -> None:
    (table,) = [one for one in content.tables if one.key == "table9"]
    _, k1, _, k10 = table.rows
    assert k1[17].detail == "[5.0, 9.0]"  # the evaluation's own
    assert k1[18].detail == "[5.3, 29.7] (30)"  # Wilson: 4 of 30
    assert k1[19].detail == "[1.5, 11.9] (70)" and k1[20].detail == "[21.9, 39.6]"
    assert [cell.bold for cell in k10[17:]] == [True, False, False, False]
    assert not any(cell.bold for row in table.rows[:3] for cell in row)


def test_another_model_has_a_row_of_its_own(content: Content) -> None:
    tables = {one.key: one for one in content.tables}
    rows = {row[0].text: row for row in tables["table4"].rows}
    assert list(rows)[4:] == ["large/model", "OPT (66B)", "GPT-3 (175B)"]
    assert rows["large/model"][3].text == "20.0" and rows["large/model"][3].detail.endswith("n = 100")
    assert rows["M"][3].text == "4.5"  # a baseline does not stand in for M
    assert [row[0].text for row in tables["table8"].rows][-1] == "large/model"
    assert any("SVAMP" in cells[3].text for cells in content.runs.rows if cells[2].text == "baseline")
