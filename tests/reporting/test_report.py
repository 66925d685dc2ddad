"""Tables and their four renderings, from real runs."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.reporting.conftest import HOSTILE, log_run
from toolformer.errors import UserError
from toolformer.reporting import Report, annotation_tables, build, render, terminal
from toolformer.reporting.evidence import Example
from toolformer.reporting.layout import Cell, Table
from toolformer.tracking import Tracker


@pytest.fixture(scope="module")
def report(tracker: Tracker, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return build(tracker, "default", tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def bare(empty: Tracker, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return build(empty, None, tmp_path_factory.mktemp("bare"))


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
    steps = [step.split()[1:] for step in note.command.split(" && ")]
    assert [step[0] for step in steps[:2]] == ["generate", "train"] and len(steps) > 2
    assert all(step[0] == "evaluate" and any("toolformer" in word for word in step) for step in steps[2:])
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


# Markdown


def test_markdown_tables_are_rectangular(report: Report, bare: Report) -> None:
    for one in (report, bare):
        blocks = re.findall(r"(?:^\|.*\n)+", one.markdown.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(blocks) >= 5
        for block in blocks:
            bars = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
            assert len(bars) == 1, block


def test_markdown_shows_hostile_text_as_it_is(report: Report) -> None:
    text = report.markdown.read_text(encoding="utf-8")
    assert "<script" not in text and "<img" not in text
    assert r"&lt;script&gt;alert(" in text and r"\`a\`" in text


@pytest.mark.parametrize("command", ["plain", "with `tick`", "``"])
def test_code_spans_hold_anything(command: str) -> None:
    span = render._code_span(command)
    fence = re.match(r"`+", span)
    assert fence is not None and span.endswith(fence.group())
    assert span[len(fence.group()) : -len(fence.group())].strip() == command


# LaTeX


def unescaped(text: str, character: str) -> int:
    return len(re.findall(rf"(?<!\\)(?:\\\\)*{re.escape(character)}", text))


def test_latex_is_balanced(report: Report, bare: Report) -> None:
    for one in (report, bare):
        text = one.latex.read_text(encoding="utf-8")
        assert unescaped(text, "{") == unescaped(text, "}")
        begun = re.findall(r"\\begin\{(\w+)\}", text)
        assert begun[0] == "document" and sorted(begun) == sorted(re.findall(r"\\end\{(\w+)\}", text))
        assert r"\toprule" in text and r"\midrule" in text and r"\bottomrule" in text


def test_latex_rows_have_as_many_cells_as_columns(report: Report) -> None:
    text = report.latex.read_text(encoding="utf-8")
    for kinds, body in re.findall(
        r"\\begin\{longtable\}\[l\]\{@\{\}([^\n]*)@\{\}\}\n(.*?)\\end\{longtable\}", text, re.S
    ):
        columns = len(re.findall(r"[lr]|p", re.sub(r"\{[^}]*\}", "", kinds)))
        for line in body.splitlines():
            if line.endswith(r"\\"):
                spanned = sum(int(width) - 1 for width in re.findall(r"\\multicolumn\{(\d+)\}", line))
                assert len(re.findall(r"(?<!\\)&", line)) + 1 + spanned == columns, line


def test_latex_escapes_everything() -> None:
    assert render.latex_text(r"50% of $1 & #2_a^b~{c}\d") == (
        r"50\% of \$1 \& \#2\_a\textasciicircum{}b\textasciitilde{}\{c\}\textbackslash{}d"
    )
    assert render.latex_text("café ß ế") == r"caf\'{e} \ss{} \'{\^{e}}"
    assert render.latex_text("中") == r"\fallback{\texttt{\scriptsize U+4E2D}}{中}"
    assert render.latex_text("a\x00b\u202ec\ud800") == "a b c?"
    assert render.latex_text("[x] -> --") == r"{[}x{]} -{}\textgreater{} -{}-{}"


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="there is no pdflatex")
def test_latex_compiles(report: Report, bare: Report, tmp_path: Path) -> None:
    for name, one in (("report", report), ("bare", bare)):
        shutil.copy(one.latex, tmp_path / f"{name}.tex")
        shutil.copytree(one.latex.parent / "figures", tmp_path / "figures", dirs_exist_ok=True)
        command = [
            "pdflatex",
            "-interaction=nonstopmode",
            "-halt-on-error",
            "-no-shell-escape",
            f"{name}.tex",
        ]
        ended = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120
        )
        assert ended.returncode == 0, ended.stdout[-2000:]
        assert (tmp_path / f"{name}.pdf").stat().st_size > 10_000


# HTML


class Page(HTMLParser):
    """Tags with their attributes, the text, and whether all tags are closed in order."""

    VOID = {"meta", "br", "img", "link", "input"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def without_scripts(text: str) -> str:
    """The page without its own scripts, each of which its policy names by its hash."""
    for script in re.findall(r"<script>(.*?)</script>", text, re.S):
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in text
    return re.sub(r"<script( type=\"application/json\" id=\"[a-z-]+\")?>.*?</script>", "", text, flags=re.S)


@pytest.mark.parametrize("which", ["report", "bare"])
def test_html_is_one_page_that_asks_nothing_of_the_network(
    which: str, request: pytest.FixtureRequest
) -> None:
    text = request.getfixturevalue(which).html.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    names = {tag for tag, _ in page.tags}
    assert ("script" in names) == (which == "report")  # where there is a figure to draw
    assert not names & {"img", "link", "iframe", "object", "embed", "form", "base"}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") or name in ("src", "srcset", "action") for name in attributes)
        address = attributes.get("href") or "#"
        assert re.fullmatch(r"#.*|samples\.html|figures/\w+\.svg", address), address
    text = without_scripts(text)
    assert "url(" not in text and "@import" not in text
    assert "prefers-color-scheme: dark" in text and "default-src &#39;none&#39;" in text
    identities = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    targets = {str(attributes["href"]) for tag, attributes in page.tags if tag == "a"}
    targets = {target for target in targets if target.startswith("#")}
    assert targets <= {f"#{identity}" for identity in identities}


def test_html_shows_hostile_text_as_it_is(report: Report) -> None:
    text = without_scripts(report.html.read_text(encoding="utf-8"))
    assert '<script>alert("1")</script>' in "".join(Page(text).words)
    assert "<img" not in text and "\u202e" not in text and "\x00" not in text


def test_html_tables_are_rectangular(report: Report) -> None:
    text = report.html.read_text(encoding="utf-8")
    for one in re.findall(r"<table.*?</table>", text, re.S):
        widths = set()
        for line in re.findall(r"<tr.*?</tr>", one, re.S):
            spans = [int(span) for span in re.findall(r'<t[hd][^>]*colspan="(\d+)"', line)]
            widths.add(len(re.findall(r"<t[hd][ >]", line)) - len(spans) + sum(spans))
        assert len(widths) == 1


# Terminal


def test_the_terminal_shows_the_tables(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    terminal(report)
    shown = capsys.readouterr().out
    assert "Table 2" in shown and "Table 4" in shown and "Table 7" in shown and "Table 8" in shown
    assert (
        "12.3" in shown
        and "29.4" in shown
        and "Table 10" in shown
        and "[Calculator(400 / 1400) -> 0.29]" in " ".join(shown.split())
    )


def test_names_from_runs_are_escaped_too(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    metrics = {"svamp/score": 1.0, "svamp/n": 10.0, "svamp/call_share": 0.1, "svamp/call_share/x y": 0.1}
    log_run(tracker, "evaluate", metrics, system="toolformer", device_name=HOSTILE, experiment="a'b`c<b>")
    report = build(tracker, "a'b`c<b>", tmp_path / "report")
    for path in (report.markdown, report.html):
        text = without_scripts(path.read_text(encoding="utf-8"))
        assert "<script" not in text and "&lt;script&gt;" in text
    assert "a'b`c<b>" in "".join(Page(report.html.read_text(encoding="utf-8")).words)
    assert Page(report.html.read_text(encoding="utf-8")).open == []
    terminal(report)
