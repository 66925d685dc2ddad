"""Figures, paired significance and cost, from real runs with samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.figure
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.paired import mcnemar
from tests.reporting.conftest import accuracy, write_annotation
from tests.reporting.memory import NOTE, Memory
from tests.reporting.test_pairing import text
from toolformer.reporting import escape, figures, outcome_tables, plots, reader, tables
from toolformer.reporting.data import Evidence, Score
from toolformer.reporting.pairing import BASELINE, compare_task
from toolformer.reporting.table import Figure

SCORE = Score(15.0, 14.0, 16.0, 100, None, {}, NOTE)
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
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def evaluated(
    tracker: Memory, folder: Path, model: str, system: str, scores: Sequence[float], k: int = 10
) -> None:
    """An evaluation on SVAMP with its samples."""
    n = len(scores)
    calls = n // 2 if system == "toolformer" and k else 0
    own = {"seconds": 0.5 * n, "tokens_per_second": 8.0, "n_ac": calls, "score_nc": 1.0}
    metrics = accuracy("svamp", sum(scores) / n, n) | {"parameters": SIZES[model]}
    metrics |= {f"svamp/{name}": value for name, value in own.items()}
    tags = {"system": system, "decoding.k": str(k)} | ({"baseline": model} if system == "baseline" else {})
    path = folder / f"{system}{k}{model[:4]}" / "svamp.parquet"
    with tracker.run(stage="evaluate", config={"model": model}, tags=tags) as run:
        run.metrics(metrics)
        run.artifact(samples(path, scores, "Calculator" if calls else None), "samples")


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    root = tmp_path_factory.mktemp("figures")
    tracker = Memory()
    config = {"tool": {"calculator": {"filter_threshold": 1.0}, "qa": {"filter_threshold": 1.0}}}
    with tracker.run(stage="generate", config=config) as run:
        for file in write_annotation(root):
            run.artifact(file)
    with tracker.run(stage="train", config={"model": "gpt2"}, tags={"data": "augmented"}) as run:
        for step, loss in ((1, 3.0), (2, 2.5), (3, 2.25)):
            run.metrics({"loss": loss, "perplexity_texts": 20.0 - step}, step=step)
        for step, value in ((0, 50.0), (3, 40.0)):
            run.metrics({"heldout_perplexity": value}, step=step)
        run.metrics({"train_tokens": 512})
    wrong, right = [0.0] * 40, [0.0] * 25 + [100.0] * 15
    evaluated(tracker, root, "gpt2", "model", wrong)
    evaluated(tracker, root, "gpt2", "toolformer_disabled", [100.0, *wrong[1:]])
    evaluated(tracker, root, "gpt2", "toolformer", right)
    evaluated(tracker, root, "gpt2", "toolformer", wrong, k=0)
    evaluated(tracker, root, "gpt2", "toolformer", right[:30] + wrong[:10], k=1)
    evaluated(tracker, root, "EleutherAI/gpt-j-6B", "toolformer", [100.0] * 40)
    evaluated(tracker, root, "large", "baseline", [100.0] * 40)
    return reader.read(tracker)


def figure(evidence: Evidence, key: str) -> Figure:
    return next(one for one in figures.figures(evidence) if one.key == key)


def panels(figure: Figure) -> list[Any]:
    """The axes of each panel, drawn."""
    drawn = [matplotlib.figure.Figure().add_subplot() for _ in figure.panels]
    for panel, axes in zip(figure.panels, drawn, strict=True):
        panel(axes)
    return drawn


def test_the_tables_hold_one_model_and_figure_4_all(evidence: Evidence) -> None:
    assert evidence.model == "gpt2" and evidence.scores["toolformer", "svamp"].value == 37.5
    (axes,) = panels(figure(evidence, "figure4"))
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    assert axes.get_title() == "Math (SVAMP)" and axes.get_xscale() == "log"
    assert drawn["Toolformer"] == [[124e6, 37.5], [6.05e9, 100.0]]
    assert drawn["Toolformer, paper"] == [[6.7e9, 29.4]]


def test_differences_are_paired_and_marked(evidence: Evidence) -> None:
    found = evidence.paired["svamp", "toolformer", "model"].scores
    assert found is not None and (found.n, found.only_first, found.only_second) == (40, 0, 15)
    assert found.p_value == mcnemar(0, 15) and found.difference.value == 37.5
    assert outcome_tables.signs(evidence, "toolformer", "svamp") == "†‡"
    assert outcome_tables.signs(evidence, "toolformer_disabled", "svamp") == ""
    assert outcome_tables.signs(evidence, BASELINE + "large", "svamp") == "†‡"
    (math,) = [one for one in tables.content(evidence).tables if one.key == "table4"]
    (large,) = [row for row in math.rows if row[0].text == "large"]
    assert [cell.signs for cell in large if cell.text == "100.0"] == ["†‡"]
    (row,) = outcome_tables.paired(evidence).rows
    assert [cell.text for cell in row][1:5] == ["+35.0", "15", "1", "< 0.001"] and row[4].bold


def test_every_run_behind_a_figure_is_listed(evidence: Evidence) -> None:
    listed = sorted((row[1].text, row[2].text, row[3].text) for row in tables.runs(evidence).rows)
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


def test_figures_hold_their_data_and_are_drawn_alike_twice(evidence: Evidence) -> None:
    (bars,) = [axes for axes in panels(figure(evidence, "gains")) if axes.get_title() == "Calculator (4)"]
    assert sum(bar.get_height() for bar in bars.patches) == 4
    assert [text.get_text() for text in bars.texts] == ["τ_f = 1"]
    (sweep,) = panels(figure(evidence, "by_k"))
    assert [label.get_text() for label in sweep.get_xticklabels()] == ["0", "1", "10"]
    for one in (figure(evidence, "figure4"), figure(evidence, "gains")):
        first, second = plots.files(one), plots.files(one)
        assert first == second and set(first) == {f"{one.key}.svg", f"{one.key}.pdf"}
        assert first[f"{one.key}.pdf"].startswith(b"%PDF")
        text = "".join(ElementTree.fromstring(first[f"{one.key}.svg"]).itertext())
        for axes in panels(one):
            labels = axes.get_legend_handles_labels()[1]
            for label in (axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), *labels):
                assert label in text
        assert "$" not in text, "ticks are plain numbers"


@pytest.mark.parametrize("name", ["_hidden", "bell\x07bell", "\ud800", "$x_1$"])
def test_any_name_of_a_benchmark_or_tool_can_be_drawn(evidence: Evidence, name: str) -> None:
    assert evidence.annotation
    annotation = replace(evidence.annotation, gains={name: evidence.annotation.gains["calculator"]})
    by_k = {(k, name): SCORE for k in (0, 10)}
    drawn = figures.figures(Evidence(None, annotation, {("toolformer", name): SCORE}, by_k=by_k))
    assert [one.key for one in drawn] == ["overview", "by_k", "gains"]
    for one in drawn:
        inline = plots.inline(plots.files(one)[f"{one.key}.svg"], one.key, name)
        assert escape.clean(name) in "".join(ElementTree.fromstring(inline).itertext())


@pytest.mark.parametrize(("baseline", "formula"), [("paper", "L⁻ − L⁺"), ("plain", "L(ε) − L⁺")])
def test_captions_name_the_gain_that_was_measured(evidence: Evidence, baseline: str, formula: str) -> None:
    assert evidence.annotation
    evidence = replace(evidence, annotation=replace(evidence.annotation, baseline=baseline))
    content = tables.content(evidence)
    assert formula in figure(evidence, "gains").caption
    assert formula in content.passages_caption and content.gain == formula


def test_a_difference_of_perplexities_says_of_what() -> None:
    first = [text(n, -8.0 - n % 3) for n in range(9)]
    second = [{**text(n, -4.0 - n % 2), "tokens": 5} for n in range(9)]  # another tokenizer
    found = compare_task("wikitext_perplexity", first, second, 0, 100)
    assert found
    scores = {(system, found.task): SCORE for system in ("model", "toolformer_disabled")}
    evidence = Evidence(scores=scores, paired={(found.task, "toolformer_disabled", "model"): found})
    (row,) = outcome_tables.paired(evidence).rows
    assert row[6].detail.endswith("n = 9 a word")


def test_a_benchmark_of_ones_own_is_listed_where_tools_are_counted() -> None:
    own = replace(SCORE, n=20, call_share=0.25, tool_shares={"moons": 0.25})
    table = outcome_tables.tool_use(Evidence(scores={("toolformer", "moons_quiz"): own}))
    (row,) = (cells for cells in table.rows if cells[0].text == "moons_quiz")
    index = [column.label for column in table.columns].index("moons")
    assert row[1].text == row[index].text == "25.0"
