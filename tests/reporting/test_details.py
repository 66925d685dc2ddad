"""What is printed beside the figures, and what odd names do to them. No store."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.reporting.conftest import write_annotation
from tests.reporting.test_significance import text
from toolformer.reporting import candidates, outcome_tables, page, plots, render, tables
from toolformer.reporting.evidence import Annotation, Evidence, Gains, RunNote, Score
from toolformer.reporting.figures import gains
from toolformer.reporting.layout import Axis, Figure, Panel, Series
from toolformer.reporting.pairing import compare_task

NOTE = RunNote("r" * 32, "generate", "", "c", "2026-01-01", "cpu")
SCORE = Score(15.0, 14.0, 16.0, 100, None, {}, NOTE)


def drawn(name: str) -> Figure:
    axis = Axis("x", ticks=((0.0, "zero"), (1.0, "one")))
    series = (
        Series(name, (0.0, 1.16), (2.0, 3.5), low=(1.0, 3.0), high=(3.0, 4.0)),
        Series("b", (0.0,), (1.0,)),
    )
    cloud = Series("cloud", (0.1, 0.9), (5.0, 7.0), "cloud")
    return Figure("odd", "Figure", "Odd", (Panel("a", axis, Axis("y"), (*series, cloud)),), "A caption")


@pytest.mark.parametrize("name", ["_hidden", "bell\x07bell", "\ud800"])
def test_any_name_can_be_drawn(name: str) -> None:
    svg = plots.files(drawn(name))["odd.svg"]
    assert render.clean(name) in "".join(ElementTree.fromstring(svg).itertext())
    assert plots.plotly_json(drawn(name))[0]["data"][0]["name"] == render.clean(name)


def test_a_figure_has_its_values_as_text_and_a_file_without_scripts() -> None:
    content = replace(tables.content(Evidence(None, None, {}, {})), figures=(drawn("a <b>"),))
    html = page.html(content)
    assert page._values(drawn("a"))[1] == ("a", "a", "one", "3.5", "3", "4")
    assert page._values(drawn("a"))[-1] == ("a", "cloud (2 points)", "0.1 to 0.9", "5 to 7", "", "")
    assert '<td>a &lt;b&gt;</td><td class="n">one</td>' in html and 'role="figure"' in html
    (without,) = re.findall(r"<noscript>(.*?)</noscript>", html, re.S)
    assert 'href="figures/odd.svg"' in without


def test_both_pages_have_one_head() -> None:
    heads = [
        re.split(r"<title>", html)[0]
        for html in (
            page.html(tables.content(Evidence(None, None, {}, {}))),
            page.samples_html("x", {"candidates": None, "questions": None}),
        )
    ]
    bare = {re.sub(r'content="default-src[^"]*"', "", head) for head in heads}
    assert len(bare) == 1 and all('name="color-scheme"' in head for head in heads)


def test_a_difference_of_perplexities_says_of_what() -> None:
    first = [text(n, -8.0 - n % 3) for n in range(9)]
    second = [{**text(n, -4.0 - n % 2), "tokens": 5} for n in range(9)]  # another tokenizer
    found = compare_task("wikitext_perplexity", first, second, 0, 100)
    assert found
    scores = {(system, found.task): SCORE for system in ("model", "toolformer_disabled")}
    evidence = Evidence(None, None, scores, {}, paired={(found.task, "toolformer_disabled", "model"): found})
    (row,) = outcome_tables.paired(evidence).rows
    assert row[5].detail.endswith("n = 9 a word")


@pytest.mark.parametrize(("baseline", "formula"), [("paper", "L⁻ − L⁺"), ("plain", "L(ε) − L⁺")])
def test_captions_name_the_gain_that_was_measured(baseline: str, formula: str) -> None:
    shown = {"qa": Gains((1,), 1.0, ())}
    annotation = Annotation(NOTE, {}, {}, (), gains=shown, edges=(0.0, 1.0), baseline=baseline)
    evidence = Evidence(None, annotation, {}, {})
    figure = gains(evidence)
    content = tables.content(evidence)
    assert (
        figure
        and formula in figure.caption
        and formula in content.passages_caption
        and content.gain == formula
    )


@pytest.mark.parametrize("baseline", ["paper", "plain"])
def test_what_the_filter_drops_is_not_counted(tmp_path: Path, baseline: str) -> None:
    path = write_annotation(tmp_path)[0]
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[0]["loss_no_result"] = float("nan")
    rows[4]["loss_no_result"] = None
    whole = len(candidates.scored(path, baseline))
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    assert len(candidates.scored(path, baseline)) == whole - 2


def test_perplexities_are_no_answers() -> None:
    scores = {("model", "svamp"): SCORE, ("model", "wikitext_perplexity"): SCORE}
    assert tables.facts(Evidence(None, None, scores, {})) == (("1", "benchmarks"), ("100", "answers scored"))


@pytest.mark.parametrize("address", ["www.example.org", "https://example.org", "@somebody", "a@example.org"])
def test_markdown_makes_no_links_of_its_own(address: str) -> None:
    shown = render.markdown_text(address)
    assert shown != address and shown.replace("<!-- -->", "") == address


def test_a_benchmark_of_ones_own_is_told_of_where_tools_are_counted() -> None:
    own = replace(SCORE, n=20, call_share=0.25, tool_shares={"moons": 0.25})
    found = outcome_tables.tool_use(Evidence(None, None, {("toolformer", "moons_quiz"): own}, {}))
    (row,) = (cells for cells in found.rows if cells[0].text == "moons_quiz")
    place = [column.label for column in found.columns].index("moons")
    assert row[1].text == row[place].text == "25.0"
