"""The report's tables, and the whole report pinned."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reporting.conftest import ROWS, log_run, write_annotation
from tests.reporting.memory import NOTE, Memory
from tests.reporting.test_figures import SCORE
from toolformer.calls import ApiCall
from toolformer.errors import UserError
from toolformer.reporting import Report, build, candidate_stats, paper, reader, tables
from toolformer.reporting.data import Counts, Evidence, Score
from toolformer.reporting.table9 import table9

PIN = Path(__file__).parents[1] / "golden" / "report.md"


def test_the_same_runs_make_the_report_that_they_always_made(report: Report) -> None:
    """`UPDATE_GOLDEN=1` writes the pin anew; a commit that does so says why."""
    text = report.markdown.read_text(encoding="utf-8")
    if os.environ.get("UPDATE_GOLDEN"):
        PIN.write_text(text, encoding="utf-8")
    assert text == PIN.read_text(encoding="utf-8")


def test_the_same_runs_give_the_same_bytes(tracker: Memory, report: Report, tmp_path: Path) -> None:
    build(tracker, "default", tmp_path)
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert {"report.html", "report.md", "report.tex", "samples.html", "figures/gains.svg"} <= set(names)
    for name in names:
        assert (tmp_path / name).read_bytes() == (report.html.parent / name).read_bytes(), name


def test_what_was_not_measured_is_the_last_list(report: Report, bare: Report) -> None:
    assert report.content.closing[-1].key == bare.content.closing[-1].key == "missing"
    assert not bare.content.tables + bare.content.passages and not bare.content.figures
    assert "## Table 10" not in bare.markdown.read_text(encoding="utf-8")


def test_the_whole_of_the_paper_can_be_printed() -> None:
    evidence = Evidence(scores={("toolformer", "mlqa_all_en_es"): Score(1.0, None, None, 9, None, {}, NOTE)})
    shown = {table.key: table for table in tables.content(evidence, full=True).tables}
    assert [key for key in shown if key.startswith("table")] == [f"table{n}" for n in range(2, 10)]
    assert [cell.text for cell in shown["table4"].rows[0]] == ["M", "–", "7.5", "–", "5.2", "–", "9.9"]
    assert [cells[0].text for cells in shown["table4"].rows][-2:] == list(paper.LARGER)
    assert [cells[0].text for cells in shown["table6"].rows][-2:] == ["M (All En)", "GPT-3 (175B) (All En)"]
    assert [cell.text for cell in shown["table2"].rows[0][1:]] == ["–"] * 4 + ["51,987", "18,526", "5,135"]


def test_english_rows_stand_in_table_6_where_they_were_measured() -> None:
    score = Score(9.0, None, None, 9, None, {}, NOTE)
    evidence = Evidence(scores={("model", "mlqa_es"): score, ("model", "mlqa_all_en_es"): score})
    (found,) = (table for table in tables.content(evidence).tables if table.key == "table6")
    rows = [[cell.text for cell in cells] for cells in found.rows]
    assert rows == [["M", "9.0", "15.2"], ["M (All En)", "9.0", "24.3"]]


def test_table_2_is_counted_from_the_candidates(tracker: Memory) -> None:
    annotation = reader.read(tracker, "default").annotation
    assert annotation is not None
    # Two samples at one place are one call; a text with two calls is one example; the threshold itself is kept.
    assert annotation.counts["calculator", 0.5] == Counts(examples=1, calls=2)
    assert annotation.counts["calculator", 1.0] == Counts(examples=1, calls=1)
    assert annotation.counts["calendar", 2.0] == Counts(examples=1, calls=1)
    assert annotation.counts["search", 0.5] == Counts(0, 0)  # tried, nothing found


def test_an_annotation_that_found_nothing_is_read(tmp_path: Path) -> None:
    store = Memory()
    nothing = [(*row[:6], "no result", None) for row in ROWS]
    log_run(store, "generate", files=write_annotation(tmp_path, nothing))
    annotation = reader.read(store).annotation
    assert annotation is not None and annotation.examples == ()
    assert set(annotation.counts.values()) == {Counts(0, 0)}


def test_long_texts_and_calls_are_cut() -> None:
    call = ApiCall("QA", "why").with_result("because " * 100)
    found = candidate_stats.passage("qa", "word " * 300, 500, call, 1.0, True)
    assert found.before.startswith("… word") and found.after.endswith("word …")
    assert max(len(found.before), len(found.after)) <= candidate_stats.CONTEXT + 2
    assert len(found.call) <= candidate_stats.LONGEST_CALL and found.call.endswith("…]")


def test_a_folder_that_cannot_be_written_ends_in_one_line(empty: Memory, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        build(empty, None, tmp_path / "file")


def score(value: float, n: int, ac: float | None, calls: int, nc: float | None, *ends: float) -> Score:
    low, high = ends or (None, None)
    return replace(SCORE, value=value, n=n, with_call=ac, calls=calls, without_call=nc, low=low, high=high)


SVAMP = {
    (0, "svamp"): score(4.0, 100, None, 0, 4.0, 2.0, 6.0),
    (1, "svamp"): score(7.0, 100, 12.0, 30, 4.0, 5.0, 9.0),
    (10, "svamp"): score(9.5, 100, 12.0, 100, None, 7.5, 11.5),
}
LABELS = ("All", "AC", "NC", "%")


def test_a_row_for_every_k_that_was_measured() -> None:
    table = table9(Evidence(by_k=SVAMP))
    assert [(column.group, column.label) for column in table.columns] == [
        ("", "k"),
        *(("SVAMP", label) for label in LABELS),
    ]
    assert table.columns[1].detail == "n = 100"
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["0", "4.0", "–", "4.0", "0.0"],
        ["1", "7.0", "12.0", "4.0", "30.0"],
        ["10", "9.5", "12.0", "–", "100.0"],
    ]
    _, k1, k10 = table.rows
    assert k1[1].detail == "[5.0, 9.0]"  # the evaluation's own
    assert k1[2].detail == "[5.3, 29.7] (30)"  # Wilson: 4 of 30
    assert k1[3].detail == "[1.5, 11.9] (70)" and k1[4].detail == "[21.9, 39.6]"
    assert [cell.bold for cell in k10[1:]] == [True, False, False, False]


def test_the_whole_table_of_the_paper_has_its_own_figures() -> None:
    table = table9(Evidence(by_k=SVAMP), full=True)
    groups = dict.fromkeys(column.group for column in table.columns[1:])
    assert list(groups) == ["T-REx", "T-REx, paper", "WebQS", "WebQS, paper", "SVAMP"]
    assert [row[0].text for row in table.rows] == ["0", "1", "3", "10"]
    assert table.rows[0][5].text == "34.9" and table.rows[2][17].text == "–"
