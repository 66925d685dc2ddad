"""What the annotation found: Table 2, the funnel and its reasons."""

from __future__ import annotations

from toolformer.annotation.funnel import STEPS
from toolformer.reporting import paper
from toolformer.reporting.data import Evidence
from toolformer.reporting.formatting import DASH, in_order, shown_calls, shown_count, shown_reasons
from toolformer.reporting.table import Cell, Column, Table


def examples_kept(evidence: Evidence, full: bool = False) -> Table:
    """Table 2: texts with at least one call whose gain reaches τ_f, of the tools that were annotated (`full`: of all)."""
    annotation = evidence.annotation
    known = {tool for tool, _ in annotation.counts} if annotation else set()
    rows = []
    for tool in in_order({*paper.TOOLS, *known} if full else known):
        cells = [_tool(tool)]
        if annotation and tool in known:
            tried = annotation.funnel[tool].steps.get("selected") if tool in annotation.funnel else None
            counts = [annotation.counts[tool, threshold] for threshold in paper.THRESHOLDS]
            cells += [Cell(shown_count(tried))]
            cells += [Cell(shown_count(count.examples), shown_calls(count.calls)) for count in counts]
        else:
            cells += [Cell(DASH)] * (1 + len(paper.THRESHOLDS))
        figures = paper.EXAMPLES_KEPT.get(tool)
        cells += [Cell(shown_count(figure)) for figure in figures] if figures else [Cell()] * 3
        rows.append(tuple(cells))
    columns = [Column("API", numeric=False), Column("texts tried", "This run")]
    columns += [Column(f"τ_f = {threshold}", "This run") for threshold in paper.THRESHOLDS]
    columns += [Column(f"τ_f = {threshold}", "Paper", paper=True) for threshold in paper.THRESHOLDS]
    caption = (
        "Texts with at least one call whose gain reaches τ_f; in brackets, how many calls they hold. Counted from "
        "all scored candidates of one run. The paper annotated a part of CCNet, ours is another, smaller corpus: "
        "compare shares, not counts."
    )
    title = "Examples with calls in C*, by filtering threshold"
    return Table("table2", "Table 2", title, tuple(columns), tuple(rows), caption)


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
    return Table("funnel", "Annotation", "From texts to kept calls", columns, tuple(rows), caption)


def reasons(evidence: Evidence) -> Table:
    """Why texts and candidates went no further, per tool."""
    entries = evidence.annotation.funnel if evidence.annotation else {}
    rows = []
    for tool in in_order(entries):
        counts = (entries[tool].reasons, entries[tool].dropped, entries[tool].filtered)
        rows.append((_tool(tool), *(Cell(shown_reasons(count)) for count in counts)))
    labels = ("texts by decision", "windows and candidates dropped", "scored, not kept")
    columns = (Column("Tool", numeric=False), *(Column(label, numeric=False, wide=True) for label in labels))
    return Table("reasons", "Annotation", "Reasons", columns, tuple(rows))


def _tool(tool: str) -> Cell:
    return Cell(paper.TOOLS.get(tool, tool))
