"""Figures, cost, and paired significance: which samples of two evaluations pair, and which differences are more than chance."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.figure
import pytest

from tests.runs import NOTE, SCORE, scored, shown, write
from toolformer.errors import UserError
from toolformer.reporting import escape, figures, outcome_tables, plots, tables
from toolformer.reporting.data import Evidence, Score
from toolformer.reporting.pairing import (
    TaskComparison,
    Unpaired,
    compare_groups,
    compare_measures,
    compare_systems,
    corrected,
    is_significant,
    pair,
    read_samples,
)
from toolformer.reporting.table import Figure


def figure(evidence: Evidence, key: str) -> Figure:
    return next(one for one in figures.draw_figures(evidence) if one.key == key)


def panels(figure: Figure) -> list[Any]:
    """The axes of each panel, drawn."""
    drawn = [matplotlib.figure.Figure().add_subplot() for _ in figure.panels]
    for panel, axes in zip(figure.panels, drawn, strict=True):
        panel(axes)
    return drawn


def test_every_number_of_ours_leads_to_its_run_and_command(evidence: Evidence) -> None:
    """The pinned report shows the list of runs, the differences with their signs, the first sentence and the cost."""
    listed = {row[0].text for row in tables.runs(evidence).rows}
    for table in shown(evidence).values():
        for column, *cells in zip(table.columns[1:], *(row[1:] for row in table.rows), strict=True):
            numbers = [cell for cell in cells if cell.text not in ("", "–")]
            for cell in numbers if column.numeric and not column.paper else ():
                assert (cell.run or table.run) in listed, (table.key, column)
                assert (cell.command or table.command).startswith("toolformer "), (table.key, column)
    for row in outcome_tables.paired(evidence).rows:
        assert re.fullmatch(r"toolformer compare \w{8} \w{8}", row[2].command)


def test_figures_hold_their_data(evidence: Evidence) -> None:
    (bars,) = [axes for axes in panels(figure(evidence, "gains")) if axes.get_title() == "Calculator (4)"]
    assert sum(bar.get_height() for bar in bars.patches) == 4
    assert [text.get_text() for text in bars.texts] == ["τ_f = 1"]
    (sweep,) = panels(figure(evidence, "by_k"))
    assert [label.get_text() for label in sweep.get_xticklabels()] == ["0", "1", "10"]
    (axes,) = panels(figure(evidence, "figure4"))
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    assert axes.get_title() == "Math (SVAMP)" and axes.get_xscale() == "log"
    assert drawn["Toolformer"] == [[124e6, 37.5], [6.05e9, 100.0]]
    assert drawn["Toolformer, paper"] == [[6.7e9, 29.4]]
    (*_, trained_on) = panels(figure(evidence, "training"))
    curves = {line.get_label(): line.get_ydata().tolist() for line in trained_on.get_lines()}
    assert curves["results of C* (Toolformer)"][:3] == [9.0, 8.0, 7.0]
    files = plots.files(figure(evidence, "figure4"))
    assert set(files) == {"figure4.svg", "figure4.pdf"} and files["figure4.pdf"].startswith(b"%PDF")
    text = "".join(ElementTree.fromstring(files["figure4.svg"]).itertext())
    for label in (axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), *drawn):
        assert label in text
    assert "$" not in text, "ticks are plain numbers"
    assert evidence.annotation
    for baseline, formula in (("paper", "L⁻ − L⁺"), ("plain", "L(ε) − L⁺")):
        measured = replace(evidence, annotation=replace(evidence.annotation, baseline=baseline))
        calls = shown(measured)["table10"]
        assert formula in figure(measured, "gains").caption
        assert formula in calls.caption and calls.columns[1].label == formula


def test_any_name_of_a_benchmark_or_tool_can_be_drawn(evidence: Evidence) -> None:
    assert evidence.annotation
    name = "_bell\x07bell \ud800 $x_1$"
    annotation = replace(evidence.annotation, gains={name: evidence.annotation.gains["calculator"]})
    by_k = {(k, name): SCORE for k in (0, 10)}
    drawn = figures.draw_figures(Evidence(None, annotation, {("toolformer", name): SCORE}, by_k=by_k))
    assert [one.key for one in drawn] == ["overview", "by_k", "gains"]
    for one in drawn:
        drawn_text = "".join(ElementTree.fromstring(plots.files(one)[f"{one.key}.svg"]).itertext())
        assert escape.clean(name) in drawn_text


def text(number: int, log_likelihood: float, tokens: int | None = 4, sha: str = "") -> dict[str, Any]:
    row = {"id": str(number), "text_sha256": sha or f"s{number}", "log_likelihood": log_likelihood}
    return {**row, "tokens": tokens, "words": 4}


def compared(task: str, first: list[dict[str, Any]], second: list[dict[str, Any]]) -> TaskComparison | None:
    return compare_groups(task, [((0, 0), first)], [((0, 0), second)])


def test_samples_pair_by_what_was_asked(tmp_path: Path) -> None:
    first = [scored(1, 0), scored(2, 100), scored(3, 0), scored(4, 0), scored(4, 100)]
    second = [scored(4, 0, note="n"), scored(3, 100, "other"), scored(2, 0), scored(5, 0), scored(6, 0)]
    pairs, unpaired = pair(first, second)
    assert [(one["id"], two["id"]) for one, two in pairs] == [("2", "2"), ("4", "4")]
    assert unpaired == Unpaired(only_first=2, only_second=2, changed=1) and unpaired.total == 5
    assert pair(second, first)[1] == Unpaired(2, 2, 1)
    another_target = {**scored(2, 0), "target": ["7"]}
    assert pair([scored(2, 0)], [another_target]) == ([], Unpaired(changed=1))
    # The same words on another day are another question.
    monday, tuesday = (scored(1, 0, current_date=day) for day in ("2023-01-30", "2023-01-31"))
    assert pair([monday], [monday]) == ([(monday, monday)], Unpaired())
    assert pair([monday], [tuesday]) == ([], Unpaired(changed=1))
    files = {
        (system, "dateset"): [((0, 0), write(tmp_path / f"{system}.parquet", [row]))]
        for system, row in (("toolformer", monday), ("model", tuesday))
    }
    assert compare_systems(files) == {}


def test_nats_of_the_gold_answer_are_compared_beside_the_score() -> None:
    first = [scored(n, 0.0, gold_nats=3.0 + n % 3) for n in range(20)]
    second = [scored(n, 0.0, gold_nats=2.5 + n % 2) for n in range(20)]
    score, nats = compare_measures("svamp", [((0, 0), first)], [((0, 0), second)])
    assert score.task == "svamp" and score.comparison.p_value == 1.0
    assert nats.task == "svamp/gold_nats" and not nats.is_score
    assert nats.comparison.difference.value == pytest.approx(-0.95) and is_significant(nats)
    p = nats.comparison.p_value or 0
    assert [found.p_holm for found in corrected([score, nats])] == [1.0, pytest.approx(2 * p)]
    (alone,) = compare_measures("svamp", [((0, 0), first)], [((0, 0), [scored(n, 0.0) for n in range(20)])])
    assert alone.task == "svamp", "one side has none"


def of_seed(seed: int, first: int = 0) -> tuple[tuple[int, int], list[dict[str, Any]]]:
    return (seed, 0), [scored(n, 100.0 * ((n + seed) % 3 == 0)) for n in range(first, first + 30)]


def test_a_single_run_is_compared_with_every_other_run() -> None:
    found = compare_groups("svamp", [of_seed(0)], [of_seed(seed, 5) for seed in range(3)])
    assert found and found.comparison.n == 25 and found.seeds == (1, 3)
    assert found.unpaired == Unpaired(15, 15)


def test_groups_are_compared_on_the_seeds_that_both_have() -> None:
    found = compare_groups("svamp", [of_seed(0), of_seed(1)], [of_seed(1), of_seed(2), of_seed(0)])
    assert found and found.seeds == (2, 2) and found.comparison.difference.value == 0


def test_groups_without_a_common_seed_are_not_compared() -> None:
    assert compare_groups("svamp", [of_seed(0), of_seed(1)], [of_seed(2), of_seed(3)]) is None


def test_perplexity_is_per_token_or_per_word() -> None:
    first = [text(1, -8.0), text(2, -8.0)]
    same = compared("t", first, [text(1, -6.0), text(2, -6.0)])
    assert same and same.unit == "token" and same.comparison.first == pytest.approx(2.718281828**2)
    other = compared("wikitext_perplexity", first, [text(1, -6.0, 5), text(2, -6.0, None)])
    assert other and other.unit == "word"
    score = Score(15.0, 14.0, 16.0, (NOTE,), {})
    scores = {(system, other.task): score for system in ("model", "toolformer_disabled")}
    evidence = Evidence(scores=scores, paired={(other.task, "toolformer_disabled", "model"): other})
    (row,) = outcome_tables.paired(evidence).rows
    assert row[2].detail.endswith("n = 2 a word")
    assert compared("t", first, [text(1, -6.0, sha="x")]) is None


def test_earlier_answer_files_are_read_others_refused(tmp_path: Path) -> None:
    (row,) = read_samples(write(tmp_path / "a.parquet", [scored(1, 0.0)]), ["seconds"])
    assert row["seconds"] is None and row["current_date"] is None and row["score"] == 0.0
    (tmp_path / "text").write_text("no parquet")
    for path in (tmp_path / "none", tmp_path / "text", write(tmp_path / "b.parquet", [{"score": 1.0}])):
        with pytest.raises(UserError, match="holds no samples"):
            read_samples(path)
