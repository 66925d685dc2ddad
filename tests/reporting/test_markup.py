"""The renderings of a report: Markdown, LaTeX, HTML and the terminal's. Hostile text stands in every field."""

import base64
import csv
import hashlib
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.runs import HOSTILE, Runs
from toolformer.reporting import console, escape, plots, reader, render, tables
from toolformer.reporting.table import Cell, Column, Content, Figure, Table, text_columns

ODD = f"{HOSTILE} {{{{ 1 }}}} {{% x %}} << >> <# _ -- \u2028 </svg><img src=x onerror=alert(1)><!--"


def report(text: str) -> Content:
    """A report with every kind of content, and `text` wherever data can put one."""
    columns = (
        Column("Model", numeric=False), Column("this run", text, detail=text), Column("paper", text, paper=True),
        Column("reasons", numeric=False, wide=True),
    )  # fmt: skip
    rows = (
        (
            Cell(text, note=text),
            Cell(12.3, 1, low=1.0, high=2.0, bold=True, signs="†‡"),
            Cell(29.4, 1),
            Cell(text),
        ),
        (Cell("* x"), Cell(text, bold=True), Cell(), Cell()),
    )
    table = Table("table4", "Table 4", text, columns, rows, text, (1,))

    def panel(axes: Any) -> None:
        axes.plot([0.0, 1.0], [2.0, 3.5], color=plots.PALETTE[0], label=escape.clean(text))
        axes.set_title(escape.clean(text))

    figures = tuple(Figure(key, "Figure 4", text, (panel,) * 2, text, "table4") for key in ("first", "next"))
    runs = Table("runs", "", "Runs", (Column("Run", numeric=False),), ((Cell(text),),))
    cells = [[Cell(text, bold=True, before=text, after=after)] for after in (text, f" {text}")]
    calls = Table("table10", "Table 10", text, (Column("Example", numeric=False, wide=True),), cells, text)
    return Content(text, (table, *figures, calls, runs), (text,), (("1", text),))


INLINE = "data:image/svg+xml;base64,"
BARE = Content("Bare", [Table("runs", "", "Runs", (), (), "none")])
FULL = report(ODD)


@pytest.fixture(scope="module")
def images() -> dict[str, bytes]:
    with pytest.warns(UserWarning):  # no font has all of the characters
        return {name: image for figure in FULL.figures for name, image in plots.files(figure).items()}


def test_markdown_shows_hostile_text_in_rectangular_tables() -> None:
    text = render.markdown(FULL)
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(blocks) == 3
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block
    assert not re.search(r"<(?!!-- -->)", text)
    assert r"&lt;script&gt;alert(" in text and r"\`a\`" in text and "**12.3**†‡" in text
    for address in ("www.example.org", "https://example.org", "@somebody", "a@example.org"):
        shown = escape.markdown(address)
        assert shown != address and shown.replace("<!-- -->", "") == address, "no links of its own"
    command = Table("t", "", "", text_columns("", code=""), [[Cell("run 'benchmarks=[a_b]' | `x`")]])
    assert r"`` run 'benchmarks=[a_b]' \| `x` ``" in render.markdown(Content("", [command]))


def test_latex_escapes_everything() -> None:
    assert escape.latex(r"50% of $1 & #2_a^b~{c}\d") == (
        r"50\% of \$1 \& \#2\_a\textasciicircum{}b\textasciitilde{}\{c\}\textbackslash{}d"
    )
    assert escape.latex("café ß 中") == "café ß 中"
    assert escape.latex("a\x00b\u202ec\ud800") == "a b c?"
    assert escape.latex("[x] -> --") == r"{[}x{]} -{}\textgreater{} -{}-{}"


def test_latex_tables_are_balanced_and_rectangular() -> None:
    texts = {name: text for name, text in render.tables(FULL).items() if name.endswith(".tex")}
    assert len(texts) == 3
    for text in texts.values():
        braces = [len(re.findall(rf"(?<!\\)(?:\\\\)*{re.escape(brace)}", text)) for brace in "{}"]
        begun, ended = (sorted(re.findall(rf"\\{word}\{{(\w+\*?)\}}", text)) for word in ("begin", "end"))
        assert braces[0] == braces[1] and begun == ended
        ((kinds, body),) = re.findall(
            r"^\\begin\{tabular\}\{([^\n]*)\}\n(.*?)^\\end\{tabular\}", text, re.S | re.M
        )
        columns = len(re.findall(r"[lrp]", re.sub(r"\{[^}]*\}", "", kinds)))
        for line in body.splitlines():
            if line.endswith(r"\\"):
                spanned = sum(int(width) - 1 for width in re.findall(r"\\multicolumn\{(\d+)\}", line))
                assert len(re.findall(r"(?<!\\)&", line)) + 1 + spanned == columns, line


def test_a_csv_is_beside_each_table() -> None:
    texts = render.tables(FULL)
    names = {name[:-4]: name[-4:] for name in texts}
    assert len(texts) == 2 * len(names)
    rows = list(csv.reader(io.StringIO(texts["tables/table4.csv"])))
    assert len({len(row) for row in rows}) == 1 and rows[1][2:6] == ["12.3", "1.0", "2.0", "29.4"]


def csv_of(*cells: Cell) -> list[str]:
    """The lines of a table of one row, whose columns are called 0, 1, ..."""
    columns = tuple(Column(str(number)) for number in range(len(cells)))
    return render.tables(Content("", [Table("t", "", "", columns, (cells,))]))["tables/t.csv"].splitlines()


def test_a_csv_has_unrounded_numbers_and_intervals_in_columns() -> None:
    cells = (
        Cell(35.04, 1, is_signed=True, low=20.0, high=52.5, n=1040),
        Cell(0.000519, 3, smallest=0.001),
        Cell(3, note="(2 calls)"),
    )
    assert csv_of(*cells) == [
        "0,0: low,0: high,0: n,1,2,2: note",
        "35.04,20.0,52.5,1040,0.000519,3,(2 calls)",
    ]


def test_what_was_not_measured_is_empty_in_a_csv() -> None:
    assert csv_of(Cell(None), Cell(1)) == ["0,1", ",1"]


def test_a_csv_holds_no_formulas() -> None:
    texts = "=cmd() -x ＝cmd() ＠x a;=cmd();＋1;b a=b-c".split()
    assert csv_of(*map(Cell, texts))[1] == "'=cmd(),'-x,'＝cmd(),'＠x,a;'=cmd();'＋1;b,a=b-c"
    assert csv_of(Cell("a; ＋1"))[1] == "a;' ＋1"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(1234.56, 1), "1,234.6"), (Cell(-2.0, 1, is_signed=True), "−2.0"), (Cell(0.0004, 3, smallest=0.001), "< 0.001"),
        (Cell(None), "–"), (Cell(1040), "1,040"), (Cell("x"), "x"),
    ],
)  # fmt: skip
def test_a_cell_formats_its_number(cell: Cell, text: str) -> None:
    assert cell.text == text


def test_a_cells_small_print_is_interval_n_and_note() -> None:
    cell = Cell(12.0, 1, low=-5.25, high=29.7, n=1040, has_n=True, note="(5 seeds)")
    assert cell.detail == "[-5.2, 29.7] n = 1,040 (5 seeds)"


class Page(HTMLParser):
    """Tags with their attributes and the text; all tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open += [tag] * (tag not in ("meta", "input", "img"))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        self.words += data


def assert_harmless(text: str, scripts: int) -> Page:
    """The page runs only its own scripts, asks nothing of a network, and its ids are unique."""
    page = Page(text)
    names = [tag for tag, _ in page.tags]
    assert names.count("script") == scripts == text.count("</script>")
    assert not {"link", "iframe", "object", "embed", "form", "base"} & set(names)
    identities = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    for _, attributes in page.tags:
        assert not any(name.startswith("on") or name in ("srcset", "action") for name in attributes)
        assert (attributes.get("src") or INLINE).startswith(INLINE)
        address = attributes.get("href") or "samples.html"
        known = r"#run-\w{8}|(report|samples)\.html|figures/\w+\.svg"
        assert address[1:] in identities or re.fullmatch(known, address), address
    assert "@import" not in text and "url(" not in text
    (policy,) = (attributes["content"] for _, attributes in page.tags if "http-equiv" in attributes)
    assert policy and policy.startswith("default-src 'none'; base-uri 'none'; form-action 'none'; ")
    for script in re.findall(r"<script>(.*?)</script>", text, re.S):
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy
    assert ("script-src 'none'" in policy) == (scripts == 0)
    return page


def test_the_page_is_harmless_and_shows_hostile_text_as_it_is() -> None:
    with pytest.warns(UserWarning):  # no font has all of the characters
        text = render.html(FULL, "samples.html")
    page = assert_harmless(text, 0)
    assert "\u202e" not in text and "\x00" not in text
    assert page.words.count('<script>alert("1")</script>') > 20 and "{{ 1 }}" in page.words
    assert [tag for tag, _ in page.tags].count("img") == 4  # two panels of each figure
    for table in re.findall(r"<table.*?</table>", text, re.S):
        widths = set()
        for row in re.findall(r"<tr.*?</tr>", table, re.S):
            spans = [int(span) for span in re.findall(r'<t[hd][^>]*colspan="(\d+)"', row)]
            widths.add(len(re.findall(r"<t[hd][ >]", row)) - len(spans) + sum(spans))
        assert len(widths) == 1
    assert_harmless(render.html(BARE), 0)


def test_nothing_in_the_data_of_samples_ends_its_script() -> None:
    data = {"candidates": None, "questions": [{"prompt": f"{ODD}\ud800\u2029"}]}
    text = render.json_in_script(data)
    assert not set("<>&\u2028\u2029") & set(text) and ODD in json.loads(text)["questions"][0]["prompt"]
    assert_harmless(render.samples_html(ODD, data), 2)


def test_the_terminal_shows_the_tables_and_cuts_no_number(
    runs: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    console.print_tables(report("[bold](x) `y`"))
    shown = " ".join(capsys.readouterr().out.split())
    assert all(words in shown for words in ("Table 4", "12.3†‡", "29.4", "Table 10", "[bold](x) `y`"))
    assert "<sup>" not in shown and "figures/" not in shown
    for only in ([], ["table4"]):
        console.print_tables(replace(report("x"), headline="What calls are worth."), only)
        assert capsys.readouterr().out.count("What calls are worth.") == 1
    monkeypatch.setenv("COLUMNS", "100")
    content = tables.report_content(reader.read_evidence(runs, "default"), full=True)
    console.print_tables(content)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100 and "…" not in shown.partition("Table 10")[0]
    words = shown.split()
    for table in content.tables:
        for row in table.rows:
            for column, cell in zip(table.columns, row, strict=True):
                if column.numeric:
                    assert not {*f"{cell.text}{cell.signs} {cell.detail}".split()} - {*words}, cell
