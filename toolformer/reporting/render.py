"""A report's content as Markdown, LaTeX and HTML through the templates beside this module, and in the terminal.

Every text that a template prints is escaped for its format, unless it is `Markup`. The pages make no request and run
only their own script, which the content security policy names by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import html as html_escapes
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from toolformer.reporting import escape, plots
from toolformer.reporting.table import Column, Content

FOLDER = "figures"
"""The folder of the figures' files, beside the report."""


def markdown(content: Content, *, images: bool = True) -> str:
    """The report as GitHub Markdown; without `images` figures are left out."""
    return _text("report.md.j2", escape.markdown, content=content, images=images)


def latex(content: Content) -> str:
    """The report as a LaTeX document with booktabs tables."""
    syntax = {"block_start_string": "<%", "block_end_string": "%>", "variable_start_string": "<<"}
    syntax |= {"variable_end_string": ">>", "comment_start_string": "<#", "comment_end_string": "#>"}
    return _text("report.tex.j2", escape.latex, syntax, content=content)


def html(content: Content, images: Mapping[str, bytes], samples: str = "") -> str:
    """The report as one page with its figures in it.

    `images` are the figures' files by name, as `plots.files` draws them; `samples` is the address of the samples page.
    """
    drawings = {
        figure.key: Markup(plots.inline(images[f"{figure.key}.svg"], figure.key, figure.title))
        for figure in content.figures
    }
    return _page("report", "", content=content, drawings=drawings, samples=samples)


def samples_html(title: str, data: Mapping[str, Any]) -> str:
    """The page to read candidates and answers on; `data` as `samples_page.data` returns it."""
    script = _file("samples.js")
    return _page("samples", script, heading=title, data=data, json=Markup(json_in_script(data)))


def terminal(content: Content) -> None:
    """Print the tables."""
    from rich.console import Console
    from rich.markdown import Markdown

    # A file or a pipe has no width; Rich would wrap the tables at 80 columns.
    console = Console() if sys.stdout.isatty() or "COLUMNS" in os.environ else Console(width=160)
    console.print(Markdown(markdown(content, images=False), hyperlinks=False))


def json_in_script(value: Any) -> str:
    """JSON without characters that could end the script element around it, or open a comment or a tag."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    return re.sub("[<>&\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _page(name: str, script: str, **context: Any) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
        f"script-src {scripts}"
    )
    style = Markup(_file("theme.css") + _file(f"{name}.css"))
    context |= {"policy": policy, "style": style, "script": Markup(script)}
    return _render(f"{name}.html.j2", lambda text: html_escapes.escape(escape.clean(text)), {}, context)


def _text(
    name: str, escaped: Callable[[str], str], syntax: Mapping[str, str] | None = None, **context: Any
) -> str:
    return re.sub(r"\n{3,}", "\n\n", _render(name, escaped, syntax or {}, context)).strip() + "\n"


def _render(
    name: str, escaped: Callable[[str], str], syntax: Mapping[str, Any], context: Mapping[str, Any]
) -> str:
    environment = Environment(
        loader=PackageLoader("toolformer.reporting", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else Markup(escaped(str(value))),
        **syntax,
    )
    environment.globals |= {"folder": FOLDER, "groups": _groups, "raw": Markup}
    return environment.get_template(name).render(context)


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
