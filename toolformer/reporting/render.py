"""A report's content as Markdown, LaTeX, CSV and HTML, through the templates beside this module.

Every text that a template prints is escaped for its format, unless it is `Markup`. The pages make no request and run
only their own script, which the content security policy names by its hash.
"""

import base64
import hashlib
import html as html_escapes
import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pandas import DataFrame

from toolformer.reporting import escape
from toolformer.reporting.formatting import SYMBOLS
from toolformer.reporting.plots import panels
from toolformer.reporting.table import DASH, Cell, Column, Content, Table

FOLDER = "figures"
"""The folder of the figures' files, beside the report."""
_SYMBOL = re.compile(
    r"(?<!\w)(" + "|".join(map(re.escape, sorted(SYMBOLS, key=len, reverse=True))) + r")(?![\w*])"
)
_DETAIL = re.compile(
    r"(?:\[(?P<low>[^],]+), (?P<high>[^]]+)\] ?)?(?:n = (?P<n>[\d,]+) ?|\((?P<alone>[\d,]+)\))?(?P<detail>.*)",
    re.DOTALL,
)
_NUMBER = re.compile(r"\(?([\d.,]+) (calls?|seeds|%|an example|a second)\)?")
_LATEX = {
    "block_start_string": "<%", "block_end_string": "%>", "variable_start_string": "<<", "variable_end_string": ">>",
    "comment_start_string": "<#", "comment_end_string": "#>",
}  # fmt: skip
_COLUMN = 55
"""Characters of small print in a column of an article; a wider table spans both."""


def markdown(content: Content) -> str:
    """The report as GitHub Markdown."""
    return _text("report.md.j2", escape.markdown, {}, content=content)


def latex(content: Content) -> dict[str, str]:
    """`report.tex` and, by name, what it inputs: a booktabs table a file, with a CSV of each."""
    texts = {"report.tex": _text("report.tex.j2", escape.latex, _LATEX, content=content)}
    for table in content.tables:
        if table.rows:
            sentences = sum(column.wide for column in table.columns) or 1
            texts[f"tables/{table.key}.tex"] = _text(
                "table.tex.j2", escape.latex, _LATEX, part=table,
                star="*" if _characters(table) > _COLUMN else "",
                wide=f"{(0.76 if len(table.columns) < 7 else 0.24) / sentences:.2f}",
            )  # fmt: skip
            texts[f"tables/{table.key}.csv"] = _csv(table)
    return texts


def _characters(table: Table) -> int:
    """About how wide the table is: of each column the widest line."""
    widths = []
    for column, *cells in zip(table.columns, *table.rows, strict=True):
        lines = [column.label, column.detail, *(line for cell in cells for line in (cell.text, cell.detail))]
        widths.append(30 if column.wide else 2 + max(map(len, lines)))
    return sum(widths)


_FORMULA = r"=+\-@＝＋－＠﹦﹢﹣﹫"
"""The first characters of a spreadsheet's formula, also as East Asian keyboards write them."""


def _csv(table: Table) -> str:
    """The cells, numbers as machines read them; the ends of an interval, n and further details in separate columns."""
    columns: list[list[str]] = []
    for column, *cells in zip(table.columns, *table.rows, strict=True):
        name = ", ".join(filter(None, (column.group, column.label)))
        columns.append([name, *(cell.number or f"{cell.before} {cell.text}{cell.after}" for cell in cells)])
        parts = [_details(cell, column) for cell in cells]
        for part in dict.fromkeys(part for found in parts for part in found):
            columns.append([f"{name}: {part}", *(found.get(part, "") for found in parts)])
    head, *rows = ([*map(_plain, row)] for row in zip(*columns, strict=True))
    return DataFrame(rows, columns=head).to_csv(index=False, lineterminator="\n")


def _details(cell: Cell, column: Column) -> dict[str, str]:
    """A cell's small print by kind: `low` and `high` of an interval, `n`, a number by its unit, else `detail`."""
    parts = {"detail": cell.detail}
    if column.numeric and cell.text and (match := _DETAIL.fullmatch(cell.detail)):
        parts = match.groupdict("")
        if number := _NUMBER.fullmatch(parts["detail"]):
            parts |= {"detail": "", "calls" if number[2] == "call" else number[2]: number[1]}
        parts["n"] = (
            parts["n"] or parts.pop("alone") or (column.detail.startswith("n = ") and column.detail[4:]) or ""
        )
    return {name: text for name, text in parts.items() if text}


def _plain(text: str) -> str:
    text = escape.clean(text)
    if re.fullmatch(r"[−+-]?[\d,]+(\.\d+)?", text):
        return text.replace(",", "").replace("−", "-").removeprefix("+")
    # A spreadsheet must not take a model's text for a formula, even if it takes ; for the end of a cell.
    return "" if text == DASH else re.sub(rf"(^|;)(?=\s*[{_FORMULA}])", r"\1'", text)


def html(content: Content, samples: str = "") -> str:
    """The report as one page with its figures in it; `samples` is the address of the samples page."""
    drawings = {
        figure.key: [base64.b64encode(panel).decode() for panel in panels(figure)]
        for figure in content.figures
    }
    has_paper = any(column.paper for table in content.tables for column in table.columns)
    return _page("report", "", content=content, drawings=drawings, samples=samples, has_paper=has_paper)


def samples_html(title: str, data: Mapping[str, Any]) -> str:
    """The page to read candidates and answers on; `data` as `samples_page.data` returns it."""
    script = _file("samples.js")
    return _page("samples", script, heading=title, data=data, json=Markup(json_in_script(data)))


def json_in_script(value: Any) -> str:
    """JSON without characters that could end the script element around it, or open a comment or a tag."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    return re.sub("[<>&\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _page(name: str, script: str, **context: Any) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src 'unsafe-inline'; script-src {scripts}"
    )
    style = Markup(_file("theme.css") + _file(f"{name}.css"))
    context |= {"policy": policy, "style": style, "script": Markup(script)}
    return _render(f"{name}.html.j2", lambda text: html_escapes.escape(escape.clean(text)), {}, **context)


def _text(name: str, escaped: Callable[[str], str], syntax: Any, **context: Any) -> str:
    return re.sub(r"\n{3,}", "\n\n", _render(name, escaped, syntax, **context)).strip() + "\n"


def _render(name: str, escaped: Callable[[str], str], syntax: Any, **context: Any) -> str:
    environment = Environment(
        loader=PackageLoader("toolformer.reporting", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else Markup(escaped(str(value))),
        **syntax,
    )
    environment.globals |= {"folder": FOLDER, "groups": _groups, "raw": Markup}
    environment.filters |= {"explained": _explained, "code": lambda text: Markup(escape.markdown_code(text))}
    return environment.get_template(name).render(context)


def _explained(text: str) -> Markup:
    """Text of the page in which each symbol shows its meaning on hover."""
    parts = _SYMBOL.split(escape.clean(text))
    return Markup("").join(
        Markup('<abbr title="{}">{}</abbr>').format(SYMBOLS[part], part) if part in SYMBOLS else part
        for part in parts
    )


def _groups(columns: Sequence[Column]) -> list[tuple[str, int, int]]:
    """(heading, first column, last column), counted from 1, of neighbours with the same group; empty without groups."""
    groups, first = [], 1
    for label, members in groupby(columns, key=lambda column: column.group):
        last = first + len(list(members)) - 1
        groups.append((label, first, last))
        first = last + 1
    return groups if any(column.group for column in columns) else []


def _file(name: str) -> str:
    return files("toolformer.reporting").joinpath("templates", name).read_text(encoding="utf-8")
