"""The report: all tables and figures in order, with our results beside the paper's."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import compress

from toolformer.benchmarks.declared import is_perplexity
from toolformer.reporting import paper
from toolformer.reporting.annotation_tables import examples_kept, funnel, lost, reasons
from toolformer.reporting.data import Annotation, Evidence
from toolformer.reporting.figures import draw_figures, scaling
from toolformer.reporting.formatting import (
    SYMBOLS,
    SYSTEMS,
    dtypes,
    from_run,
    implementations,
    in_table_order,
    model_title,
    name_of,
    ordered,
    repeats,
    title_of,
)
from toolformer.reporting.headline import headline
from toolformer.reporting.ladder import ladder
from toolformer.reporting.outcome_tables import by_seed, cost, paired, tool_use
from toolformer.reporting.score_tables import SCORE_TABLES, absent, key_of, score_table
from toolformer.reporting.setting_tables import by_size, by_threshold, table9, wordings
from toolformer.reporting.table import Cell, Column, Content, Figure, Table, Value, text_columns
from toolformer.results import Run


def report_content(evidence: Evidence, full: bool = False, overrides: Sequence[str] = ()) -> Content:
    """A report's tables in the paper's order.

    Args:
        full: also what was not measured, with the paper's figures.
        overrides: of every command that is shown; they name the folder of the runs.
    """
    annotation = evidence.annotation
    kept = examples_kept(annotation, full)
    tables = [
        from_run(kept, annotation.run) if annotation else kept,
        *(score_table(evidence, spec, full) for spec in SCORE_TABLES),
        paired(evidence),
        by_seed(evidence),
        tool_use(evidence),
        wordings(evidence),
        ladder(evidence.ladders),
        table9(evidence, full),
        by_size(evidence),
        by_threshold(evidence),
        cost(evidence),
    ]
    if annotation:
        tables += [from_run(build(annotation), annotation.run) for build in (funnel, lost, reasons)]
    drawn = draw_figures(evidence)
    parts: list[Table | Figure] = [figure for figure in drawn if not figure.after]
    for table in map(_measured_by_the_paper, tables):
        if table.rows:
            parts += [table, *(figure for figure in drawn if figure.after == table.key)]
    parts += [figure for figure in drawn if figure not in parts]
    if annotation and annotation.examples:
        parts.append(from_run(calls(annotation), annotation.run))
    last = [
        symbols(),
        runs(evidence),
        *([missing(evidence, overrides)] if full or _is_of_the_paper(evidence) else []),
    ]
    parts += [table for table in last if table.rows or table.caption]
    title = "Toolformer: measured beside the paper"
    first = headline(evidence)
    return Content(
        f"{title} ({evidence.experiment})" if evidence.experiment else title,
        parts,
        [*_tools(evidence), *evidence.remarks, *_rounding(evidence)],
        facts(evidence),
        first.sentence,
        first.gain,
        first.basis,
    )


def _tools(evidence: Evidence) -> Iterator[str]:
    """Says what answered the calls, which may be other than the paper's: while annotating and at inference."""
    annotated = implementations([evidence.annotation.run] if evidence.annotation else [])
    answered = implementations(run for score in evidence.scores.values() for run in score.runs)
    if annotated and answered and annotated != answered:
        yield f"Tools while annotating: {annotated}."
        yield f"Tools in the evaluations: {answered}."
    elif found := annotated or answered:
        yield f"Tools: {found}."


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
    cells = zip(*table.rows, strict=True) if table.rows else ((),) * len(table.columns)
    filled = [any(cell.text for cell in column) for column in cells]
    is_kept = [
        not column.paper or has_values for column, has_values in zip(table.columns, filled, strict=True)
    ]
    rows = [[*compress(row, is_kept)] for row in table.rows]
    return replace(table, columns=[*compress(table.columns, is_kept)], rows=rows)


def calls(annotation: Annotation) -> Table:
    """Table 10."""
    columns = text_columns("Example", annotation.difference, "", wide=["Example"])
    columns[1] = Column(annotation.difference)
    rows: list[list[Value]] = []
    for passage in annotation.examples:
        call = Cell(passage.call, bold=True, before=passage.before, after=passage.after)
        rows.append([call, Cell(passage.gain, 2), "kept" if passage.kept else "rejected"])
    caption = (
        f"Kept calls, best first, and a few rejected ones. {annotation.difference}, in nats: how much easier the result makes "
        "the tokens that follow."
    )
    return Table.of("table10", "Table 10", "Kept and rejected calls", columns, rows, caption)


def facts(evidence: Evidence) -> list[tuple[str, str]]:
    """How much the report rests on, in a few numbers."""
    rows = []
    if evidence.annotation:
        funnels = evidence.annotation.funnel.values()
        documents = max((steps.get("documents", 0) for steps in funnels), default=0)
        rows.append((f"{documents:,}", "texts annotated"))
        for name, label in (("sampled", "candidate calls"), ("kept", "calls kept")):
            rows.append((f"{sum(steps.get(name, 0) for steps in funnels):,}", label))
    answered = {key: score for key, score in evidence.scores.items() if not is_perplexity(key[1])}
    if answered:
        rows.append((f"{len({task for _, task in answered}):,}", "benchmarks"))
        rows.append((f"{sum(score.n for score in answered.values()):,}", "answers scored"))
    if evidence.model:
        rows.append((model_title(evidence.model), "model M"))
    return [*rows, *((dtype, "dtype") for dtype in dtypes(evidence.scores.items()))]


def runs(evidence: Evidence) -> Table:
    """Every run that the report uses, with the columns that it fills."""
    uses: list[tuple[Run, str]] = []
    if evidence.annotation:
        uses += [(evidence.annotation.run, name) for name in ("Table 2", "Table 10", "Annotation")]
    uses += [(run, "Training") for run, _ in evidence.trained.values()]
    for task in in_table_order(task for _, task in evidence.scores):
        for row in ordered((row for row, name in evidence.scores if name == task), SYSTEMS):
            uses += [(run, title_of(task)) for run in evidence.scores[row, task].runs]
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
        facts, (commit, dash, dirty) = run.facts, run.commit.partition("-")
        cells = [run.id[:8], name_of(facts.get("system") or facts.get("data", ""))]
        cells += [", ".join(columns_of[run.id]), repeats(run), f"{commit[:10]}{dash}{dirty}"]
        cells += [run.started.date().isoformat(), facts.get("device_name") or facts.get("device", "")]
        rows.append([*cells, facts.get("dtype", "")])
    labels = ("Run", "System or data", "Columns", "Again by", "Commit", "Date", "Device", "dtype")
    columns = text_columns(*labels, wide=["Columns"], code="Again by")
    return Table.of("runs", "", "Runs", columns, rows, "" if rows else "There is no finished run yet.")


def symbols() -> Table:
    """The legend."""
    columns = text_columns("Symbol", "Meaning", wide=["Meaning"])
    return Table.of("symbols", "", "Symbols", columns, SYMBOLS.items())


def _is_of_the_paper(evidence: Evidence) -> bool:
    """Whether a benchmark of the paper was asked, or none at all; a report of other benchmarks alone lists no gaps."""
    papers = {task for table in SCORE_TABLES if table.is_papers for task in table.tasks}
    asked = {task for _, task in evidence.scores if not is_perplexity(task)}
    return not asked or bool(asked & papers)


def missing(evidence: Evidence, overrides: Sequence[str] = ()) -> Table:
    """The parts of the paper that are not measured yet, a row per experiment, with the command that measures it."""
    annotated = {tool for tool, _ in evidence.annotation.counts} if evidence.annotation else set()
    lines = {"Table 2": [name for tool, name in paper.TOOLS.items() if tool not in annotated]}
    lines |= {table.number: absent(evidence, table) for table in SCORE_TABLES if table.is_papers}
    lines["Table 9"] = [
        f"{title_of(task)} with k = {', '.join(unmeasured)}"
        for task in paper.BY_K
        if (unmeasured := [str(k) for k in paper.KS if (k, task) not in evidence.by_k])
    ]
    lines["Table 10"] = [] if annotated else ["calls"]
    lines["Figure 4"] = [] if scaling(evidence) else ["two sizes of model"]
    experiments = {t.number: ["table", f"benchmarks=[{t.groups}]"] for t in SCORE_TABLES if t.groups}
    rows = [
        [name, "; ".join(parts), _measures(evidence, overrides, *experiments.get(name, [key_of(name)]))]
        for name, parts in lines.items()
        if parts
    ]
    columns = text_columns("", "missing", "command", wide=["missing"], code="command")
    return Table.of("missing", "", "Not measured yet", columns, rows)


_OF_A_JOB = {
    "experiment",
    "benchmarks",
    "system",
    "data",
    "decoding.k",
    "seed",
    "dataset",
    "checkpoint",
    "like",
    "wording",
    "paths.root",
}
"""Keys of a command that belong to its job or to where its runs were, not to the setting of all of them."""


def _measures(evidence: Evidence, overrides: Sequence[str], experiment: str, *more: str) -> str:
    """The command that measures an experiment of the paper in the setting of the report's runs: their data, tools and limits."""
    runs = [score.run for score in evidence.scores.values()]
    runs += [evidence.annotation.run] if evidence.annotation else []
    stored = next((run.overrides for run in runs if run.command), [])
    parts = [text.lstrip("+").partition("=") for text in stored]
    given = {key: value for key, _, value in parts}
    of_job = _OF_A_JOB | ({"model"} if "figure4" in (experiment, given.get("experiment")) else set())
    if experiment in ("table2", "figure4"):  # the list lacks what is missing, or is not the figure's
        of_job |= {"tools"}
    kept = [text for text, (key, *_) in zip(stored, parts, strict=True) if key not in of_job]
    is_papers = re.fullmatch(
        r"paper|figure4|table\d*", given.get("experiment", evidence.experiment or "paper")
    )
    setting = [] if is_papers or "setting" in given else ["setting=small"]
    return shlex.join(["toolformer", "run", f"experiment={experiment}", *more, *setting, *kept, *overrides])
