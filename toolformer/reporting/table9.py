"""Table 9: scores by k, over all examples, those with a call (AC) and those without (NC). Knows no tracking, no markup."""

from __future__ import annotations

from toolformer.reporting import paper
from toolformer.reporting.cells import DASH, TASKS
from toolformer.reporting.commands import evaluation_command
from toolformer.reporting.evidence import Evidence, KScore
from toolformer.reporting.layout import Cell, Column, Footnote, Table

LABELS = ("All", "AC", "NC", "%")


def table9(evidence: Evidence) -> Table:
    """A row a k; of our benchmarks those that were measured with at least two, else the paper's."""
    tasks = [
        task
        for task in dict.fromkeys(task for _, task in evidence.by_k)
        if len([k for k, one in evidence.by_k if one == task]) > 1
    ]
    shown = tasks or list(paper.BY_K)
    columns = [Column("k", numeric=True)]
    for task in shown:
        name = TASKS.get(task, task)
        sizes = {score.n for (_, one), score in evidence.by_k.items() if one == task}
        detail = f"n = {next(iter(sizes)):,}" if len(sizes) == 1 else ""
        columns += [Column(label, name, detail=detail if label == "All" else "") for label in LABELS]
        if task in paper.BY_K:
            columns += [Column(label, f"{name}, paper", paper=True) for label in LABELS]
    command = evaluation_command(evidence, "toolformer", shown, "decoding.k=0,1,3,10", stage="evaluate -m")
    note = Footnote("a", "Not measured yet:", command)
    rows = []
    for k in sorted({*paper.KS, *(k for k, task in evidence.by_k if task in tasks)}):
        cells = [Cell(str(k))]
        for task in shown:
            score = evidence.by_k.get((k, task))
            cells += _ours(score) if score else [Cell(DASH, mark=note.mark)] * len(LABELS)
            if task in paper.BY_K:
                figures = paper.BY_K[task].get(k, (None,) * len(LABELS))
                cells += [Cell("" if figure is None else f"{figure:.1f}") for figure in figures]
        rows.append(tuple(cells))
    missing = any(cell.mark for row in rows for cell in row)
    caption = (
        "Toolformer: percent correct over all examples, over those with a call (AC) and without one (NC), and the "
        "share with a call. k = 1 is greedy decoding, k = 0 forbids calls. The number of examples stands in brackets."
    )
    return Table(
        "table9",
        "Table 9",
        "Decoding, by k",
        tuple(columns),
        tuple(rows),
        caption,
        (note,) if missing else (),
    )


def _ours(score: KScore) -> list[Cell]:
    parts = ((score.ac, score.n_ac), (score.nc, score.n_nc))
    found = [Cell(DASH) if value is None else Cell(f"{value:.1f}", f"({n:,})") for value, n in parts]
    return [Cell(f"{score.value:.1f}"), *found, Cell(f"{100 * score.n_ac / score.n:.1f}")]
