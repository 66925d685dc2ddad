"""Tables with a row per system and a column per benchmark; each is declared, and one function makes them."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from toolformer.benchmarks import GROUPS
from toolformer.reporting import paper
from toolformer.reporting.data import Evidence, Score
from toolformer.reporting.formatting import (
    SYMBOLS,
    SYSTEMS,
    TASK_TITLES,
    in_dtypes,
    in_table_order,
    name_of,
    of_task,
    ordered,
    score_cell,
    shown_sizes,
    title_of,
    tools_used,
)
from toolformer.reporting.outcome_tables import signs
from toolformer.reporting.select import BASELINE, ENGLISH
from toolformer.reporting.table import Cell, Column, Table, text_columns

_NOT_THE_PAPERS = "Not the paper's data, so there are no figures of the paper."
_PAPERS = f"The paper's M is {paper.MODEL}; columns “paper” are from {paper.CITATION}."
_PERPLEXITY = (
    "Per token, with calls disabled; lower is better. Held-out text replaces the paper's CCNet: compare our rows with each "
    "other, not with the paper's."
)
_ENGLISH = "MLQA and XQuAD with paragraph and question in English, percent correct"
_XQUAD = "XQuAD in the setting of Table 6 (English paragraph, foreign question), percent correct"


@dataclass(frozen=True)
class ScoreTable:
    """A table with a row per system and a column per benchmark."""

    number: str
    title: str
    tasks: Sequence[str]
    """Empty for the custom benchmarks."""
    caption: str = _PAPERS
    is_papers: bool = True
    groups: str = ""
    """The benchmarks with which the experiment `table` makes it; empty if it has an experiment of its number."""
    systems: Sequence[str] = tuple(SYSTEMS)
    larger: Sequence[str] = paper.LARGER
    """The paper's larger models that a full report shows."""
    english: Mapping[str, str] = field(default_factory=dict)
    """By benchmark the same questions in English, which have separate rows."""
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
    ScoreTable("English", _ENGLISH, ENGLISH, _NOT_THE_PAPERS, is_papers=False),
    ScoreTable("Table 7", "Temporal benchmarks, percent correct", GROUPS["temporal"], groups="temporal"),
    ScoreTable("Own", "Custom benchmarks, in percent", [], _NOT_THE_PAPERS, is_papers=False),
    # Perplexity with calls would need a sum over all calls, so Toolformer has no row.
    ScoreTable(
        "Table 8", "Perplexity", ["wikitext_perplexity", "heldout_perplexity"], _PERPLEXITY,
        systems=[system for system in SYSTEMS if system != "toolformer"], larger=(),
        lower_is_better=True, digits=2,
    ),
)  # fmt: skip


def key_of(number: str) -> str:
    return number.lower().replace(" ", "")


def absent(evidence: Evidence, table: ScoreTable) -> list[str]:
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
        task for task in in_table_order(task for _, task in evidence.scores) if task not in TASK_TITLES
    ]
    scores = {
        (row, task): score
        for (row, task), score in evidence.scores.items()
        if task in every and (row in spec.systems or row.startswith(BASELINE))
    }
    english = {task for task, other in spec.english.items() if ("model", other) in evidence.scores}
    tasks = [task for task in every if full or task in english or of_task(scores, task)]
    columns = text_columns("Model")
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
    is_in_english = any(line.in_english for line in lines)
    caption = spec.caption + " “All En”: the same questions in English." * is_in_english
    order = ordered((row for row, _ in scores), SYSTEMS)
    cells = [(row, task) for row in order for task in tasks if (row, task) in scores]
    signs_shown = {sign for row in rows for cell in row for sign in cell.signs}
    caption += "".join(f" {sign}: {SYMBOLS[sign]}." for sign in sorted(signs_shown))
    caption += tools_used(scores[cell] for cell in cells)
    caption += in_dtypes(((name_of(row),), scores[row, task]) for row, task in cells)
    rules = len(systems), sum(not line.in_english for line in lines)
    return Table(key_of(spec.number), spec.number, spec.title, columns, rows, caption, rules)


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
        return Cell(name, note="(baseline)")
    is_other = line.papers != name and line.system and any(task in paper.SCORES for task in tasks)
    return Cell(name, note=f"(paper: {line.papers})" if is_other else "")


def _cells(
    evidence: Evidence, spec: ScoreTable, scores: Mapping[tuple[str, str], Score], line: _Line, column: str
) -> Iterator[Cell]:
    """A benchmark's cells in a row: ours, and the paper's if it has the benchmark."""
    task = spec.english[column] if line.in_english else column
    cell = Cell(None if line.system in SYSTEMS else "")
    if score := evidence.scores.get((line.system, task)):
        rivals = [scores[system, task] for system in spec.systems if (system, task) in scores]
        rivals = rivals if line.system in SYSTEMS else []
        cell = score_cell(score, of_task(scores, column), rivals, spec.digits, spec.lower_is_better)
        cell = replace(cell, signs=signs(evidence, line.system, task))
    yield cell
    if column in paper.SCORES:
        number = paper.SCORES[task].get(line.papers)
        yield Cell("" if number is None else number, 1)
