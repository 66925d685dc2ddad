"""Figures, paired significance and cost, from real runs with samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.paired import mcnemar
from tests.reporting.conftest import accuracy, write_annotation
from toolformer.annotation import merge
from toolformer.reporting import Report, build, outcome_tables, page, plots, reader, tables, viewer
from toolformer.reporting.evidence import Evidence
from toolformer.reporting.layout import Figure
from toolformer.reporting.significance import baseline_key
from toolformer.tracking import Tracker

SIZES = {"gpt2": 124e6, "EleutherAI/gpt-j-6B": 6.05e9, "tiny": 2e6, "large": 66e9}
HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>"


def samples(path: Path, scores: Sequence[float], tool: str | None = None) -> Path:
    """A file of samples as an evaluation writes it."""
    rows = [
        {"id": f"q{number}", "prompt": f"Question {number}? {HOSTILE}", "target": ["yes", HOSTILE]}
        | {"completion": f" [{tool}(1 + 1) -> 2] {HOSTILE}" if tool else " no", "tool": tool}
        | {"call_input": "1 + 1" if tool else None, "call_result": "2" if tool else None, "failed": None}
        | {"prediction": "no", "score": score, "tokens": 4, "seconds": 0.5}
        for number, score in enumerate(scores)
    ]
    texts = ("tool", "call_input", "call_result", "failed")
    kinds: dict[str, Any] = {"id": pa.string(), "prompt": pa.string(), "target": pa.list_(pa.string())}
    kinds |= {"completion": pa.string(), **{name: pa.string() for name in texts}, "prediction": pa.string()}
    kinds |= {"score": pa.float64(), "tokens": pa.int64(), "seconds": pa.float64()}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items()))), path)
    return path


def evaluated(
    tracker: Tracker, folder: Path, model: str, system: str, scores: Sequence[float], k: int = 10
) -> str:
    """An evaluation on SVAMP with its samples."""
    n = len(scores)
    metrics = accuracy("svamp", sum(scores) / n, n) | {
        "svamp/seconds": 0.5 * n,
        "svamp/tokens_per_second": 8.0,
    }
    calls = n // 2 if system == "toolformer" and k else 0
    metrics |= {
        "svamp/n_ac": calls,
        "svamp/n_nc": n - calls,
        "svamp/score_nc": 1.0,
        "parameters": SIZES[model],
    }
    tags = {"system": system, "decoding.k": str(k)} | ({"baseline": model} if system == "baseline" else {})
    file = samples(
        folder / f"{system}{k}{model[:4]}" / "svamp.parquet", scores, "Calculator" if calls else None
    )
    finger = f"{model}{system}{k}"
    with tracker.run(
        stage="evaluate", name="e", fingerprint=finger, config={"model": model}, tags=tags
    ) as run:
        run.metrics(metrics)
        run.artifact(file, "samples")
    return run.run_id


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    root = tmp_path_factory.mktemp("figures")
    tracker = Tracker(None, root / "runs")
    config = {"tool": {"calculator": {"filter_threshold": 1.0}, "qa": {"filter_threshold": 1.0}}}
    with tracker.run(stage="generate", name="g", fingerprint="g", config=config) as run:
        for file in write_annotation(root):
            run.artifact(file)
    with tracker.run(
        stage="train", name="t", fingerprint="t", config={"model": "gpt2"}, tags={"data": "augmented"}
    ) as run:
        for step, loss in ((1, 3.0), (2, 2.5), (3, 2.25)):
            run.metrics({"loss": loss, "perplexity_texts": 20.0 - step}, step=step)
        for step, value in ((0, 50.0), (3, 40.0)):
            run.metrics({"heldout_perplexity": value}, step=step)
        run.metrics(
            {"heldout_perplexity": 40.0, "train_tokens": 512}
        )  # as earlier versions did: at step 0 once more
    wrong, right = [0.0] * 40, [0.0] * 25 + [100.0] * 15
    for system, scores in (
        ("model", wrong),
        ("toolformer_disabled", [100.0, *wrong[1:]]),
        ("toolformer", right),
    ):
        evaluated(tracker, root, "gpt2", system, scores)
    for k in (0, 1):
        evaluated(tracker, root, "gpt2", "toolformer", wrong if k == 0 else right[:30] + wrong[:10], k)
    evaluated(tracker, root, "EleutherAI/gpt-j-6B", "toolformer", [100.0] * 40)
    evaluated(tracker, root, "large", "baseline", [100.0] * 40)
    return reader.read(tracker)


def figure(evidence: Evidence, key: str) -> Figure:
    from toolformer.reporting.figures import figures

    return next(one for one in figures(evidence) if one.key == key)


def test_the_tables_hold_one_model_and_figure_4_all(evidence: Evidence) -> None:
    assert evidence.model == "gpt2" and evidence.scores["toolformer", "svamp"].value == 37.5
    assert "EleutherAI/gpt-j-6B was measured too" in " ".join(evidence.remarks)
    (panel,) = figure(evidence, "figure4").panels
    drawn = {one.name: one for one in panel.series}
    assert panel.title == "Math (SVAMP)" and panel.x.logarithmic
    assert drawn["Toolformer"].x == (124e6, 6.05e9) and drawn["Toolformer"].y == (37.5, 100.0)
    assert drawn["Toolformer, paper"].x == (6.05e9,)  # where ours of that name stands
    assert drawn["Toolformer, paper"].y == (29.4,) and drawn["GPT-3 (175B)"].y == (10.0, 10.0)


def test_differences_are_paired_and_marked(evidence: Evidence) -> None:
    found = evidence.paired["svamp", "toolformer", "model"].scores
    assert found is not None and (found.n, found.only_first, found.only_second) == (40, 0, 15)
    assert found.p_value == mcnemar(0, 15) and found.difference.value == 37.5
    assert outcome_tables.signs(evidence, "toolformer", "svamp") == "†‡"
    assert outcome_tables.signs(evidence, "toolformer_disabled", "svamp") == ""
    assert outcome_tables.signs(evidence, baseline_key("large"), "svamp") == "†‡"
    (math,) = [one for one in tables.content(evidence).tables if one.key == "table4"]
    (large,) = [row for row in math.rows if row[0].text == "large"]
    assert [cell.signs for cell in large if cell.text == "100.0"] == ["†‡"]
    (row,) = outcome_tables.paired(evidence).rows
    assert [cell.text for cell in row][1:5] == ["+35.0", "15", "1", "< 0.001"] and row[4].bold


def test_every_run_behind_a_figure_is_listed(evidence: Evidence) -> None:
    listed = sorted((row[1].text, row[2].text, row[3].text) for row in tables.content(evidence).runs.rows)
    assert listed == [
        ("evaluate", "M", "SVAMP"),
        ("evaluate", "Toolformer", "Figure 4"),  # of the other size
        ("evaluate", "Toolformer", "SVAMP, Table 9, Figure 4"),
        ("evaluate", "Toolformer", "Table 9"),
        ("evaluate", "Toolformer", "Table 9"),
        ("evaluate", "Toolformer (disabled)", "SVAMP, Figure 4"),
        ("evaluate", "baseline", "SVAMP"),
        ("generate", "", "Table 2, Table 10, Annotation"),
        ("train", "augmented", "Training"),
    ]


def test_cost_is_counted(evidence: Evidence) -> None:
    rows = {row[0].text: row for row in outcome_tables.cost(evidence).rows}
    assert [cell.text for cell in rows["Toolformer"][5:]] == ["40", "20", "20", "160"]
    assert rows["Toolformer"][4].text == "512" and rows["M"][1].text == ""
    assert rows["M + CC"][5].mark


def test_curves_leave_the_summary_of_earlier_versions_out(evidence: Evidence) -> None:
    curves = {one.metric: one.points for one in evidence.curves}
    assert curves["heldout_perplexity"] == ((0, 50.0), (3, 40.0)) and len(curves["loss"]) == 3


def test_gains_are_binned_and_the_sweep_drawn(evidence: Evidence) -> None:
    panels = {one.title: one for one in figure(evidence, "gains").panels}
    assert sum(panels["Calculator (4)"].series[0].y) == 4
    assert (1.0, "τ_f = 1") in panels["Calculator (4)"].marks
    (sweep,) = figure(evidence, "by_k").panels
    assert [label for _, label in sweep.x.ticks] == ["0", "1", "10"]
    assert sum(len(one.x) for one in figure(evidence, "starts").panels[0].series) == 9


def test_a_figure_is_drawn_twice_alike_without_a_browser(evidence: Evidence) -> None:
    for one in (figure(evidence, "figure4"), figure(evidence, "starts")):
        first, second = plots.files(one), plots.files(one)
        assert first == second and set(first) == {f"{one.key}.svg", f"{one.key}.pdf"}
        text = "".join(ElementTree.fromstring(first[f"{one.key}.svg"]).itertext())
        assert all(series.name in text for series in one.panels[0].series)
        assert first[f"{one.key}.pdf"].startswith(b"%PDF")
        drawn = plots.plotly_json(one)
        assert [len(panel["data"]) for panel in drawn] == [len(panel.series) for panel in one.panels]


def test_without_data_a_figure_names_its_command(empty: Tracker) -> None:
    bare = reader.read(empty)
    command = "toolformer run experiment=figure4 corpus.path=DIR heldout.path=DIR paths.data_dir=DIR"
    assert figure(bare, "figure4").footnotes[0].command == command
    assert (
        figure(bare, "training").footnotes[0].command
        == "toolformer generate && toolformer train data=augmented"
    )
    assert viewer.data(bare) is None


def test_figure_4_says_why_it_is_not_there_where_two_sizes_were_measured(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path)
    for model, task, tools in (("gpt2", "svamp", ["qa"]), ("EleutherAI/gpt-j-6B", "asdiv", ["calculator"])):
        config = {"model": model, "tools": tools}
        tags = {"system": "toolformer", "decoding.k": "10"}
        with tracker.run(stage="evaluate", name="e", fingerprint=model, config=config, tags=tags) as run:
            run.metrics(accuracy(task, 5.0, 10) | {"parameters": SIZES[model]})
    found = reader.read(tracker)
    (note,) = figure(found, "figure4").footnotes
    assert "or share no benchmark with the same tools" in note.text
    assert not any("Figure 4" in one for one in found.remarks), found.remarks


def test_the_words_of_reasons_are_those_of_the_filter() -> None:
    assert (viewer.BELOW, viewer.BEATEN, viewer.NO_GAIN) == (merge.BELOW, merge.BEATEN, merge.NO_GAIN)


def test_candidates_have_their_decision(evidence: Evidence) -> None:
    assert evidence.annotation is not None
    found = viewer.annotated(evidence.annotation)
    assert found is not None and found["total"] == 10
    rows = {
        (found["documents"][row["document"]]["id"], row["position"], row["sample"]): row
        for row in found["rows"]
    }
    assert rows["math", 77, 0]["kept"] and rows["math", 77, 0]["reason"] == ""
    assert rows["math", 77, 1]["reason"] == merge.BEATEN and rows["math", 60, 0]["reason"] == merge.BELOW
    assert rows["nile", 37, 1]["reason"] == "no result" and rows["nile", 37, 1]["gain"] is None
    texts = {one["id"]: one["text"] for one in found["documents"]}
    assert texts["lost"] is None and texts["nile"].startswith("The Nile")
    fewer = viewer.annotated(evidence.annotation, limit=4)
    assert fewer is not None and 0 < len(fewer["rows"]) < 10 and fewer["total"] == 10


def test_answers_of_the_same_question_stand_together(evidence: Evidence) -> None:
    (task,) = viewer.questions(evidence.sampled)
    assert task["total"] == 40 and len(task["runs"]) == 7
    titles = [one["title"] for one in task["runs"]]
    assert titles[0] == "M" and "Toolformer, k = 1" in titles and "Toolformer, EleutherAI/gpt-j-6B" in titles
    assert all(None not in row["answers"] for row in task["rows"])


def test_only_the_files_that_are_used_are_fetched_and_only_their_drawn_rows_read(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Watched(dict[str, Path]):
        def get(self, task: str, default: Any = None) -> Any:
            fetched.append(task)
            return super().get(task, default)

    fetched: list[str] = []
    read: list[int] = []
    monkeypatch.setattr(viewer, "_answer", lambda row: read.append(1))
    path = evidence.sampled[0].files["svamp"]
    runs = [
        viewer.Sampled(str(n), "M", "M", Watched(svamp=path, wikitext_perplexity=path))
        for n in range(viewer.RUNS + 5)
    ]
    (task,) = viewer.questions(runs, limit=10)
    assert fetched == ["svamp"] * viewer.RUNS and len(task["rows"]) == 10
    assert len(read) == 10 * viewer.RUNS


def test_nothing_in_the_data_ends_its_script(evidence: Evidence) -> None:
    data = viewer.data(evidence)
    assert data is not None
    text = page.json_in_script(data)
    assert (
        not set("<>&\u2028\u2029") & set(text)
        and HOSTILE in json.loads(text)["questions"][0]["rows"][0]["prompt"]
    )
    html = page.samples_html(HOSTILE, data)
    assert html.count("<script") == html.count("</script>") == 2 and "<img" not in html


def test_the_report_refers_to_its_figures(evidence: Evidence, tracker: Tracker, tmp_path: Path) -> None:
    report: Report = build(tracker, "default", tmp_path)
    for name in ("gains", "starts", "overview"):
        assert f"(figures/{name}.svg)" in report.markdown.read_text(encoding="utf-8")
        assert f"{{figures/{name}.pdf}}" in report.latex.read_text(encoding="utf-8")
