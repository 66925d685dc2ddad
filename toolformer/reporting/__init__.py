"""The report: the paper's tables from the runs, as Markdown, LaTeX, one HTML page, and in the terminal.

Reads only what runs have logged; no model, no configuration. `build` writes the files, `terminal` prints.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from toolformer.errors import UserError
from toolformer.reporting import layout, page, plots, reader, render, tables, viewer
from toolformer.reporting.words import Conf
from toolformer.tracking import Tracker


@dataclass(frozen=True)
class Report:
    """The written files and what stands in them."""

    markdown: Path
    latex: Path
    html: Path
    samples: Path | None
    """The page on which candidates and samples are read; None where there are none."""
    content: layout.Content


def build(
    tracker: Tracker,
    experiment: str | None = None,
    out: Path = Path("report"),
    seed: int = 0,
    conf: Conf | None = None,
) -> Report:
    """Write `report.md`, `report.tex`, `report.html`, `samples.html` and `figures/` into the folder `out`.

    The same runs give the same bytes. With `experiment` only runs with this tag count; `seed` decides the resamples
    behind paired intervals. With `conf` the commands of missing cells carry what the runs have otherwise than conf/.

    Raises:
        UserError: no run has this tag, a file cannot be read, or the folder cannot be written.
    """
    evidence = reader.read(tracker, experiment, seed, conf)
    data = viewer.data(evidence)  # first: samples that cannot be read are remarked in the content
    content = tables.content(evidence)
    out = Path(out)
    made = {f"{render.FOLDER}/{name}": image for figure in content.figures if figure.panels
            for name, image in plots.files(figure).items()}  # fmt: skip
    texts = {"report.md": render.markdown(content), "report.tex": render.latex(content)}
    texts["report.html"] = page.html(content, "samples.html" if data else "")
    if data:
        texts["samples.html"] = page.samples_html(content.title, data)
    made |= {name: text.encode() for name, text in texts.items()}
    try:
        (out / render.FOLDER).mkdir(parents=True, exist_ok=True)
        for name, content_bytes in made.items():
            partial = (out / name).with_name(f".{Path(name).name}.{os.getpid()}")
            partial.write_bytes(content_bytes)
            partial.replace(out / name)
        if not data:
            (out / "samples.html").unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"the report cannot be written to {out} ({error.strerror})") from error
    samples = out / "samples.html" if data else None
    return Report(out / "report.md", out / "report.tex", out / "report.html", samples, content)


def terminal(report: Report) -> None:
    """Print the report's tables to the terminal."""
    render.terminal(report.content)
