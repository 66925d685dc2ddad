"""The report: the paper's tables from the runs, as Markdown, LaTeX, one HTML page, and in the terminal.

Reads only what runs have logged; no model, no configuration. `build` writes the files, `terminal` prints.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from toolformer.errors import UserError
from toolformer.reporting import layout, reader, render, tables
from toolformer.tracking import Tracker


@dataclass(frozen=True)
class Report:
    """The written files and what stands in them."""

    markdown: Path
    latex: Path
    html: Path
    content: layout.Content


def build(tracker: Tracker, experiment: str | None = None, out: Path = Path("report")) -> Report:
    """Write `report.md`, `report.tex` and `report.html` into the folder `out`.

    The same runs give the same bytes. With `experiment` only runs with this tag count.

    Raises:
        UserError: no run has this tag, an artifact is gone, or the folder cannot be written.
    """
    content = tables.content(reader.read(tracker, experiment))
    texts = {
        "report.md": render.markdown(content),
        "report.tex": render.latex(content),
        "report.html": render.html(content),
    }
    out = Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            partial = out / f".{name}.{os.getpid()}"
            partial.write_text(text, encoding="utf-8", newline="\n")
            partial.replace(out / name)
    except OSError as error:
        raise UserError(f"the report cannot be written to {out} ({error.strerror})") from error
    return Report(out / "report.md", out / "report.tex", out / "report.html", content)


def terminal(report: Report) -> None:
    """Print the report's tables to the terminal."""
    render.terminal(report.content)
