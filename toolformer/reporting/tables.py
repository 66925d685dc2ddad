"""The report's tables as plain cells, our figures beside the paper's."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

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
from toolformer.reporting.frame import BASELINE
from toolformer.reporting.ladder import ladder
from toolformer.reporting.outcome_tables import SIGNS, cost, headline, paired, signs, tool_use
from toolformer.reporting.setting_tables import by_threshold, table9, wordings
from toolformer.reporting.table import Cell, Column, Content, Figure, Table
from toolformer.results import Run

_BEST = "95 % intervals in brackets, our best system in bold where all were asked as many examples."
_NOT_THE_PAPERS = f"Not the paper's data, so there are no figures of the paper. {_BEST}"
_PAPERS = f"{_BEST} The paper's M is {paper.MODEL}; figures in the columns “paper” are from {paper.CITATION}."
_PERPLEXITY = (
    "Perplexity per token with calls disabled; lower is better; 95 % intervals in brackets, our best system "
    "in bold where all were asked as many texts. Held-out text replaces the paper's CCNet. A perplexity "
    "depends on the tokenizer and the text: compare our rows with each other, not with the paper's."
)
_XQUAD = "XQuAD in the setting of Table 6 (English paragraph, foreign question), percent correct"


@dataclass(frozen=True)
class ScoreTable:
    """A table with a row per system and a column per benchmark."""

    number: str
    title: str
    tasks: Sequence[str]
    """None for the custom benchmarks."""
    caption: str = _PAPERS
    is_papers: bool = True
    groups: str = ""
    """The benchmarks with which the experiment `table` makes it; empty if it has an experiment of its number."""
    systems: Sequence[str] = tuple(SYSTEMS)
    larger: Sequence[str] = paper.LARGER
    """The paper's larger models that a full report shows."""
    english: Mapping[str, str] = field(default_factory=dict)
    """By benchmark the same questions in English, which have rows of their own."""
    lower_is_better: bool = False
    digits: int = 1


SCORE_TABLES = (
    ScoreTable("Table 3", "LAMA, percent correct", GROUPS["lama"], groups="lama"),
    ScoreTable("Table 4", "Math benchmarks, percent correct", GROUPS["math"], groups="math"),
    ScoreTable(
        "Arithmetic", "Plain arithmetic, the mean of ten families, percent correct", ["arithmetic"],
        _NOT_THE_PAPERS, is_papers=False,
    ),
    ScoreTable("Table 5", "Question answering, percent correct", GROUPS["qa"], groups="qa"),
    ScoreTable(
        "Table 6", "MLQA, percent correct", GROUPS["mlqa"], groups="mlqa,mlqa_all_en",
        english={task: task.replace("mlqa_", "mlqa_all_en_") for task in GROUPS["mlqa"]},
    ),
    ScoreTable("XQuAD", _XQUAD, GROUPS["xquad"], _NOT_THE_PAPERS, is_papers=False),
    ScoreTable("Table 7", "Temporal benchmarks, percent correct", GROUPS["temporal"], groups="temporal"),
    ScoreTable("Own", "Custom benchmarks, in percent", [], _NOT_THE_PAPERS, is_papers=False),
    # Perplexity with calls would need a sum over all calls, so Toolformer has no row.
    ScoreTable(
        "Table 8", "Perplexity", ["wikitext_perplexity", "heldout_perplexity"], _PERPLEXITY,
        systems=[system for system in SYSTEMS if system != "toolformer"], larger=(),
        lower_is_better=True, digits=2,
    ),
)  # fmt: skip


def content(evidence: Evidence, full: bool = False) -> Content:
    """A report's tables in the paper's order; with `full` also what was not measured, with the paper's own figures."""
    annotation = evidence.annotation
    kept = examples_kept(annotation, full)
    tables = [
        from_run(kept, annotation.run) if annotation else kept,
        *(score_table(evidence, spec, full) for spec in SCORE_TABLES),
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
        columns_of.setdefault(run.id, {})[name] = None
    rows = []
    for run in {run.id: run for run, _ in uses}.values():
        facts = run.facts
        commit, dash, dirty = run.commit.partition("-")
        cells = [run.id[:8], name_of(facts.get("system") or facts.get("data", ""))]
        cells += [", ".join(columns_of[run.id]), repeats(run), f"{commit[:10]}{dash}{dirty}"]
        cells += [run.started.date().isoformat(), facts.get("device_name") or facts.get("device", "")]
        cells.append(facts.get("dtype", ""))
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
    lines |= {table.number: _absent(evidence, table) for table in SCORE_TABLES if table.is_papers}
    lines["Table 9"] = [
        f"{title_of(task)} with k = {', '.join(absent)}"
        for task in paper.BY_K
        if (absent := [str(k) for k in paper.KS if (k, task) not in evidence.by_k])
    ]
    lines["Table 10"] = [] if annotated else ["calls"]
    lines["Figure 4"] = [] if scaling(evidence) else ["two sizes of model"]
    experiments = {t.number: f"table 'benchmarks=[{t.groups}]'" for t in SCORE_TABLES if t.groups}
    setting = "" if evidence.experiment in (None, "paper") else " setting=default"
    rows = [
        [name, "; ".join(parts), f"toolformer run experiment={experiments.get(name, key_of(name))}{setting}"]
        for name, parts in lines.items()
        if parts
    ]
    columns = [Column(label, numeric=False, wide=label == "missing") for label in ("", "missing", "command")]
    return Table("missing", "", "Not measured yet", columns, [[*map(Cell, row)] for row in rows])


def key_of(number: str) -> str:
    return number.lower().replace(" ", "")


def _absent(evidence: Evidence, table: ScoreTable) -> list[str]:
    """The tasks that lack a system, by name; with the systems if not all of them are lacking."""
    parts: dict[str, list[str]] = {}
    for task in table.tasks:
        absent = [SYSTEMS[system] for system in table.systems if (system, task) not in evidence.scores]
        if absent:
            of = "" if len(absent) == len(table.systems) else f" ({', '.join(absent)})"
            parts.setdefault(of, []).append(title_of(task))
    english = any(("model", task) not in evidence.scores for task in table.english.values())
    return [", ".join(names) + of for of, names in parts.items()] + ["All En"] * english


def score_table(evidence: Evidence, spec: ScoreTable, full: bool) -> Table:
    """The systems and benchmarks that were measured; with `full` all of the paper's, and its larger models."""
    full = full and spec.is_papers
    every = spec.tasks or [
        task for task in in_table_order(task for _, task in evidence.scores) if task not in TASKS
    ]
    scores = {
        (row, task): score
        for (row, task), score in evidence.scores.items()
        if task in every and (row in spec.systems or row.startswith(BASELINE))
    }
    english = {task for task, other in spec.english.items() if ("model", other) in evidence.scores}
    tasks = [task for task in every if full or task in english or of_task(scores, task)]
    columns = [Column("Model", numeric=False)]
    for task in tasks:
        columns.append(Column("this run", title_of(task), detail=shown_sizes(of_task(scores, task))))
        if task in paper.SCORES:
            label = "paper (CCNet)" if task == "heldout_perplexity" else "paper"
            columns.append(Column(label, title_of(task), paper=True))
    systems = [system for system in spec.systems if full or any(system == row for row, _ in scores)]
    lines = _lines(spec, systems, {row for row, _ in scores}, full, bool(english))
    rows = [
        [_head(line, tasks), *(cell for task in tasks for cell in _cells(evidence, spec, scores, line, task))]
        for line in lines
    ]
    caption = spec.caption + " “All En”: the same questions in English." * any(
        line.in_english for line in lines
    )
    if any(cell.signs for row in rows for cell in row):
        caption += f" {SIGNS}"
    order = ordered((row for row, _ in scores), SYSTEMS)
    measured = (((name_of(row),), scores.get((row, task))) for row in order for task in tasks)
    caption += in_dtypes((row, score) for row, score in measured if score)
    rules = dict.fromkeys((len(systems), sum(not line.in_english for line in lines)))
    return Table(
        key_of(spec.number), spec.number, spec.title, columns, rows, caption,
        [index for index in rules if 0 < index < len(rows)],
    )  # fmt: skip


class _Line(NamedTuple):
    """A row of a `ScoreTable`: our system or baseline, the paper's name of it, or either; perhaps in English."""

    system: str = ""
    papers: str = ""
    in_english: bool = False


def _lines(
    spec: ScoreTable, systems: Sequence[str], measured: Set[str], full: bool, english: bool
) -> list[_Line]:
    larger = spec.larger if full else ()
    lines = [_Line(system, paper.SYSTEMS[system]) for system in systems]
    lines += [_Line(row) for row in sorted(measured - {*systems})]
    lines += [_Line("", model) for model in larger]
    if english or (full and spec.english):
        lines += [_Line("model", "GPT-J", True), *(_Line("", model, True) for model in larger[1:])]
    return lines


def _head(line: _Line, tasks: Sequence[str]) -> Cell:
    name = name_of(line.system or line.papers) + " (All En)" * line.in_english
    if line.system and not line.papers:
        return Cell(name, "(baseline)")
    is_other = line.papers != name and line.system and any(task in paper.SCORES for task in tasks)
    return Cell(name, f"(paper: {line.papers})" if is_other else "")


def _cells(
    evidence: Evidence, spec: ScoreTable, scores: Mapping[tuple[str, str], Score], line: _Line, column: str
) -> Iterator[Cell]:
    """A benchmark's cells in a row: ours, and the paper's if it has the benchmark."""
    task = spec.english[column] if line.in_english else column
    cell = Cell(DASH if line.system in SYSTEMS else "")
    if score := evidence.scores.get((line.system, task)):
        rivals = [scores[system, task] for system in spec.systems if (system, task) in scores]
        rivals = rivals if line.system in SYSTEMS else []
        cell = score_cell(score, of_task(scores, column), rivals, spec.digits, spec.lower_is_better)
        cell = replace(cell, signs=signs(evidence, line.system, task))
    yield cell
    if column in paper.SCORES:
        number = paper.SCORES[task].get(line.papers)
        yield Cell("" if number is None else f"{number:.1f}")
