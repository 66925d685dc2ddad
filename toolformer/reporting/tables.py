"""The report's tables as plain cells, our figures beside the paper's."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from toolformer.benchmarks import GROUPS
from toolformer.reporting import paper
from toolformer.reporting.annotation_tables import examples_kept, funnel, lost, reasons
from toolformer.reporting.data import Annotation, Evidence, Score
from toolformer.reporting.figures import figures, scaling
from toolformer.reporting.formatting import (
    DASH,
    SYMBOLS,
    SYSTEMS,
    TASKS,
    dtypes,
    from_run,
    in_dtypes,
    in_table_order,
    name_of,
    of_task,
    ordered,
    repeats,
    score_cell,
    shown_count,
    shown_sizes,
    title_of,
)
from toolformer.reporting.ladder import ladder
from toolformer.reporting.outcome_tables import SIGNS, cost, headline, paired, signs, tool_use
from toolformer.reporting.pairing import BASELINE
from toolformer.reporting.setting_tables import by_threshold, table9, wordings
from toolformer.reporting.table import Cell, Column, Content, Figure, Table
from toolformer.tracking import Run

_BEST = "95 % intervals in brackets, our best system in bold where all were asked as many examples."
_NOT_THE_PAPERS = f"Not the paper's data, so no figure of the paper is beside. {_BEST}"
_PAPERS = f"{_BEST} The paper's M is {paper.MODEL}; figures in the columns “paper” are from {paper.CITATION}."
_PERPLEXITY = (
    "Perplexity per token with calls disabled; lower is better; 95 % intervals in brackets, our best system "
    "in bold where all were asked as many texts. Held-out text stands in for the paper's CCNet. A perplexity "
    "depends on the tokenizer and the text: compare our rows with each other, not with the paper's."
)
_XQUAD = "XQuAD in the setting of Table 6 (English paragraph, foreign question), percent correct"
_ENGLISH = {task: task.replace("mlqa_", "mlqa_all_en_") for task in GROUPS["mlqa"]}
"""The columns of Table 6 and the same questions in English."""
_SCORES: Sequence[tuple[str, str, Sequence[str], str]] = (
    ("Table 3", "LAMA, percent correct", GROUPS["lama"], _PAPERS),
    ("Table 4", "Math benchmarks, percent correct", GROUPS["math"], _PAPERS),
    (
        "Arithmetic",
        "Plain arithmetic, the mean of ten families, percent correct",
        ["arithmetic"],
        _NOT_THE_PAPERS,
    ),
    ("Table 5", "Question answering, percent correct", GROUPS["qa"], _PAPERS),
    ("Table 6", "MLQA, percent correct", GROUPS["mlqa"], _PAPERS),
    ("XQuAD", _XQUAD, GROUPS["xquad"], _NOT_THE_PAPERS),
    ("Table 7", "Temporal benchmarks, percent correct", GROUPS["temporal"], _PAPERS),
    ("Own", "Benchmarks of one's own, in percent", [], _NOT_THE_PAPERS),
    ("Table 8", "Perplexity", ["wikitext_perplexity", "heldout_perplexity"], _PERPLEXITY),
)
"""Number, title, benchmarks and caption of the tables that have a row a system."""
_GROUP_OF = {
    "Table 3": "lama",
    "Table 4": "math",
    "Table 5": "qa",
    "Table 6": "mlqa,mlqa_all_en",
    "Table 7": "temporal",
}
"""The benchmarks of the tables that the experiment `table` makes."""


def content(evidence: Evidence, full: bool = False) -> Content:
    """A report's tables in the paper's order; with `full` also what was not measured, with the paper's own figures."""
    annotation = evidence.annotation
    kept = examples_kept(annotation, full)
    tables = [
        from_run(kept, annotation.run) if annotation else kept,
        *(systems_by_tasks(evidence, *spec, full) for spec in _SCORES),
        paired(evidence),
        tool_use(evidence),
        wordings(evidence),
        ladder(evidence.ladders),
        table9(evidence, full),
        by_threshold(evidence),
        cost(evidence),
    ]
    if annotation:
        tables += [from_run(build(annotation), annotation.run) for build in (funnel, lost, reasons)]
    drawn = figures(evidence)
    parts: list[Table | Figure] = [figure for figure in drawn if not figure.after]
    for table in map(_measured_by_the_paper, tables):
        if table.rows:
            parts += [table, *(figure for figure in drawn if figure.after == table.key)]
    parts += [figure for figure in drawn if figure not in parts]
    if annotation and annotation.examples:
        parts.append(from_run(calls(annotation), annotation.run))
    parts += [
        table for table in (symbols(), runs(evidence), missing(evidence)) if table.rows or table.caption
    ]
    title = "Toolformer: measured beside the paper"
    gain, sentence = headline(evidence)
    return Content(
        f"{title} ({evidence.experiment})" if evidence.experiment else title,
        parts,
        [*evidence.remarks, *_rounding(evidence)],
        facts(evidence),
        sentence,
        gain,
    )


def _rounding(evidence: Evidence) -> Iterator[str]:
    """Says which benchmarks were measured in several dtypes."""
    cells = evidence.scores.items()
    tasks = in_table_order(task for _, task in evidence.scores)
    mixed = [task for task in tasks if len(dtypes(item for item in cells if item[0][1] == task)) > 1]
    if mixed:
        yield (
            f"Measured in several dtypes: {', '.join(map(title_of, mixed))}. A part of a difference may be rounding; the "
            "captions say which rows are in which, and one lm.dtype for all evaluations makes them comparable."
        )


def _measured_by_the_paper(table: Table) -> Table:
    """The table without those of the paper's columns that hold nothing."""
    shown = [
        index
        for index, column in enumerate(table.columns)
        if not column.paper or any(row[index].text for row in table.rows)
    ]
    rows = [[row[index] for index in shown] for row in table.rows]
    return replace(table, columns=[table.columns[index] for index in shown], rows=rows)


def calls(annotation: Annotation) -> Table:
    """Table 10."""
    columns = [
        Column("Example", numeric=False, wide=True),
        Column(annotation.difference),
        Column("", numeric=False),
    ]
    rows = [
        [
            Cell(passage.call, bold=True, before=passage.before, after=passage.after),
            Cell(f"{passage.gain:.2f}"),
            Cell("kept" if passage.kept else "rejected"),
        ]
        for passage in annotation.examples
    ]
    caption = (
        f"Calls that the filter kept, best first, and a few that it rejected, in their texts. The gain is "
        f"{annotation.difference} in nats: how much easier the following tokens become by the call's result."
    )
    return Table("table10", "Table 10", "Kept and rejected calls", columns, rows, caption)


def facts(evidence: Evidence) -> list[tuple[str, str]]:
    """What the report rests on, in a few figures."""
    rows = []
    if evidence.annotation:
        funnels = evidence.annotation.funnel.values()
        documents = max((steps.get("documents", 0) for steps in funnels), default=0)
        rows.append((shown_count(documents), "texts annotated"))
        for name, label in (("sampled", "candidate calls"), ("kept", "calls kept")):
            rows.append((shown_count(sum(steps.get(name, 0) for steps in funnels)), label))
    answered = {key: score for key, score in evidence.scores.items() if not key[1].endswith("perplexity")}
    if answered:
        rows.append((shown_count(len({task for _, task in answered})), "benchmarks"))
        rows.append((shown_count(sum(score.n for score in answered.values())), "answers scored"))
    if evidence.model:
        rows.append((evidence.model, "model M"))
    return [*rows, *((dtype, "dtype") for dtype in dtypes(evidence.scores.items()))]


def runs(evidence: Evidence) -> Table:
    """Every run behind the report, with the figures that come from it."""
    uses: list[tuple[Run, str]] = []
    if evidence.annotation:
        uses += [(evidence.annotation.run, name) for name in ("Table 2", "Table 10", "Annotation")]
    uses += [(run, "Training") for run, _ in evidence.trained.values()]
    rows_shown = ordered((row for row, _ in evidence.scores), SYSTEMS)
    measured = [
        (row, task) for task in in_table_order(task for _, task in evidence.scores) for row in rows_shown
    ]
    shown = {key: evidence.scores[key] for key in measured if key in evidence.scores}
    uses += [(run, title_of(task)) for (_, task), score in shown.items() for run in score.runs]
    uses += [(run, "Table 9") for score in evidence.by_k.values() for run in score.runs]
    uses += [(run, "Wordings") for score in evidence.wordings.values() for run in score.runs]
    uses += [(run, "By τ_f") for run in evidence.kept.values()]
    uses += [(score.run, "By τ_f") for score in evidence.by_threshold.values()]
    uses += [(score.run, "Figure 4") for score in evidence.sizes.values()]
    columns_of: dict[str, dict[str, None]] = {}
    for run, name in uses:
        columns_of.setdefault(run.run_id, {})[name] = None
    rows = []
    for run in {run.run_id: run for run, _ in uses}.values():
        tags = run.tags
        commit, dash, dirty = run.commit.partition("-")
        cells = [run.run_id[:8], name_of(tags.get("system") or tags.get("data", ""))]
        cells += [", ".join(columns_of[run.run_id]), repeats(run), f"{commit[:10]}{dash}{dirty}"]
        cells += [run.started.date().isoformat(), tags.get("device_name") or tags.get("device", "")]
        cells.append(tags.get("dtype", ""))
        rows.append([Cell(text) for text in cells])
    labels = ("Run", "System or data", "Columns", "Again by", "Commit", "Date", "Device", "dtype")
    columns = [Column(label, numeric=False, wide=label == "Columns") for label in labels]
    return Table("runs", "", "Runs", columns, rows, "" if rows else "There is no finished run yet.")


def symbols() -> Table:
    """The legend."""
    rows = [[Cell(symbol), Cell(meaning)] for symbol, meaning in SYMBOLS.items()]
    columns = [Column("Symbol", numeric=False), Column("Meaning", numeric=False, wide=True)]
    return Table("symbols", "", "Symbols", columns, rows)


def missing(evidence: Evidence) -> Table:
    """What of the paper was not measured yet, a line an experiment, with the command that measures it."""
    annotated = {tool for tool, _ in evidence.annotation.counts} if evidence.annotation else set()
    lines = {"Table 2": [name for tool, name in paper.TOOLS.items() if tool not in annotated]}
    for number, _, tasks, _ in _SCORES:
        if number.startswith("Table"):
            lines[number] = _absent(evidence, tasks, _systems(number))
    if any(("model", task) not in evidence.scores for task in _ENGLISH.values()):
        lines["Table 6"].append("All En")
    lines["Table 9"] = [
        f"{title_of(task)} with k = {', '.join(absent)}"
        for task in paper.BY_K
        if (absent := [str(k) for k in paper.KS if (k, task) not in evidence.by_k])
    ]
    lines["Table 10"] = [] if annotated else ["calls"]
    lines["Figure 4"] = [] if scaling(evidence) else ["two sizes of model"]
    setting = "" if evidence.experiment in (None, "paper") else " setting=default"
    rows = [
        [Cell(name), Cell("; ".join(parts)), Cell(f"toolformer run experiment={_experiment(name)}{setting}")]
        for name, parts in lines.items()
        if parts
    ]
    columns = [Column(label, numeric=False, wide=label == "missing") for label in ("", "missing", "command")]
    return Table("missing", "", "Not measured yet", columns, rows)


def _experiment(number: str) -> str:
    """What the experiment of a table or figure is called on the command line."""
    if group := _GROUP_OF.get(number):
        return f"table 'benchmarks=[{group}]'"
    return _key(number)


def _key(number: str) -> str:
    return number.lower().replace(" ", "")


def _systems(number: str) -> list[str]:
    """Perplexity with calls would need a sum over all calls, so Toolformer has no row in Table 8."""
    return [system for system in SYSTEMS if number != "Table 8" or system != "toolformer"]


def _absent(evidence: Evidence, tasks: Sequence[str], systems: Sequence[str]) -> list[str]:
    """The tasks that lack a system, by name; with the systems where not all are lacking."""
    parts: dict[str, list[str]] = {}
    for task in tasks:
        absent = [SYSTEMS[system] for system in systems if (system, task) not in evidence.scores]
        if absent:
            of = "" if len(absent) == len(systems) else f" ({', '.join(absent)})"
            parts.setdefault(of, []).append(title_of(task))
    return [", ".join(names) + of for of, names in parts.items()]


def systems_by_tasks(
    evidence: Evidence, number: str, title: str, tasks: Sequence[str], caption: str, full: bool
) -> Table:
    """The systems and benchmarks that were measured; with `full` all of the paper's, and where there are scores its
    larger models. Table 6 has rows in English below."""
    systems, lower = _systems(number), number == "Table 8"
    full = full and number.startswith("Table")
    if number == "Own":
        tasks = [task for task in in_table_order(task for _, task in evidence.scores) if task not in TASKS]
    measured = {
        (row, task): score
        for (row, task), score in evidence.scores.items()
        if task in tasks and (row in systems or row.startswith(BASELINE))
    }
    english = {
        task: score for task in tasks if (score := evidence.scores.get(("model", _ENGLISH.get(task, ""))))
    }
    if not full:
        tasks = [task for task in tasks if task in english or any(task == other for _, other in measured)]
        systems = [system for system in systems if any(system == row for row, _ in measured)]
    of_tasks = {task: of_task(measured, task) for task in tasks}
    columns = [Column("Model", numeric=False)]
    for task in tasks:
        columns.append(Column("this run", title_of(task), detail=shown_sizes(of_tasks[task])))
        if task in paper.SCORES:
            label = "paper (CCNet)" if task == "heldout_perplexity" else "paper"
            columns.append(Column(label, title_of(task), paper=True))

    def ours(score: Score, task: str, system: str) -> Cell:
        own = [measured[row, task] for row in systems if (row, task) in measured]
        rivals = own if system in systems else ()
        cell = score_cell(score, of_tasks[task], rivals, 2 if lower else 1, lower)
        return replace(cell, signs=signs(evidence, system, task))

    def line(name: Cell, theirs: str, system: str = "", in_english: bool = False) -> list[Cell]:
        """A row of our system, or of none, beside the paper's, by its name there."""
        cells = [name]
        for task in tasks:
            score = english.get(task) if in_english and system else measured.get((system, task))
            row = "" if in_english else system
            blank = DASH if system in SYSTEMS else ""
            cells.append(ours(score, task, row) if score else Cell(blank))
            if task in paper.SCORES:
                figure = paper.SCORES[_ENGLISH[task] if in_english else task].get(theirs)
                cells.append(Cell("" if figure is None else f"{figure:.1f}"))
        return cells

    rows = []
    for system in systems:
        theirs, name = paper.SYSTEMS[system], SYSTEMS[system]
        is_other = theirs != name and any(column.paper for column in columns)
        rows.append(line(Cell(name, f"(paper: {theirs})" if is_other else ""), theirs, system))
    rules = [len(rows)]
    for row in sorted({row for row, _ in measured} - set(systems)):
        rows.append(line(Cell(name_of(row), "(baseline)"), "", row))
    larger = paper.LARGER if full and not lower else ()
    rows += [line(Cell(model), model) for model in larger]
    rules.append(len(rows))
    if english or (full and number == "Table 6"):
        caption += " “All En”: the same questions in English."
        rows.append(line(Cell("M (All En)", "(paper: GPT-J)"), "GPT-J", "model", in_english=True))
        rows += [line(Cell(f"{model} (All En)"), model, in_english=True) for model in larger[1:]]
    if any(cell.signs for row in rows for cell in row):
        caption += f" {SIGNS}"
    order = ordered((row for row, _ in measured), SYSTEMS)
    caption += in_dtypes(
        ((name_of(row),), measured[row, task]) for row in order for task in tasks if (row, task) in measured
    )
    rules = [index for index in dict.fromkeys(rules) if 0 < index < len(rows)]
    return Table(_key(number), number, title, columns, rows, caption, rules)
