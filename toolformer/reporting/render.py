"""A report's content as Markdown and HTML, through the templates beside this module, and its tables as LaTeX and CSV.

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
from pandas import DataFrame, MultiIndex

from toolformer.reporting import escape
from toolformer.reporting.formatting import SYMBOLS
from toolformer.reporting.plots import panels
from toolformer.reporting.table import Cell, Column, Content, Table

FOLDER = "figures"
"""The folder of the figures' files, beside the report."""
_SYMBOL = re.compile(
    r"(?<!\w)(" + "|".join(map(re.escape, sorted(SYMBOLS, key=len, reverse=True))) + r")(?![\w*])"
)


def markdown(content: Content) -> str:
    """The report as GitHub Markdown."""
    return _text("report.md.j2", escape.markdown, content=content)


def tables(content: Content) -> dict[str, str]:
    """Each table as LaTeX (booktabs, to be input by a document) and as CSV, by file name."""
    texts = {}
    for table in content.tables:
        if table.rows:
            texts[f"tables/{table.key}.tex"] = _latex(table)
            texts[f"tables/{table.key}.csv"] = _csv(table)
    return texts


def _latex(table: Table) -> str:
    heads = [
        [escape.latex(text) for text in (column.group, _stacked(column.label, column.detail))]
        for column in table.columns
    ]
    rows = [[_latex_cell(cell) for cell in row] for row in table.rows]
    has_groups = any(column.group for column in table.columns)
    names = MultiIndex.from_tuples(map(tuple, heads)) if has_groups else [head for _, head in heads]
    kinds = (
        "p{0.3\\linewidth}" if column.wide else "r" if column.numeric else "l" for column in table.columns
    )
    caption = " ".join(filter(None, (f"{table.title}.", table.caption)))
    return str(
        DataFrame(rows, columns=names).to_latex(
            index=False,
            escape=False,
            column_format="".join(kinds),
            multicolumn_format="c",
            caption=(escape.latex(caption), escape.latex(table.title)),
            label=f"tab:{table.key}",
            position="tbp",
        )
    )


def _stacked(text: str, detail: str) -> str:
    return f"{text} ({detail})" if detail else text


def _latex_cell(cell: Cell) -> str:
    text = escape.latex(cell.text)
    text = rf"\textbf{{{text}}}" if cell.bold else text
    parts = [
        escape.latex(cell.before),
        text + escape.latex(cell.signs) + _space(cell.after) + escape.latex(cell.after),
    ]
    detail = rf"{{\scriptsize {escape.latex(cell.detail)}}}" if cell.detail else ""
    return " ".join(filter(None, (*parts, detail)))


def _space(after: str) -> str:
    return " " if after.startswith(" ") else ""


_FORMULA = r"=+\-@＝＋－＠﹦﹢﹣﹫"
"""The first characters of a spreadsheet's formula, also as East Asian keyboards write them."""


def _csv(table: Table) -> str:
    """The cells, numbers unrounded; the ends of intervals, n and notes in separate columns where there are any."""
    columns: dict[str, list[Any]] = {}
    for column, *cells in zip(table.columns, *table.rows, strict=True):
        name = ", ".join(filter(None, (column.group, column.label)))
        columns[name] = [_csv_value(cell) for cell in cells]
        for part in ("low", "high", "n", "note"):
            values = [getattr(cell, part) for cell in cells]
            if any(value not in (None, "") for value in values):
                columns[f"{name}: {part}"] = [_harmless(value) for value in values]
    frame = DataFrame(columns, dtype=object)
    return frame.rename(columns=_harmless).to_csv(index=False, lineterminator="\n")


def _csv_value(cell: Cell) -> Any:
    if isinstance(cell.value, str):
        return _harmless(f"{cell.before} {cell.value}{cell.after}".strip())
    return cell.value


def _harmless(value: Any) -> Any:
    """A text that no spreadsheet takes for a formula, even if it takes ; for the end of a cell."""
    return (
        re.sub(rf"(^|;)(?=\s*[{_FORMULA}])", r"\1'", escape.clean(value)) if isinstance(value, str) else value
    )


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
    return _render(f"{name}.html.j2", _html, **context)


def _text(name: str, escaped: Callable[[str], str], **context: Any) -> str:
    return re.sub(r"\n{3,}", "\n\n", _render(name, escaped, **context)).strip() + "\n"


def _render(name: str, escaped: Callable[[str], str], **context: Any) -> str:
    environment = Environment(
        loader=PackageLoader("toolformer.reporting", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else Markup(escaped(str(value))),
    )
    environment.globals |= {"folder": FOLDER, "groups": _groups, "raw": Markup}
    environment.filters |= {"explained": _explained, "code": lambda text: Markup(escape.markdown_code(text))}
    return environment.get_template(name).render(context)


def _html(text: str) -> str:
    return html_escapes.escape(escape.clean(text)).replace("τ_f", "τ<sub>f</sub>")


def _explained(text: str) -> Markup:
    """Text of the page in which each symbol shows its meaning on hover."""
    parts = _SYMBOL.split(escape.clean(text))
    return Markup("").join(
        Markup('<abbr title="{}">{}</abbr>').format(SYMBOLS[part], Markup(_html(part)))
        if part in SYMBOLS
        else part
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
