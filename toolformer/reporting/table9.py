"""Table 9: scores by k, over all examples, those with a call (AC) and those without (NC)."""

from __future__ import annotations

from toolformer.reporting import paper
from toolformer.reporting.data import Evidence, Score
from toolformer.reporting.formatting import (
    DASH,
    in_table_order,
    share_cell,
    shown_interval,
    shown_score,
    title_of,
)
from toolformer.reporting.table import Cell, Column, Table

LABELS = ("All", "AC", "NC", "%")


def table9(evidence: Evidence, full: bool = False) -> Table:
    """A row a k, the benchmarks that were measured with at least two; with `full` all of the paper's too."""
    tasks = in_table_order(task for _, task in evidence.by_k)
    tasks = [*paper.BY_K, *(task for task in tasks if task not in paper.BY_K)] if full else tasks
    columns = [Column("k")]
    best = {}
    for task in tasks:
        name, scores = title_of(task), [score for (_, other), score in evidence.by_k.items() if other == task]
        sizes = {score.n for score in scores}
        best[task] = max((score.value for score in scores), default=0.0) if len(sizes) == 1 else None
        detail = f"n = {next(iter(sizes)):,}" if len(sizes) == 1 else ""
        columns += [Column(label, name, detail=detail if label == "All" else "") for label in LABELS]
        if task in paper.BY_K:
            columns += [Column(label, f"{name}, paper", paper=True) for label in LABELS]
    rows = []
    for k in sorted({*(paper.KS if full else ()), *(k for k, _ in evidence.by_k)}):
        cells = [Cell(str(k))]
        for task in tasks:
            score = evidence.by_k.get((k, task))
            cells += _ours(score, best[task]) if score else [Cell(DASH)] * len(LABELS)
            if task in paper.BY_K:
                figures = paper.BY_K[task].get(k, (None,) * len(LABELS))
                cells += [Cell("" if figure is None else f"{figure:.1f}") for figure in figures]
        rows.append(tuple(cells))
    caption = (
        "Toolformer: percent correct over all examples, over those with a call (AC) and without one (NC), and the "
        "share with a call. k = 1 is greedy decoding, k = 0 forbids calls. 95 % intervals in brackets, "
        "Wilson's for AC, NC and %, and the number of examples with a call and without; the best All is bold where all k "
        "were asked as many examples."
    )
    return Table("table9", "Table 9", "Decoding, by k", tuple(columns), tuple(rows) if tasks else (), caption)


def _ours(score: Score, best: float | None) -> list[Cell]:
    n, calls = score.n or 0, score.calls or 0
    shown = shown_score(score.value, False)
    bold = best is not None and shown == shown_score(best, False)
    parts = ((score.with_call, calls), (score.without_call, n - calls))
    return [
        Cell(shown, shown_interval(score, False, with_n=False), bold),
        *(
            Cell(DASH) if value is None else share_cell(value, number, counted=True)
            for value, number in parts
        ),
        share_cell(100 * calls / n, n) if n else Cell(DASH),
    ]
