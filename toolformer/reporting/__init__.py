"""The report: the paper's tables from the runs, as Markdown, LaTeX, one HTML page, and in the terminal.

Reads what runs have logged and nothing else. `build` writes the files, `terminal` prints.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolformer.reporting import console, plots, reader, render, samples_page, table, tables
from toolformer.results import Results
from toolformer.storage import atomic_write, locked, writing


@dataclass(frozen=True)
class Report:
    """The written pages and their content."""

    markdown: Path
    html: Path
    samples: Path | None
    """The page on which candidates and samples are read; None if there are none."""
    content: table.Content


def build(
    results: Results,
    experiment: str | None = None,
    out: Path = Path("report"),
    full: bool = False,
    lm_eval: Sequence[str] = (),
    overrides: Sequence[str] = (),
) -> Report:
    """Write `report.md`, `report.html`, `samples.html`, `tables/` (LaTeX and CSV) and `figures/` into the folder `out`.

    The output is deterministic.

    Args:
        experiment: only its runs count.
        full: also show what was not measured, with the paper's results.
        lm_eval: files or folders of lm-eval's results, whose models are further rows.
        overrides: of the commands that the report shows, such as `paths.root=FOLDER`.

    Raises:
        UserError: the experiment has no run, a file cannot be read, or the folder cannot be written.
    """
    evidence = reader.read_evidence(results, experiment, lm_eval)
    content, data, samples = (
        tables.report_content(evidence, full, overrides),
        samples_page.data(evidence),
        out / "samples.html",
    )
    texts = {"report.md": render.markdown(content), **render.tables(content)}
    texts["report.html"] = render.html(content, samples.name if data else "")
    if data:
        texts[samples.name] = render.samples_html(content.title, data)
    files = {out / name: text.encode() for name, text in texts.items()}
    for figure in content.figures:
        files |= {out / render.FOLDER / name: image for name, image in plots.files(figure).items()}
    # Of two that write it at once, one would remove what the other is at.
    with locked(out.parent / f".{out.name}.lock", f"{out}: another process writes it; waiting"):
        with writing(out):
            for path in files:
                path.parent.mkdir(parents=True, exist_ok=True)
        for path, written in files.items():
            atomic_write(path, written)
        _remove_others(out, files)
    return Report(out / "report.md", out / "report.html", samples if data else None, content)


def _remove_others(out: Path, written: Collection[Path]) -> None:
    """Removes what an earlier report left that this one does not have."""
    for path in (out / "samples.html", *out.glob("tables/*"), *out.glob(f"{render.FOLDER}/*")):
        if path not in written:
            path.unlink(missing_ok=True)


def terminal(report: Report, only: Collection[str] = ()) -> None:
    """Print the report to the terminal, or only the tables with these keys."""
    console.print_tables(report.content, only)
