"""Figures, paired significance and cost, from real runs with samples."""

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import matplotlib.figure

from tests.reporting.conftest import NOTE
from toolformer.reporting import escape, figures, outcome_tables, plots, tables
from toolformer.reporting.data import Evidence, Score
from toolformer.reporting.pairing import PAIRS
from toolformer.reporting.table import Figure

SCORE = Score(15.0, 14.0, 16.0, (NOTE,), {"n": 100})


def figure(evidence: Evidence, key: str) -> Figure:
    return next(one for one in figures.figures(evidence) if one.key == key)


def panels(figure: Figure) -> list[Any]:
    """The axes of each panel, drawn."""
    drawn = [matplotlib.figure.Figure().add_subplot() for _ in figure.panels]
    for panel, axes in zip(figure.panels, drawn, strict=True):
        panel(axes)
    return drawn


def test_every_number_of_ours_leads_to_its_run_and_command(evidence: Evidence) -> None:
    """The pinned report shows the list of runs, the differences with their signs, the first sentence and the cost."""
    listed = {row[0].text for row in tables.runs(evidence).rows}
    for table in tables.content(evidence).tables:
        for row in table.rows:
            for column, cell in zip(table.columns[1:], row[1:], strict=True):
                if column.numeric and not column.paper and cell.text not in ("", "–"):
                    place = (table.key, column.label)
                    assert (cell.run or table.run) in listed, place
                    assert (cell.command or table.command).startswith("toolformer "), place
    (row,) = outcome_tables.paired(evidence).rows
    assert re.fullmatch(r"toolformer compare \w{8} \w{8}", row[1].command)
    against = {("svamp", *PAIRS[0]): evidence.paired["svamp", "toolformer_disabled", "model"]}
    against["nq", *PAIRS[0]] = evidence.paired["svamp", *PAIRS[0]]
    chance = outcome_tables.headline(Evidence(paired=against))
    assert "p = 1.000 (corrected 1.000), n = 40: no difference is shown" in chance
    assert chance.endswith("Toolformer is better on 1, worse on 0, and on 1 no difference is shown.")
    assert outcome_tables.headline(Evidence()) == ""


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
    files = plots.files(figure(evidence, "figure4"))
    assert set(files) == {"figure4.svg", "figure4.pdf"} and files["figure4.pdf"].startswith(b"%PDF")
    text = "".join(ElementTree.fromstring(files["figure4.svg"]).itertext())
    for label in (axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), *drawn):
        assert label in text
    assert "$" not in text, "ticks are plain numbers"
    assert evidence.annotation
    for baseline, formula in (("paper", "L⁻ − L⁺"), ("plain", "L(ε) − L⁺")):
        measured = replace(evidence, annotation=replace(evidence.annotation, baseline=baseline))
        content = tables.content(measured)
        assert formula in figure(measured, "gains").caption
        (calls,) = (table for table in content.tables if table.key == "table10")
        assert formula in calls.caption and calls.columns[1].label == formula


def test_any_name_of_a_benchmark_or_tool_can_be_drawn(evidence: Evidence) -> None:
    assert evidence.annotation
    name = "_bell\x07bell \ud800 $x_1$"
    annotation = replace(evidence.annotation, gains={name: evidence.annotation.gains["calculator"]})
    by_k = {(k, name): SCORE for k in (0, 10)}
    drawn = figures.figures(Evidence(None, annotation, {("toolformer", name): SCORE}, by_k=by_k))
    assert [one.key for one in drawn] == ["overview", "by_k", "gains"]
    for one in drawn:
        drawn_text = "".join(ElementTree.fromstring(plots.files(one)[f"{one.key}.svg"]).itertext())
        assert escape.clean(name) in drawn_text
