"""Table 9: scores by k, over all examples, those with a call (AC) and those without (NC). Knows no tracking, no markup."""

from __future__ import annotations

from benchmarks.metrics import wilson
from toolformer.reporting import paper
from toolformer.reporting.cells import DASH, TASKS, shown_score
from toolformer.reporting.commands import evaluation_command, joined
from toolformer.reporting.evidence import Evidence, KScore
from toolformer.reporting.layout import Cell, Column, Table, footnote

LABELS = ("All", "AC", "NC", "%")


def table9(evidence: Evidence) -> Table:
    """A row a k; the paper's benchmarks, then those of ours that were measured with at least two."""
    shown = tasks_of(evidence)
    ks = sorted({*paper.KS, *(k for k, task in evidence.by_k if task in shown)})
    columns = [Column("k", numeric=True)]
    for task in shown:
        name = TASKS.get(task, task)
        sizes = {score.n for score in _of(evidence, task).values()}
        detail = f"n = {next(iter(sizes)):,}" if len(sizes) == 1 else ""
        columns += [Column(label, name, detail=detail if label == "All" else "") for label in LABELS]
        if task in paper.BY_K:
            columns += [Column(label, f"{name}, paper", paper=True) for label in LABELS]
    missing: dict[str, list[str]] = {}
    for task in shown:
        absent = [str(k) for k in ks if (k, task) not in evidence.by_k]
        if absent:
            missing.setdefault(f"decoding.k={','.join(absent)}", []).append(task)
    steps = (
        evaluation_command(evidence, "toolformer", tasks, sweep, stage="evaluate -m")
        for sweep, tasks in missing.items()
    )
    note = footnote("a", "Not measured yet:", joined(steps))
    rows = []
    for k in ks:
        cells = [Cell(str(k))]
        for task in shown:
            score = evidence.by_k.get((k, task))
            cells += (
                _ours(score, _best(evidence, task)) if score else [Cell(DASH, mark=note.mark)] * len(LABELS)
            )
            if task in paper.BY_K:
                figures = paper.BY_K[task].get(k, (None,) * len(LABELS))
                cells += [Cell("" if figure is None else f"{figure:.1f}") for figure in figures]
        rows.append(tuple(cells))
    caption = (
        "Toolformer: percent correct over all examples, over those with a call (AC) and without one (NC), and the "
        "share with a call. k = 1 is greedy decoding, k = 0 forbids calls. 95 % intervals in brackets, "
        "Wilson's for AC, NC and %, and the number of examples with a call and without; the best All is bold where all k "
        "were asked the same examples."
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


def tasks_of(evidence: Evidence) -> list[str]:
    """The benchmarks of the table: the paper's, and those that were measured with at least two k."""
    swept = [
        task for task in dict.fromkeys(task for _, task in evidence.by_k) if len(_of(evidence, task)) > 1
    ]
    return [*paper.BY_K, *(task for task in swept if task not in paper.BY_K)]


def _of(evidence: Evidence, task: str) -> dict[int, KScore]:
    return {k: score for (k, one), score in evidence.by_k.items() if one == task}


def _best(evidence: Evidence, task: str) -> str:
    """The best All as it is shown; none where there is one k only, or k were not asked the same examples."""
    found = _of(evidence, task).values()
    comparable = len(found) > 1 and len({score.n for score in found}) == 1
    comparable = comparable and task not in evidence.asked_otherwise_by_k
    return shown_score(max(score.value for score in found), False) if comparable else ""


def _ours(score: KScore, best: str) -> list[Cell]:
    shown = shown_score(score.value, False)
    ends = (score.low, score.high)
    interval = _interval(ends[0], ends[1]) if None not in ends else _wilson(score.value, score.n)
    parts = [
        Cell(DASH) if value is None else Cell(f"{value:.1f}", f"{_wilson(value, n)} ({n:,})".strip())
        for value, n in ((score.ac, score.n_ac), (score.nc, score.n_nc))
    ]
    if not score.n:
        return [Cell(shown), *parts, Cell(DASH)]
    share = 100 * score.n_ac / score.n
    return [Cell(shown, interval, shown == best), *parts, Cell(f"{share:.1f}", _wilson(share, score.n))]


def _wilson(percent: float, n: int) -> str:
    """The interval of a share of `n`, empty where there is none."""
    if not n:
        return ""
    low, high = wilson(min(n, max(0, round(percent * n / 100))), n)
    return _interval(100 * low, 100 * high)


def _interval(low: float | None, high: float | None) -> str:
    return f"[{low:.1f}, {high:.1f}]"
