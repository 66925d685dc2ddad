"""What the annotation found: Table 2, the funnel and its reasons."""

from __future__ import annotations

from collections.abc import Iterable

from toolformer.annotation.funnel import STEPS
from toolformer.reporting import paper
from toolformer.reporting.data import Evidence
from toolformer.reporting.formatting import DASH, in_order, repeats, shown_calls, shown_count, shown_reasons
from toolformer.reporting.table import Cell, Column, Table


def examples_kept(evidence: Evidence, full: bool = False) -> Table:
    """Table 2: texts with at least one call whose gain reaches τ_f, of the tools that were annotated (`full`: of all)."""
    annotation = evidence.annotation
    counts = annotation.counts if annotation else {}
    known = {tool for tool, _ in counts}
    thresholds = sorted({*paper.THRESHOLDS, *(threshold for _, threshold in counts)})
    rows = []
    for tool in in_order({*paper.TOOLS, *known} if full else known):
        cells = [_tool(tool)]
        if annotation and tool in known:
            tried = annotation.funnel[tool].steps.get("selected") if tool in annotation.funnel else None
            cells += [Cell(shown_count(tried))]
            for threshold in thresholds:
                count = counts.get((tool, threshold))
                cells += [
                    Cell(shown_count(count.examples), shown_calls(count.calls)) if count else Cell(DASH)
                ]
        else:
            cells += [Cell(DASH)] * (1 + len(thresholds))
        figures = paper.EXAMPLES_KEPT.get(tool)
        cells += [Cell(shown_count(figure)) for figure in figures] if figures else [Cell()] * 3
        rows.append(tuple(cells))
    columns = [Column("API", numeric=False), Column("texts tried", "This run")]
    columns += [Column(f"τ_f = {threshold}", "This run") for threshold in thresholds]
    columns += [Column(f"τ_f = {threshold}", "Paper", paper=True) for threshold in paper.THRESHOLDS]
    caption = (
        "Texts with at least one call whose gain reaches τ_f, the paper's and this run's; in brackets, how many calls they "
        "hold. Counted from all scored candidates of one run. The paper annotated a part of CCNet, ours is another, smaller corpus: "
        "compare shares, not counts."
    )
    title = "Examples with calls in C*, by filtering threshold"
    return _table(evidence, "table2", "Table 2", title, columns, rows, caption)


def funnel(evidence: Evidence) -> Table:
    """What each step of the annotation left, per tool."""
    entries = evidence.annotation.funnel if evidence.annotation else {}
    steps = [step for step in STEPS if any(step in entry.steps for entry in entries.values())]
    rows = [
        (_tool(tool), *(Cell(shown_count(entries[tool].steps.get(step))) for step in steps))
        for tool in in_order(entries)
    ]
    columns = (Column("Tool", numeric=False), *(Column(step.replace("_", "-")) for step in steps))
    caption = "Texts (documents, selected), then places and calls: what each step of the annotation left."
    if evidence.annotation and evidence.annotation.skipped:
        caption += f" Rows skipped while reading the corpus: {shown_reasons(evidence.annotation.skipped)}."
    return _table(evidence, "funnel", "Annotation", "From texts to kept calls", columns, rows, caption)


def reasons(evidence: Evidence) -> Table:
    """Why texts and candidates went no further, per tool."""
    entries = evidence.annotation.funnel if evidence.annotation else {}
    rows = []
    for tool in in_order(entries):
        counts = (entries[tool].reasons, entries[tool].dropped, entries[tool].filtered)
        rows.append((_tool(tool), *(Cell(shown_reasons(count)) for count in counts)))
    labels = ("texts by decision", "windows and candidates dropped", "scored, not kept")
    columns = (Column("Tool", numeric=False), *(Column(label, numeric=False, wide=True) for label in labels))
    return _table(evidence, "reasons", "Annotation", "Reasons", columns, rows)


def _table(
    evidence: Evidence,
    key: str,
    number: str,
    title: str,
    columns: Iterable[Column],
    rows: Iterable[tuple[Cell, ...]],
    caption: str = "",
) -> Table:
    run = evidence.annotation.run if evidence.annotation else None
    of_run = (run.run_id[:8], repeats(run)) if run else ("", "")
    return Table(key, number, title, tuple(columns), tuple(rows), caption, (), *of_run)


def _tool(tool: str) -> Cell:
    return Cell(paper.TOOLS.get(tool, tool))
