"""Scores by a setting. Table 9: by k, over all examples, those with a call (AC) and those without (NC); by model size; by τ_f; by wording."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from toolformer.reporting import paper
from toolformer.reporting.data import Evidence, Score
from toolformer.reporting.formatting import (
    SYSTEMS,
    from_run,
    in_dtypes,
    in_table_order,
    model_title,
    name_of,
    of_task,
    ordered,
    score_cell,
    share_cell,
    shown_sizes,
    title_of,
    tools_by_model,
    tools_used,
)
from toolformer.reporting.table import Cell, Column, Table, Value, cell, number_columns, text_columns

LABELS = ("All", "AC", "NC", "%")
_TABLE9 = (
    "Toolformer: percent correct over all examples, with a call (AC) and without one (NC), and the share with a call. "
    "k = 1 is greedy decoding, k = 0 forbids calls."
)
_BY_THRESHOLD = (
    "Toolformer, trained on the calls whose gain reaches τ_f; all other settings of annotation, training and "
    "evaluation are equal."
)
_WORDINGS = (
    "The same questions in several wordings (benchmarks/wordings.py): the least and the largest figure with their wordings, "
    "and the mean. All other tables have the paper's wording."
)


def table9(evidence: Evidence, full: bool = False) -> Table:
    """A row per k, the benchmarks that were measured with at least two; with `full` all of the paper's too."""
    tasks = in_table_order(task for _, task in evidence.by_k)
    tasks = [*paper.BY_K, *(task for task in tasks if task not in paper.BY_K)] if full else tasks
    columns = number_columns("k")
    for task in tasks:
        name, sizes = title_of(task), shown_sizes(of_task(evidence.by_k, task))
        columns += [Column("All", name, detail=sizes), *number_columns(*LABELS[1:], group=name)]
        if task in paper.BY_K:
            columns += number_columns(*LABELS, group=f"{name}, paper", paper=True)
    rows: list[list[Value]] = []
    for k in sorted({*(paper.KS if full else ()), *(k for k, _ in evidence.by_k)}):
        rows.append([k])
        for task in tasks:
            score = evidence.by_k.get((k, task))
            rows[-1] += _at_k(score, of_task(evidence.by_k, task)) if score else [None] * len(LABELS)
            if task in paper.BY_K:
                numbers = paper.BY_K[task].get(k, (None,) * len(LABELS))
                rows[-1] += [Cell("" if number is None else number, 1) for number in numbers]
    caption = (
        _TABLE9
        + tools_used(evidence.by_k.values())
        + in_dtypes(((f"k = {k}",), score) for (k, _), score in evidence.by_k.items())
    )
    return Table.of("table9", "Table 9", "Decoding, by k", columns, rows if tasks else [], caption)


def _at_k(score: Score, column: Sequence[Score]) -> list[Cell]:
    """All, AC, NC and the share with a call."""
    n, calls, metrics = score.n, score.calls, score.metrics
    cells = [score_cell(score, column, column)]
    for value, number in ((metrics.get("score_ac"), calls), (metrics.get("score_nc"), n - calls)):
        cells.append(cell(None) if value is None else share_cell(value, number, has_n=True))
    cells.append(share_cell(100 * calls / n, n) if n else cell(None))
    return [from_run(cell, score.run) for cell in cells]


def by_size(evidence: Evidence) -> Table:
    """The numbers of Figure 4: a row per model and system, the smallest model first."""
    cells = evidence.sizes
    sizes = evidence.parameters
    of_tasks = {task: of_task(cells, task) for task in in_table_order(task for *_, task in cells)}
    columns = [*text_columns("Model"), *number_columns("parameters"), *text_columns("System")]
    columns += [Column(title_of(task), detail=shown_sizes(column)) for task, column in of_tasks.items()]
    rows: list[list[Value]] = []
    rules = []
    for model in sorted(sizes, key=lambda model: (sizes[model], model)):
        rules.append(len(rows))
        for system in ordered((name for of, name, _ in cells if of == model), SYSTEMS):
            scores = ((cells.get((model, system, task)), column) for task, column in of_tasks.items())
            shown = (score_cell(score, column) if score else None for score, column in scores)
            (run, *_) = (score.run for (of, name, _), score in cells.items() if (of, name) == (model, system))
            size = from_run(cell(round(sizes[model])), run)
            rows.append([model_title(model), size, name_of(system), *shown])
    caption = "Percent correct, the points of Figure 4." + tools_by_model(cells)
    caption += in_dtypes(((model_title(model),), score) for (model, *_), score in cells.items())
    title = "Scores by model size, with and without calls"
    return Table.of(
        "by_size", "By model size", title, columns, rows if len({*sizes.values()}) > 1 else [], caption, rules
    )


def by_threshold(evidence: Evidence) -> Table:
    """Toolformer by τ_f: what was kept, and the scores of the models trained on it."""
    cells = evidence.by_threshold
    of_tasks = {task: of_task(cells, task) for task in in_table_order(task for _, task in cells)}
    columns = [*text_columns("τ_f"), *number_columns("texts", "calls", group="In C*")]
    for task, column in of_tasks.items():
        columns.append(Column(title_of(task), "Percent correct", detail=shown_sizes(column)))
    rows: list[list[Value]] = []
    for thresholds, run in sorted(evidence.kept.items(), key=lambda item: [value for _, value in item[0]]):
        values = {f"{value:g}" for _, value in thresholds}
        name = "; ".join(values if len(values) == 1 else (f"{tool} {value:g}" for tool, value in thresholds))
        counts = (run.metrics.get(f"{what}_kept") for what in ("texts", "calls"))
        kept = (from_run(cell(None if count is None else round(count)), run) for count in counts)
        scores = ((cells.get((thresholds, task)), column) for task, column in of_tasks.items())
        rows.append(
            [name, *kept, *(score_cell(score, column) if score else None for score, column in scores)]
        )
    names = {row: ", ".join(f"τ_f = {value:g}" for _, value in row) for row, _ in cells}
    caption = (
        _BY_THRESHOLD
        + tools_used(cells.values())
        + in_dtypes(((names[row],), score) for (row, _), score in cells.items())
    )
    return Table.of("by_threshold", "By τ_f", "Score by filtering threshold", columns, rows, caption)


def wordings(evidence: Evidence) -> Table:
    """Score and share of calls over the wordings of the prompts: a row for each system and benchmark asked in another."""
    cells: dict[tuple[str, str], dict[str, Score]] = {}
    for (row, wording, task), score in evidence.wordings.items():
        cells.setdefault((row, task), {})[wording] = score
    rows: list[list[Value]] = []
    rules = []
    for system in ordered((row for row, _ in cells), SYSTEMS):
        rules.append(len(rows))
        for task in in_table_order(task for row, task in cells if row == system):
            scores = cells[system, task]
            head = name_of(system), cell(title_of(task), shown_sizes(scores.values())), len(scores)
            values = {wording: score.value for wording, score in scores.items()}
            shares = {wording: 100 * score.metrics.get("call_share", 0) for wording, score in scores.items()}
            rows.append([*head, *_spread(scores, values), *_spread(scores, shares)])
    columns = [*text_columns("System", "Benchmark"), *number_columns("wordings")]
    for group in ("correct, %", "with a call, %"):
        columns += number_columns("min", "max", "mean", group=group)
    caption = _WORDINGS + in_dtypes(
        ((name_of(row),), score) for (row, *_), score in evidence.wordings.items()
    )
    title = "Score and share of calls by wording"
    return Table.of("wordings", "Wordings", title, columns, rows, caption, rules)


def _spread(scores: Mapping[str, Score], values: Mapping[str, float]) -> Iterator[Cell]:
    """The least and the largest of a figure's values by wording, and their mean."""
    order = sorted(values, key=values.__getitem__)
    for wording in (order[0], order[-1]):
        differ = values[order[0]] < values[order[-1]]
        yield from_run(Cell(values[wording], 1, note=wording if differ else ""), scores[wording].run)
    yield from_run(Cell(fmean(values.values()), 1), scores[order[0]].run)
