"""The report's tables, and the whole report pinned."""

import os
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.build import Capture, Log, Patch, at_work, made, step, wait_for
from tests.runs import (
    NOTE,
    ROWS,
    SCORE,
    Runs,
    annotated,
    evaluated,
    perplexity,
    shown,
    trained,
    write_annotation,
)
from toolformer.calls import ApiCall
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.reporting import Report, build, candidate_stats, paper, reader, render, tables
from toolformer.reporting.data import Evidence, Score
from toolformer.reporting.setting_tables import table9
from toolformer.results import Results
from toolformer.storage import lock_file

LABELS = ("rolled back", "result begun", "call in call")
PIN = Path(__file__).parents[1] / "golden" / "report.md"


def test_the_same_runs_make_the_report_that_they_always_made(report: Report) -> None:
    """`UPDATE_GOLDEN=1` rewrites the pin; the commit that does so says why."""
    text = re.sub(r"\b20\d\d-\d\d-\d\d\b", "DATE", report.markdown.read_text(encoding="utf-8"))
    if os.environ.get("UPDATE_GOLDEN"):
        PIN.write_text(text, encoding="utf-8")
    assert text == PIN.read_text(encoding="utf-8"), "if it should: UPDATE_GOLDEN=1 writes the pin again"


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    store = Runs()
    annotated(store, files=write_annotation(tmp_path))
    once, again = (build(store, "default", tmp_path / name).html.parent for name in ("once", "again"))
    names = sorted(str(path.relative_to(once)) for path in once.rglob("*") if path.is_file())
    assert {"report.html", "report.md", "tables/funnel.tex", "samples.html", "figures/gains.svg"} <= set(
        names
    )
    for name in names:
        assert (once / name).read_bytes() == (again / name).read_bytes(), name


def test_a_report_waits_for_another_process_that_writes_it(tmp_path: Path, caplog: Log) -> None:
    caplog.set_level("INFO")
    out = tmp_path / "report"
    other = lock_file(tmp_path / ".report.lock")
    other.acquire()
    writing = threading.Thread(target=build, args=(Runs(), None, out))
    writing.start()
    try:
        wait_for(lambda: "another process writes it" in caplog.text or not writing.is_alive())
        assert not out.exists()
    finally:
        other.release()
        writing.join()
    assert (out / "report.md").exists()


def test_other_benchmarks_alone_list_no_gaps_of_the_paper() -> None:
    def keys(*tasks: str, full: bool = False) -> list[str]:
        scores = {("model", task): SCORE for task in tasks}
        return [part.key for part in tables.report_content(Evidence(None, None, scores), full).parts]

    assert "missing" not in keys("my_quiz", "heldout_perplexity")
    assert "missing" in keys("my_quiz", "svamp") and "missing" in keys("my_quiz", full=True)


def test_commands_for_what_is_missing_name_the_reports_folder(tmp_path: Path) -> None:
    """Wherever the runs were when they were made; `runs` in the working directory needs no override."""
    results = Results(tmp_path / "runs")
    command = "toolformer evaluate setting=small paths.root=elsewhere system=model"
    with at_work(results, step("evaluate"), command=command, experiment="mine") as folder:
        folder.task("svamp", {"score": 5.0, "n": 4.0})
        folder.add_facts(system="model")
    for at, ending in (([], ""), (["paths.root=published"], " paths.root=published")):
        text = build(results, "mine", tmp_path / "report", overrides=at).markdown.read_text(encoding="utf-8")
        assert f"`toolformer run experiment=table8 setting=small{ending}`" in text


def test_a_folder_without_mlflow_has_no_hint_to_browse_it(
    tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    made(Results(tmp_path / "mine"), step("train"), experiment="demo")
    assert main(["report", "name=demo", "paths.root=mine"]) == 0
    shown = capsys.readouterr().err
    assert "to log them there: toolformer runs log paths.root=mine" in shown and "toolformer ui" not in shown
    assert main(["runs", "log", "paths.root=mine"]) == 0
    assert main(["report", "name=demo", "paths.root=mine"]) == 0
    assert "browse them with: toolformer ui paths.root=mine" in capsys.readouterr().err


def test_what_was_not_measured_is_the_last_list(report: Report, tmp_path: Path) -> None:
    bare = build(Runs(), None, tmp_path / "bare")
    assert report.content.parts[-1].key == "missing"
    assert [part.key for part in bare.content.parts] == ["symbols", "runs", "missing"]
    assert "## Table 10" not in bare.markdown.read_text(encoding="utf-8")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        build(Runs(), None, tmp_path / "file")
    there = Runs()
    there.add("train", experiment="demo")
    match = "the experiment absent has no finished run: run a stage with name=absent, or add name=demo"
    for store in (Runs(), there):
        with pytest.raises(UserError, match=match):
            build(store, "absent", tmp_path)


def test_the_whole_paper_can_be_printed() -> None:
    score = Score(9.0, None, None, (NOTE,), {"n": 9})
    evidence = Evidence(scores={("model", "mlqa_es"): score, ("model", "mlqa_all_en_es"): score})
    rows = [[cell.text for cell in cells] for cells in shown(evidence)["table6"].rows]
    assert rows == [["M", "9.0", "15.2"], ["M (All En)", "9.0", "24.3"]]
    texts = {key: [[cell.text for cell in row] for row in t.rows] for key, t in shown(evidence, True).items()}
    assert [key for key in texts if key.startswith("table")] == [f"table{n}" for n in range(2, 10)]
    assert texts["table4"][0] == ["M", "–", "7.5", "–", "5.2", "–", "9.9"]
    assert [row[0] for row in texts["table4"]][-2:] == list(paper.LARGER)
    assert [row[0] for row in texts["table6"]][-2:] == ["M (All En)", "GPT-3 (175B) (All En)"]
    assert texts["table2"][0][1:] == ["–"] * 4 + ["51,987", "18,526", "5,135"]


def test_where_the_paper_has_nothing_it_is_not_named() -> None:
    score = Score(9.0, 8.0, 10.0, (NOTE,), {"n": 9, "call_share": 0.5, "call_share/calculator": 0.5})
    evidence = Evidence(
        scores={(system, "arithmetic"): score for system in ("model", "toolformer")},
        by_k={(k, "lama_trex"): score for k in (2, 4)},
    )
    found = shown(evidence)
    assert [row[0].detail for row in found["arithmetic"].rows] == ["", ""]
    assert "The paper's" not in found["tool_use"].caption and "table9" in found
    assert not any(column.paper for table in found.values() for column in table.columns)
    assert "Grey columns" not in render.html(tables.report_content(evidence))


def test_rows_of_differing_dtypes_are_named() -> None:
    store = Runs()
    evaluated(store, "model", perplexity("heldout_perplexity", 80.35))
    evaluated(store, "model_cc", perplexity("heldout_perplexity", 81.0), trained(store, "plain"))
    alike = reader.read_evidence(store)
    assert shown(alike)["table8"].caption.endswith(" Measured in bfloat16.")
    assert ("bfloat16", "dtype") in tables.facts(alike) and not tables.report_content(alike).remarks
    metrics = perplexity("heldout_perplexity", 81.66)
    evaluated(store, "toolformer_disabled", metrics, trained(store), dtype="float32")
    mixed = reader.read_evidence(store)
    end = "rounding: bfloat16: M, M + CC; float32: Toolformer (disabled)."
    assert shown(mixed)["table8"].caption.endswith(end)
    assert tables.report_content(mixed).remarks[-1].startswith("Measured in several dtypes: Held-out text.")


def test_what_answered_the_calls_is_named() -> None:
    reader_of = {"qa": "Atlas (xxl)", "search": "BM25 by Lucene"}
    note = replace(NOTE, facts={"implementations": reader_of})
    other = replace(NOTE, facts={"implementations": {"qa": "a stand-in"}})
    scores = {
        (system, "nq"): Score(9.0, None, None, (run,), {"n": 9})
        for system, run in (("model", NOTE), ("model_cc", other), ("toolformer", note))
    }
    content = tables.report_content(Evidence(scores=scores))
    named = "Tools: Question Answering (a stand-in or Atlas (xxl)); Wikipedia Search (BM25 by Lucene)."
    assert content.remarks[0] == named and named in shown(Evidence(scores=scores))["table5"].caption


def test_an_annotation_that_found_nothing_is_read(tmp_path: Path) -> None:
    store = Runs()
    nothing = [(*row[:6], "no result", None) for row in ROWS]
    annotated(store, files=write_annotation(tmp_path, nothing))
    annotation = reader.read_evidence(store).annotation
    assert annotation and not annotation.examples and set(annotation.counts.values()) == {(0, 0)}


def test_long_texts_and_calls_are_cut() -> None:
    call = ApiCall("QA", "why").with_result("because " * 100)
    found = candidate_stats.passage("qa", "word " * 300, 500, call, 1.0, True)
    assert found.before.startswith("… word") and found.after.endswith("word …")
    assert max(len(found.before), len(found.after)) <= candidate_stats.CONTEXT + 2
    assert len(found.call) <= candidate_stats.LONGEST_CALL and found.call.endswith("…]")


def test_table_9_splits_scores_by_calls() -> None:
    """Its rows and their order are in the pinned report."""
    metrics = {"n": 100, "n_ac": 30, "score_ac": 12.0, "score_nc": 4.0}
    evidence = Evidence(by_k={(1, "svamp"): replace(SCORE, value=7.0, low=5.0, high=9.0, metrics=metrics)})
    ((_, *cells),) = table9(evidence).rows
    assert [f"{cell.text} {cell.detail}" for cell in cells] == [
        "7.0 [5.0, 9.0]",  # the evaluation's own
        *("12.0 [5.3, 29.7] n = 30", "4.0 [1.5, 11.9] n = 70", "30.0 [21.9, 39.6]"),  # Wilson: 4 of 30, ...
    ]
    full = table9(evidence, full=True)
    groups = dict.fromkeys(column.group for column in full.columns[1:])
    assert list(groups) == ["T-REx", "T-REx, paper", "WebQS", "WebQS, paper", "SVAMP"]
    assert [row[0].text for row in full.rows] == ["0", "1", "3", "10"]
    assert full.rows[0][5].text == "34.9" and full.rows[2][17].text == "–"


def test_tool_use_counts_calls_that_failed() -> None:
    failed = {"n_failed": 3.0, "n_failed/malformed call": 1.0, "n_failed/call not ended": 2.0}
    begun = {"n_results_begun": 4.0, "n_calls_in_calls": 0.0}
    scores = {
        ("toolformer", "svamp"): replace(SCORE, metrics={"n": 100, "call_share": 0.5, **failed, **begun}),
        ("toolformer", "nq"): replace(SCORE, metrics={"n": 100, "call_share": 0.5, "n_failed": 1.5}),
    }
    table = shown(Evidence(scores=scores))["tool_use"]
    labels = [column.label for column in table.columns]
    counted = [
        [(cell.text, cell.detail) for label, cell in zip(labels, row, strict=True) if label in LABELS]
        for row in table.rows
    ]
    assert counted == [
        [("3", "call not ended 2; malformed call 1"), ("4", ""), ("0", "")],
        [("1.5", ""), ("–", ""), ("–", "")],  # a mean over seeds; of a run that did not count the others
    ]


def test_tables_of_an_earlier_report_are_removed(tmp_path: Path) -> None:
    store = Runs()
    annotated(store, files=write_annotation(tmp_path))
    stale = [
        tmp_path / "out" / name for name in ("tables/table4.tex", "tables/table4.csv", "figures/old.svg")
    ]
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of an earlier report")
    build(store, "default", tmp_path / "out")
    assert not any(path.exists() for path in stale)
