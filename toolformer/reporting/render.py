"""A report's content as Markdown, LaTeX and terminal tables; `page` makes the HTML of it.

Every text from data or a model is escaped for where it stands: none can open a tag, a macro or a cell.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from toolformer.reporting.layout import Cell, Column, Content, Figure, Footnote, Passage, Table

FOLDER = "figures"
"""Where the figures' files stand, beside the report."""
KEPT = "kept"
REJECTED = "rejected"

# Control characters, and those that turn the direction of everything after them.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\uffff]"
)


def clean(text: str) -> str:
    """The text on one line, without control characters, direction marks and halves of surrogate pairs."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return " ".join(_UNSEEN.sub(" ", text).split())


def title(one: Table | Figure) -> str:
    """Number and title."""
    return f"{one.number}: {one.title}" if one.number else one.title


def _in_text(one: Passage, escape: Callable[[str], str], opening: str, closing: str) -> str:
    """The passage with its call marked, and blanks where the text has them."""
    blank = " " if one.after.startswith(" ") else ""
    return f"{escape(one.before)} {opening}{escape(one.call)}{closing}{blank}{escape(one.after)}".strip()


# Markdown


def markdown_text(text: str) -> str:
    """The text so that Markdown shows it as it is, inside a table or out of it."""
    text = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_\[\]|~$#!{}])", r"\\\1", text)
    # Nor do addresses and names of users become links.
    return re.sub(r"(?i)(?<=www)(?=\.)|(?<=:)(?=//)|(?<=@)(?=\w)", "<!-- -->", text)


def markdown(content: Content) -> str:
    """The report as GitHub Markdown."""
    blocks = [f"# {markdown_text(content.title)}"]
    blocks += [f"> {markdown_text(remark)}" for remark in content.remarks]
    blocks.append(_markdown_table(content.runs))
    blocks += [_markdown_figure(figure) for figure in content.figures if not figure.after]
    for table in content.tables:
        blocks.append(_markdown_table(table))
        blocks += [_markdown_figure(figure) for figure in content.figures if figure.after == table.key]
    blocks.append(_markdown_passages(content))
    return "\n\n".join(blocks) + "\n"


def _markdown_table(table: Table) -> str:
    lines = [f"## {markdown_text(title(table))}", ""]
    if table.rows:
        lines.append(_markdown_row([_markdown_heading(column) for column in table.columns]))
        lines.append(_markdown_row(["---:" if column.numeric else ":---" for column in table.columns]))
        lines += [_markdown_row([_markdown_cell(cell) for cell in row]) for row in table.rows]
        lines.append("")
    if table.caption:
        lines.append(markdown_text(table.caption))
    for note in table.footnotes:
        lines += ["", _markdown_footnote(note)]
    return "\n".join(lines).rstrip()


def _markdown_figure(figure: Figure) -> str:
    lines = [f"## {markdown_text(title(figure))}"]
    if figure.panels:
        lines.append(f"![{markdown_text(figure.title)}]({FOLDER}/{figure.key}.svg)")
        lines.append(markdown_text(figure.caption))
    return "\n\n".join([*lines, *map(_markdown_footnote, figure.footnotes)])


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_heading(column: Column) -> str:
    label = f"{column.group}, {column.label}" if column.group else column.label
    return markdown_text(f"{label} ({column.detail})" if column.detail else label)


def _markdown_cell(cell: Cell) -> str:
    text = markdown_text(cell.text)
    text = f"**{text}**{cell.signs}" if cell.bold else f"{text}{cell.signs}"
    text += f"<sup>{cell.mark}</sup>" if cell.mark else ""
    return f"{text} {markdown_text(cell.detail)}" if cell.detail else text


def _markdown_footnote(note: Footnote) -> str:
    command = f" {_code_span(note.command)}" if note.command else ""
    return f"<sup>{note.mark}</sup> {markdown_text(note.text)}{command}"


def _code_span(text: str) -> str:
    text = clean(text)
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    blank = " " if "`" in text else ""
    return f"{fence}{blank}{text}{blank}{fence}"


def _markdown_passages(content: Content) -> str:
    lines = ["## Table 10: Kept and rejected calls", "", markdown_text(content.passages_caption), ""]
    if content.passages:
        lines.append(f"| Example | {markdown_text(content.gain)} | |")
        lines.append("| :--- | ---: | :--- |")
        for one in content.passages:
            example = _in_text(one, markdown_text, "**", "**")
            lines.append(_markdown_row([example, f"{one.gain:.2f}", KEPT if one.kept else REJECTED]))
    elif content.passages_footnote:
        lines.append(_markdown_footnote(content.passages_footnote))
    else:
        lines.append("No call was scored.")
    return "\n".join(lines)


# LaTeX

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "`": r"\textasciigrave{}", "'": "'", "-": "-{}", "[": "{[}", "]": "{]}",
    "–": "--{}", "—": "---{}", "‘": "`{}", "’": "'{}", "“": "``{}", "”": "''{}", "…": r"\ldots{}", "•": r"\textbullet{}",
    "−": r"\ensuremath{-}", "×": r"\ensuremath{\times}", "÷": r"\ensuremath{\div}", "±": r"\ensuremath{\pm}",
    "→": r"\ensuremath{\rightarrow}", "≤": r"\ensuremath{\leq}", "≥": r"\ensuremath{\geq}", "°": r"\textdegree{}",
    "τ": r"\ensuremath{\tau}", "ε": r"\ensuremath{\varepsilon}", "µ": r"\ensuremath{\mu}", "⁻": r"\textsuperscript{\ensuremath{-}}",
    "⁺": r"\textsuperscript{+}", "£": r"\pounds{}", "€": r"\texteuro{}", "©": r"\textcopyright{}", "«": "<<", "»": ">>",
    "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ø": r"\o{}", "Ø": r"\O{}", "œ": r"\oe{}", "Œ": r"\OE{}",
    "ł": r"\l{}", "Ł": r"\L{}", "đ": r"\dj{}", "Đ": r"\DJ{}", "ð": r"\dh{}", "Ð": r"\DH{}", "þ": r"\th{}",
    "Þ": r"\TH{}", "ı": r"\i{}", "¿": "?`", "¡": "!`", "†": r"\textdagger{}", "‡": r"\textdaggerdbl{}", "\u00a0": "~",
}  # fmt: skip
_ACCENTS = {
    "\u0300": r"\`", "\u0301": r"\'", "\u0302": r"\^", "\u0303": r"\~", "\u0304": r"\=", "\u0306": r"\u",
    "\u0307": r"\.", "\u0308": r"\"", "\u030a": r"\r", "\u030b": r"\H", "\u030c": r"\v", "\u0323": r"\d",
    "\u0327": r"\c", "\u0328": r"\k",
}  # fmt: skip

_PREAMBLE = r"""\documentclass[a4paper,10pt]{article}
% Compiles with pdflatex, xelatex and lualatex. pdflatex prints a stand-in for characters that its fonts lack.
\usepackage{iftex}
\iftutex\usepackage{fontspec}\else\usepackage[T1]{fontenc}\usepackage{textcomp}\fi
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\usepackage[margin=18mm]{geometry}
\usepackage{booktabs,longtable,array,graphicx}
\newcommand{\fallback}[2]{\iftutex#2\else#1\fi}
\newcommand{\smallprint}[1]{{\scriptsize #1}}
\setlength{\tabcolsep}{4pt}\setlength{\parindent}{0pt}\emergencystretch=3em
\begin{document}
"""


def latex_text(text: str) -> str:
    """The text so that LaTeX sets it as it is; ASCII and what pdflatex knows, `\\fallback` for the rest."""
    return "".join(_latex_character(character) for character in unicodedata.normalize("NFC", clean(text)))


@cache
def _latex_character(character: str) -> str:
    if character in _LATEX:
        return _LATEX[character]
    if character.isascii():
        return character
    base, *accents = list(unicodedata.normalize("NFD", character))
    if base.isascii() and base.isalpha() and accents and all(accent in _ACCENTS for accent in accents):
        for accent in accents:
            base = f"{_ACCENTS[accent]}{{{base}}}"
        return base
    plain = unicodedata.normalize("NFKD", character)
    plain = "".join(part for part in plain if part.isascii() and (part.isalnum() or part == " "))
    stand_in = plain or rf"\texttt{{\scriptsize U+{ord(character):04X}}}"
    return rf"\fallback{{{stand_in}}}{{{character}}}"


def latex(content: Content) -> str:
    """The report as a LaTeX document with booktabs tables."""
    blocks = [_PREAMBLE, rf"\section*{{{latex_text(content.title)}}}"]
    blocks += [rf"\emph{{{latex_text(remark)}}}\par" for remark in content.remarks]
    blocks.append(_latex_table(content.runs))
    blocks += [_latex_figure(figure) for figure in content.figures if not figure.after]
    for table in content.tables:
        blocks.append(_latex_table(table))
        blocks += [_latex_figure(figure) for figure in content.figures if figure.after == table.key]
    blocks += [_latex_passages(content), r"\end{document}"]
    return "\n\n".join(blocks) + "\n"


def _latex_table(table: Table) -> str:
    lines = [rf"\subsection*{{{latex_text(title(table))}}}"]
    if table.rows:
        share = 0.76 / max(1, sum(column.wide for column in table.columns))
        kinds = [
            rf"p{{{share:.2f}\linewidth}}" if column.wide else "r" if column.numeric else "l"
            for column in table.columns
        ]
        if table.key == "runs":
            kinds[3] = r"p{0.24\linewidth}"
        size = r"\footnotesize"
        if len(table.columns) > 8:
            size = r"\scriptsize\setlength{\tabcolsep}{2.5pt}"
        if len(table.columns) > 13:
            size = r"\tiny\let\smallprint\relax\setlength{\tabcolsep}{2pt}"
        lines += [rf"{{{size}", rf"\begin{{longtable}}[l]{{@{{}}{''.join(kinds)}@{{}}}}", r"\toprule"]
        lines += _latex_heading(table.columns)
        lines += [r"\midrule", r"\endhead"]
        for number, row in enumerate(table.rows):
            if number in table.rules:
                lines.append(r"\midrule")
            lines.append(" & ".join(_latex_cell(cell) for cell in row) + r" \\")
        lines += [r"\bottomrule", r"\end{longtable}}"]
    lines.append(rf"{{\small {latex_text(table.caption)}\par}}")
    lines += [_latex_footnote(note) for note in table.footnotes]
    return "\n".join(lines)


def _latex_figure(figure: Figure) -> str:
    lines = [rf"\subsection*{{{latex_text(title(figure))}}}"]
    if figure.panels:
        width = r"\linewidth" if len(figure.panels) > 1 else r"0.8\linewidth"
        lines.append(rf"\includegraphics[width={width}]{{{FOLDER}/{figure.key}.pdf}}\par")
        lines.append(rf"{{\small {latex_text(figure.caption)}\par}}")
    return "\n".join([*lines, *map(_latex_footnote, figure.footnotes)])


def _latex_heading(columns: Sequence[Column]) -> list[str]:
    lines = []
    if any(column.group for column in columns):
        cells, rules, start = [], [], 1
        for group, members in groupby(columns, key=lambda column: column.group):
            width = len(list(members))
            cells.append(
                rf"\multicolumn{{{width}}}{{c}}{{{latex_text(group)}}}" if group else " &" * (width - 1)
            )
            if group:
                rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
            start += width
        lines += [" & ".join(cells) + r" \\", "".join(rules)]
    labels = []
    for column in columns:
        detail = rf" \smallprint{{{latex_text(column.detail)}}}" if column.detail else ""
        labels.append(latex_text(column.label).replace(r"\ensuremath{\tau}\_f", r"$\tau_f$") + detail)
    return [*lines, " & ".join(labels) + r" \\"]


def _latex_cell(cell: Cell) -> str:
    text = latex_text(cell.text)
    text = rf"\textbf{{{text}}}" if cell.bold else text
    text += latex_text(cell.signs)
    text += rf"\textsuperscript{{{cell.mark}}}" if cell.mark else ""
    # Braces, since a cell must not begin with what \\ would read as its argument.
    return rf"{text} \smallprint{{{latex_text(cell.detail)}}}" if cell.detail else text or "{}"


def _latex_footnote(note: Footnote) -> str:
    command = rf" \texttt{{{latex_text(note.command)}}}" if note.command else ""
    return (
        rf"{{\footnotesize\raggedright\textsuperscript{{{note.mark}}} {latex_text(note.text)}{command}\par}}"
    )


def _latex_passages(content: Content) -> str:
    lines = [
        r"\subsection*{Table 10: Kept and rejected calls}",
        rf"{{\small {latex_text(content.passages_caption)}\par}}",
    ]
    if not content.passages:
        note = content.passages_footnote
        return "\n".join([*lines, _latex_footnote(note) if note else "No call was scored."])
    lines += [r"{\footnotesize", r"\begin{longtable}[l]{@{}p{0.78\linewidth}rl@{}}", r"\toprule"]
    lines += [rf"Example & {latex_text(content.gain)} & \\", r"\midrule", r"\endhead"]
    for one in content.passages:
        example = _in_text(one, latex_text, r"\textbf{", "}")
        lines.append(rf"{example} & {one.gain:.2f} & {KEPT if one.kept else REJECTED} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{longtable}}"])


# Terminal


def terminal(content: Content) -> None:
    """Print the tables; nothing in them is read as markup."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    # A file or a pipe has no width of its own; rich would cut the tables at 80 columns.
    console = Console() if sys.stdout.isatty() or "COLUMNS" in os.environ else Console(width=160)
    for remark in content.remarks:
        console.print(Text(clean(remark), style="yellow"))
    for table in (content.runs, *content.tables):
        console.print(Text(clean(title(table)), style="bold"))
        if table.rows:
            grid = Grid(box=_box(), pad_edge=False, padding=(0, 1), show_edge=False)
            for column in table.columns:
                label = "\n".join(part for part in (column.group, column.label, column.detail) if part)
                style = "dim" if column.paper else ""
                grid.add_column(
                    Text(label, style=style), justify="right" if column.numeric else "left", style=style
                )
            for number, row in enumerate(table.rows):
                grid.add_row(*(_rich_cell(cell, Text) for cell in row), end_section=number + 1 in table.rules)
            console.print(grid)
        _print_notes(console, Text, table.caption, table.footnotes)
        for figure in content.figures:
            if figure.after == table.key and figure.footnotes:
                console.print(Text(clean(title(figure)), style="bold"))
                _print_notes(console, Text, "", figure.footnotes)
    console.print(Text("Table 10: Kept and rejected calls", style="bold"))
    for one in content.passages:
        console.print(_rich_passage(one, Text))
    note = content.passages_footnote
    _print_notes(console, Text, content.passages_caption, (note,) if note else ())


def _box() -> Any:
    from rich.box import SIMPLE_HEAD

    return SIMPLE_HEAD


def _rich_cell(cell: Cell, text: Callable[..., Any]) -> Any:
    shown = text(clean(cell.text), style="bold" if cell.bold else "")
    shown.append(cell.signs)
    if cell.mark:
        shown.append(f" {cell.mark}", style="dim")
    if cell.detail:
        shown.append(f"\n{clean(cell.detail)}", style="dim not bold")
    return shown


def _rich_passage(one: Passage, text: Callable[..., Any]) -> Any:
    shown = text(f"{one.gain:+.2f} {KEPT if one.kept else REJECTED}  ", style="green" if one.kept else "red")
    shown.append(f"{clean(one.before)} ", style="not bold default")
    shown.append(clean(one.call), style="bold default")
    blank = " " if one.after.startswith(" ") else ""
    return shown.append(f"{blank}{clean(one.after)}", style="not bold default")


def _print_notes(console: Any, text: Callable[..., Any], caption: str, notes: Sequence[Footnote]) -> None:
    if caption:
        console.print(text(clean(caption), style="dim"))
    for note in notes:
        shown = text(f"{note.mark} {clean(note.text)} ", style="dim")
        console.print(shown.append(clean(note.command), style="not dim cyan"), soft_wrap=True)
    console.print()
