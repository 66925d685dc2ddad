"""Toolformer by a setting. Table 9: by k, over all examples, those with a call (AC) and those without (NC); and by τ_f."""

from __future__ import annotations

from toolformer.reporting import paper
from toolformer.reporting.data import Evidence, Score
from toolformer.reporting.formatting import (
    DASH,
    from_run,
    in_table_order,
    share_cell,
    shown_interval,
    shown_score,
    shown_sizes,
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
        values = [shown_score(score.value, False) for score in scores]
        highest = max(values, key=float, default="")
        best[task] = (highest, " tie" * (values.count(highest) > 1)) if len(sizes) == 1 else ("", "")
        detail = shown_sizes(sizes)
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


def by_threshold(evidence: Evidence) -> Table:
    """Toolformer by τ_f: what was kept, and the scores of the models trained on it."""
    tasks = in_table_order(task for _, task in evidence.by_threshold)
    columns = [Column("τ_f", numeric=False), Column("texts", "In C*"), Column("calls", "In C*")]
    sizes = {
        task: {score.n for (_, other), score in evidence.by_threshold.items() if other == task}
        for task in tasks
    }
    columns += [Column(title_of(task), "Percent correct", detail=shown_sizes(sizes[task])) for task in tasks]
    rows = []
    for thresholds, run in sorted(evidence.kept.items(), key=lambda item: [value for _, value in item[0]]):
        values = {f"{value:g}" for _, value in thresholds}
        name = "; ".join(values if len(values) == 1 else (f"{tool} {value:g}" for tool, value in thresholds))
        counts = (run.metrics.get(f"{what}_kept") for what in ("texts", "calls"))
        cells = [from_run(Cell(DASH if count is None else f"{count:,.0f}"), run) for count in counts]
        for task in tasks:
            score = evidence.by_threshold.get((thresholds, task))
            if score:
                interval = shown_interval(score, False, with_n=len(sizes[task]) > 1)
                cells.append(from_run(Cell(shown_score(score.value, False), interval), score.run))
            else:
                cells.append(Cell(DASH))
        rows.append((Cell(name), *cells))
    caption = (
        "Toolformer, trained on the calls whose gain reaches τ_f; all other settings of annotation, training and "
        "evaluation are equal. 95 % intervals in brackets."
    )
    return Table(
        "by_threshold", "By τ_f", "Score by filtering threshold", tuple(columns), tuple(rows), caption
    )


def _ours(score: Score, best: tuple[str, str]) -> list[Cell]:
    n, calls = score.n or 0, score.calls or 0
    shown, (highest, tie) = shown_score(score.value, False), best
    bold = shown == highest
    parts = ((score.with_call, calls), (score.without_call, n - calls))
    cells = [
        Cell(shown, shown_interval(score, False, with_n=not highest) + tie * bold, bold),
        *(
            Cell(DASH) if value is None else share_cell(value, number, counted=True)
            for value, number in parts
        ),
        share_cell(100 * calls / n, n) if n else Cell(DASH),
    ]
    return [from_run(cell, score.run) for cell in cells]
