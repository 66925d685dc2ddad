"""The report's tables, from real runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from toolformer.errors import UserError
from toolformer.reporting import Report, annotation_tables, build
from toolformer.reporting.evidence import Example
from toolformer.reporting.layout import Cell, Table
from toolformer.tracking import Tracker


def table(report: Report, key: str) -> Table:
    return next(one for one in (report.content.runs, *report.content.tables) if one.key == key)


def row(report: Report, key: str, label: str) -> tuple[Cell, ...]:
    return next(cells for cells in table(report, key).rows if cells[0].text == label)


def test_ours_stand_beside_the_papers(report: Report) -> None:
    cells = row(report, "table4", "Toolformer")
    assert [cell.text for cell in cells] == ["Toolformer", "–", "40.4", "12.3", "29.4", "–", "44.0"]
    assert cells[3].detail == "[10.3, 14.3]"
    assert [column.paper for column in table(report, "table4").columns] == [False] + [False, True] * 3
    assert [column.group for column in table(report, "table4").columns][1::2] == ["ASDiv", "SVAMP", "MAWPS"]
    assert [cells[0].text for cells in table(report, "table4").rows] == [
        "M",
        "M + CC",
        "Toolformer (disabled)",
        "Toolformer",
        "OPT (66B)",
        "GPT-3 (175B)",
    ]
    assert row(report, "table4", "OPT (66B)")[1] == Cell()  # nothing of ours to be filled
    assert row(report, "table7", "M")[0].detail == "(paper: GPT-J)"


def test_n_is_in_the_head_where_it_is_one_and_in_the_cells_where_it_is_not(report: Report) -> None:
    assert table(report, "table4").columns[3].detail == "n = 1,000"
    dateset = table(report, "table7").columns[3]
    assert dateset.group == "Dateset" and dateset.detail == ""
    assert row(report, "table7", "M")[3].detail == "[1.0, 5.0] n = 9,400"


def test_the_best_of_ours_is_bold_ties_too(report: Report) -> None:
    def bold(key: str, column: int) -> list[str]:
        return [cells[0].text for cells in table(report, key).rows if cells[column].bold]

    assert bold("table4", 3) == ["Toolformer"]
    assert bold("table4", 1) == []
    assert bold("table8", 1) == ["M", "Toolformer (disabled)"]  # lower is better, 20.50 twice
    assert not any(cell.bold for cells in table(report, "table4").rows for cell in cells[2::2])


def test_a_missing_figure_names_the_command_that_fills_it(report: Report) -> None:
    cell = row(report, "table4", "M + CC")[3]
    notes = {note.mark: note for note in table(report, "table4").footnotes}
    assert cell.text == "–"
    assert notes[cell.mark].command == (
        "toolformer evaluate name=default system=model_cc 'benchmarks=[asdiv,svamp,mawps]'"
    )
    assert row(report, "table4", "M + CC")[1].mark == cell.mark
    missing = row(report, "table2", "Machine Translation")[2]
    (note,) = table(report, "table2").footnotes
    assert (
        missing.text == "–"
        and note.command.startswith("toolformer generate ")
        and "translation" in note.command
    )
    # The annotation shown is the one behind the scores: they have to follow it.
    steps = [shlex.split(step)[1:] for step in note.command.split(" && ")]
    generate, *made = steps
    with_tools = "tools=[qa,search,calculator,calendar,translation]"
    assert generate[0] == "generate" and {step[0] for step in made} == {"train", "evaluate"}
    trained = [step for step in made if step[0] == "train"]
    assert [step[-2:] for step in trained] == [
        [f"data={data}", with_tools] for data in ("augmented", "plain")
    ]
    assert all(with_tools in step for step in steps)
    assert not any(word.startswith(("dataset=", "checkpoint=")) for step in steps for word in step)
    absent = row(report, "table7", "M")[1]
    (note, *_) = table(report, "table7").footnotes
    assert absent.text == "–" and note.command.endswith("system=model 'benchmarks=[templama]'")


def test_without_runs_every_figure_of_ours_is_a_dash_and_the_commands_start_at_the_beginning(
    bare: Report,
) -> None:
    for key in ("table4", "table8"):
        for cells in table(bare, key).rows[:3]:
            assert {cell.text for cell in cells[1::2]} == {"–"}
    commands = [note.command for note in table(bare, "table4").footnotes]
    assert commands[0] == "toolformer evaluate system=model 'benchmarks=[asdiv,svamp,mawps]'"
    assert commands[1] == (
        "toolformer generate && toolformer train data=plain && "
        "toolformer evaluate system=model_cc 'benchmarks=[asdiv,svamp,mawps]'"
    )
    assert "data=augmented" in commands[3]
    assert bare.content.passages == () and bare.content.passages_footnote is not None
    assert bare.content.runs.rows == ()


def test_table_2_has_the_papers_rows_and_ours(report: Report) -> None:
    cells = row(report, "table2", "Calculator")
    assert [cell.text for cell in cells[1:]] == ["9", "1", "1", "1", "3,680", "994", "138"]
    assert cells[2].detail == "(2 calls)" and cells[3].detail == "(1 call)"
    assert [cells[0].text for cells in table(report, "table2").rows] == [
        "Question Answering",
        "Wikipedia Search",
        "Calculator",
        "Calendar",
        "Machine Translation",
    ]


def test_the_funnel_shows_every_step_with_its_reasons(report: Report) -> None:
    steps = [
        "documents",
        "selected",
        "windows",
        "positions",
        "sampled",
        "well-formed",
        "executed",
        "scored",
        "kept",
    ]
    assert [column.label for column in table(report, "funnel").columns] == ["Tool", *steps]
    counts = [cell.text for cell in row(report, "funnel", "Calculator")[1:]]
    assert counts == ["40", "9", "11", "50", "120", "95", "80", "60", "1"]
    _, texts, dropped, kept = (cell.text for cell in row(report, "reasons", "Calculator"))
    assert texts == "fewer than three numbers 31; numbers that compute 9"
    assert dropped == "invalid expression 40; no start probability above the threshold 2"
    assert kept == "gain below the threshold 59"
    assert table(report, "funnel").caption.endswith(
        "Rows skipped while reading the corpus: malformed JSON 3; empty text 1."
    )


def test_the_held_out_text_is_not_passed_off_as_ccnet(report: Report) -> None:
    ours, papers = table(report, "table8").columns[3:5]
    assert ours.group == "Held-out text" and papers.label == "paper (CCNet)"
    assert "stands in for the paper's CCNet" in table(report, "table8").caption


def test_tool_use_has_intervals(report: Report) -> None:
    cells = row(report, "tool_use", "SVAMP")
    assert cells[1].text == "75.0" and cells[1].detail == "[72.2, 77.6]"
    assert row(report, "tool_use", "Dateset")[-1].text == "54.8"
    assert row(report, "tool_use", "ASDiv")[1].text == "–"


def test_the_runs_of_every_column_are_named(report: Report) -> None:
    rows = {cells[2].text: cells for cells in table(report, "runs").rows if cells[1].text == "evaluate"}
    assert rows["M"][3].text == "SVAMP, Dateset, WikiText" and rows["Toolformer"][3].text == "SVAMP, Dateset"
    for cells in table(report, "runs").rows:
        assert re.fullmatch(r"[0-9a-f]{8}", cells[0].text)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", cells[5].text) and cells[4].text
    assert {cells[1].text for cells in table(report, "runs").rows} == {"generate", "train", "evaluate"}


def test_passages_show_the_call_in_its_place(report: Report) -> None:
    nile = next(one for one in report.content.passages if one.tool == "qa" and one.gain > 2)
    assert nile.before == "The Nile has an approximate length of"
    assert nile.call == '[QA("What is the length of the Nile?") -> 6,853 km]'
    assert nile.after == " 6,853 kilometers, the White Nile being its main source."


def test_long_texts_and_calls_are_cut() -> None:
    from toolformer.calls import ApiCall

    text = "word " * 300
    call = ApiCall("QA", "why", result="because " * 100)
    call = call.with_result(call.result or "")
    found = annotation_tables.passage(Example("qa", "d", 500, call, 1.0, True, text))
    assert found.before.startswith("… word") and found.after.endswith("word …")
    assert max(len(found.before), len(found.after)) <= annotation_tables.CONTEXT + 2
    assert len(found.call) <= annotation_tables.LONGEST_CALL and found.call.endswith("…]")


def test_the_same_runs_give_the_same_bytes(tracker: Tracker, report: Report, tmp_path: Path) -> None:
    again = build(tracker, "default", tmp_path)
    for old, new in (
        (report.markdown, again.markdown),
        (report.latex, again.latex),
        (report.html, again.html),
    ):
        assert old.read_bytes() == new.read_bytes()
    drawn = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert "gains.svg" in drawn and "gains.pdf" in drawn and "starts.svg" in drawn
    for name in ["samples.html", *(f"figures/{name}" for name in drawn)]:
        assert (tmp_path / name).read_bytes() == (report.html.parent / name).read_bytes()
    names = ["figures", "report.html", "report.md", "report.tex", "samples.html"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_folder_that_cannot_be_written_ends_in_one_line(empty: Tracker, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="report cannot be written"):
        build(empty, None, tmp_path / "file")
