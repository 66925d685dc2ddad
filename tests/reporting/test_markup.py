"""The four renderings of the same tables: Markdown, LaTeX, HTML and the terminal's."""

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
from toolformer.reporting import Report, build, render, terminal
from toolformer.tracking import Tracker

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
