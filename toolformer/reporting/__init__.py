"""The report: the paper's tables from the runs, as Markdown, LaTeX, one HTML page, and in the terminal.

Reads what runs have logged and nothing else. `build` writes the files, `terminal` prints.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from toolformer.reporting import plots, reader, render, samples_page, table, tables
from toolformer.storage import write_whole, writing


@dataclass(frozen=True)
class Report:
    """The written pages and what stands in them."""

    markdown: Path
    latex: Path
    html: Path
    samples: Path | None
    """The page on which candidates and samples are read; None where there are none."""
    content: table.Content


def build(
    store: reader.Store,
    experiment: str | None = None,
    out: Path = Path("report"),
    seed: int = 0,
    full: bool = False,
) -> Report:
    """Write `report.md`, `report.tex`, `report.html`, `samples.html`, `tables/` and `figures/` into the folder `out`.

    The same runs give the same bytes.

    Args:
        experiment: only runs with this tag count.
        seed: decides the resamples behind paired intervals.
        full: also show what was not measured, with the paper's own figures.

    Raises:
        UserError: no run has this tag, a file cannot be read, or the folder cannot be written.
    """
    evidence = reader.read(store, experiment, seed)
    content = tables.content(evidence, full)
    data = samples_page.data(evidence)
    images = {name: image for figure in content.figures for name, image in plots.files(figure).items()}
    texts = {"report.md": render.markdown(content), **render.latex(content)}
    texts["report.html"] = render.html(content, images, "samples.html" if data else "")
    samples = Path(out) / "samples.html"
    if data:
        texts[samples.name] = render.samples_html(content.title, data)
    files = {f"{render.FOLDER}/{name}": image for name, image in images.items()}
    files |= {name: text.encode() for name, text in texts.items()}
    with writing(Path(out)):
        for folder in {Path(name).parent for name in files}:
            (Path(out) / folder).mkdir(parents=True, exist_ok=True)
    for name, written in files.items():
        write_whole(Path(out) / name, written)
    if not data:
        samples.unlink(missing_ok=True)
    markdown, latex, html = (Path(out) / name for name in ("report.md", "report.tex", "report.html"))
    return Report(markdown, latex, html, samples if data else None, content)


def terminal(report: Report, only: Collection[str] = ()) -> None:
    """Print the report to the terminal, or `only` the tables with these keys."""
    from toolformer.reporting import console  # Rich is for the terminal alone

    console.show(report.content, only)
