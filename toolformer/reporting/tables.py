"""The report's tables as plain cells, our figures beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from benchmarks import GROUPS
from toolformer.reporting import paper
from toolformer.reporting.annotation_tables import examples_kept, funnel, reasons
from toolformer.reporting.data import GAIN, Evidence, Score
from toolformer.reporting.figures import figures, scaling
from toolformer.reporting.formatting import (
    DASH,
    SYMBOLS,
    SYSTEMS,
    from_run,
    in_table_order,
    name_of,
    own_tasks,
    repeats,
    short_commit,
    shown_count,
    shown_interval,
    shown_score,
    shown_sizes,
    title_of,
)
from toolformer.reporting.headline import headline
from toolformer.reporting.ladder import ladder, lost
from toolformer.reporting.outcome_tables import SIGNS, cost, paired, signs, tool_use, wordings
from toolformer.reporting.pairing import BASELINE
from toolformer.reporting.table import Cell, Column, Content, Table
from toolformer.reporting.table9 import by_threshold, table9
from toolformer.tracking import Run

_BEST = "95 % intervals in brackets, our best system in bold where all were asked as many examples."
_NOT_THE_PAPERS = f"Not the paper's data, so no figure of the paper is beside. {_BEST}"
_PAPERS = f"{_BEST} The paper's M is {paper.MODEL}; figures in the columns “paper” are from {paper.CITATION}."
_PERPLEXITY = (
    "Perplexity per token with calls disabled; lower is better; 95 % intervals in brackets, our best system "
    "in bold where all were asked as many texts. Held-out text stands in for the paper's CCNet. A perplexity "
    "depends on the tokenizer and the text: compare our rows with each other, not with the paper's."
)
_ARITHMETIC = "Plain arithmetic, the mean of ten families, percent correct"
_XQUAD = "XQuAD in the setting of Table 6 (English paragraph, foreign question), percent correct"
_PERPLEXITIES = ("wikitext_perplexity", "heldout_perplexity")
_ENGLISH = {task: task.replace("mlqa_", "mlqa_all_en_") for task in GROUPS["mlqa"]}
"""The columns of Table 6 and the same questions in English."""
_SCORES = {
    3: ("LAMA", GROUPS["lama"]),
    4: ("Math benchmarks", GROUPS["math"]),
    5: ("Question answering", GROUPS["qa"]),
    6: ("MLQA", GROUPS["mlqa"]),
    7: ("Temporal benchmarks", GROUPS["temporal"]),
}
_WITHOUT_CALLS = tuple(system for system in SYSTEMS if system != "toolformer")
"""Perplexity with calls would need a sum over all calls, so Toolformer has no row in Table 8."""


def content(evidence: Evidence, full: bool = False) -> Content:
    """A report's tables in the paper's order; with `full` also what was not measured, with the paper's own figures."""
    annotation = evidence.annotation
    own = own_tasks(task for _, task in evidence.scores)
    numbered = {number: scores(evidence, number, full) for number in _SCORES}
    tables = (
        examples_kept(evidence, full),
        numbered[3],
        numbered[4],
        systems_by_tasks(evidence, "arithmetic", "Arithmetic", _ARITHMETIC, ["arithmetic"], _NOT_THE_PAPERS),
        numbered[5],
        numbered[6],
        systems_by_tasks(evidence, "xquad", "XQuAD", _XQUAD, GROUPS["xquad"], _NOT_THE_PAPERS),
        numbered[7],
        systems_by_tasks(evidence, "own", "Own", "Benchmarks of one's own, in percent", own, _NOT_THE_PAPERS),
        systems_by_tasks(
            evidence, "table8", "Table 8", "Perplexity", _PERPLEXITIES, _PERPLEXITY, _WITHOUT_CALLS, full
        ),
        paired(evidence),
        tool_use(evidence),
        wordings(evidence),
        ladder(evidence.ladders),
        table9(evidence, full),
        by_threshold(evidence),
        cost(evidence),
        funnel(evidence),
        lost(annotation),
        reasons(evidence),
    )
    gain = annotation.difference if annotation else GAIN
    caption = (
        f"Calls that the filter kept, best first, and a few that it rejected, in their texts. The gain is {gain} in "
        "nats: how much easier the following tokens become by the call's result."
    )
    return Content(
        "Toolformer: measured beside the paper"
        + (f" ({evidence.experiment})" if evidence.experiment else ""),
        tuple(table for table in tables if table.rows),
        annotation.examples if annotation else (),
        caption,
        tuple(
            table for table in (symbols(), runs(evidence), missing(evidence)) if table.rows or table.caption
        ),
        evidence.remarks,
        figures(evidence),
        facts(evidence),
        gain,
        headline(evidence),
    )


def facts(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """What the report rests on, in a few figures."""
    rows = [(evidence.model, "model M")] if evidence.model else []
    if evidence.annotation:
        steps = [entry.steps for entry in evidence.annotation.funnel.values()]
        documents = max((step.get("documents", 0) for step in steps), default=0)
        rows.append((shown_count(documents), "texts annotated"))
        for name, label in (("sampled", "candidate calls"), ("kept", "calls kept")):
            rows.append((shown_count(sum(step.get(name, 0) for step in steps)), label))
    answered = {key: score for key, score in evidence.scores.items() if not key[1].endswith("perplexity")}
    if answered:
        rows.append((shown_count(len({task for _, task in answered})), "benchmarks"))
        rows.append((shown_count(sum(score.n or 0 for score in answered.values())), "answers scored"))
    return tuple(rows)


def runs(evidence: Evidence) -> Table:
    """Every run behind the report, with the figures that come from it."""
    uses: list[tuple[Run, str]] = []
    if evidence.annotation:
        uses += [(evidence.annotation.run, name) for name in ("Table 2", "Table 10", "Annotation")]
    uses += [(training.run, "Training") for training in evidence.trained.values()]
    for task in in_table_order(task for _, task in evidence.scores):
        for row in (*SYSTEMS, *sorted({row for row, _ in evidence.scores} - set(SYSTEMS))):
            if score := evidence.scores.get((row, task)):
                uses += [(run, title_of(task)) for run in (score.run, *score.others)]
    uses += [(run, "Table 9") for score in evidence.by_k.values() for run in (score.run, *score.others)]
    in_words = (score for scores in evidence.wordings.values() for score in scores.values())
    uses += [(run, "Wordings") for score in in_words for run in (score.run, *score.others)]
    uses += [(run, "By τ_f") for run in evidence.kept.values()]
    uses += [(score.run, "By τ_f") for score in evidence.by_threshold.values()]
    uses += [(score.run, "Figure 4") for score in evidence.sizes.values()]
    rows = []
    for run in {run.run_id: run for run, _ in uses}.values():
        tags, names = run.tags, dict.fromkeys(name for other, name in uses if other.run_id == run.run_id)
        cells = [run.run_id[:8], name_of(tags.get("system") or tags.get("data", "")), ", ".join(names)]
        cells += [repeats(run)]
        cells += [short_commit(run.commit), run.started.date().isoformat()]
        cells += [tags.get("device_name") or tags.get("device", "")]
        rows.append(tuple(map(Cell, cells)))
    labels = ("Run", "System or data", "Columns", "Again by", "Commit", "Date", "Device")
    columns = tuple(Column(label, numeric=False, wide=label == "Columns") for label in labels)
    return Table("runs", "", "Runs", columns, tuple(rows), "" if rows else "There is no finished run yet.")


def symbols() -> Table:
    """The legend."""
    rows = tuple((Cell(symbol), Cell(meaning)) for symbol, meaning in SYMBOLS.items())
    columns = (Column("Symbol", numeric=False), Column("Meaning", numeric=False, wide=True))
    return Table("symbols", "", "Symbols", columns, rows)


def missing(evidence: Evidence) -> Table:
    """What of the paper was not measured yet, a line an experiment, with the command that measures it."""
    annotated = {tool for tool, _ in evidence.annotation.counts} if evidence.annotation else set()
    lines = {"Table 2": [name for tool, name in paper.TOOLS.items() if tool not in annotated]}
    for number, (_, tasks) in _SCORES.items():
        lines[f"Table {number}"] = _absent(evidence, tasks)
    if any(("model", task) not in evidence.scores for task in _ENGLISH.values()):
        lines["Table 6"].append("All En")
    lines["Table 8"] = _absent(evidence, _PERPLEXITIES, _WITHOUT_CALLS)
    lines["Table 9"] = [
        f"{title_of(task)} with k = {', '.join(absent)}"
        for task in paper.BY_K
        if (absent := [str(k) for k in paper.KS if (k, task) not in evidence.by_k])
    ]
    lines["Table 10"] = [] if annotated else ["calls"]
    lines["Figure 4"] = [] if scaling(evidence) else ["two sizes of model"]
    rows = [
        (
            Cell(name),
            Cell("; ".join(parts)),
            Cell(f"toolformer run experiment={name.lower().replace(' ', '')}"),
        )
        for name, parts in lines.items()
        if parts
    ]
    columns = [Column(label, numeric=False, wide=label == "missing") for label in ("", "missing", "command")]
    return Table("missing", "", "Not measured yet", tuple(columns), tuple(rows))


def _absent(evidence: Evidence, tasks: Sequence[str], systems: Sequence[str] = tuple(SYSTEMS)) -> list[str]:
    """The tasks that lack a system, by name; with the systems where not all are lacking."""
    parts: dict[str, list[str]] = {}
    for task in tasks:
        absent = [SYSTEMS[system] for system in systems if (system, task) not in evidence.scores]
        if absent:
            of = "" if len(absent) == len(systems) else f" ({', '.join(absent)})"
            parts.setdefault(of, []).append(title_of(task))
    return [", ".join(names) + of for of, names in parts.items()]


def scores(evidence: Evidence, number: int, full: bool = False) -> Table:
    """Table `number`, from 3 to 7."""
    name, tasks = _SCORES[number]
    title = f"{name}, percent correct"
    return systems_by_tasks(evidence, f"table{number}", f"Table {number}", title, tasks, _PAPERS, full=full)


def systems_by_tasks(
    evidence: Evidence,
    key: str,
    number: str,
    title: str,
    tasks: Sequence[str],
    caption: str,
    systems: Sequence[str] = tuple(SYSTEMS),
    full: bool = False,
) -> Table:
    """The systems and benchmarks that were measured; with `full` all, and where there are scores the paper's larger models.

    Table 6 has rows in English below.
    """
    lower = key == "table8"
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
    sizes = {task: {score.n for (_, other), score in measured.items() if other == task} for task in tasks}
    columns = [Column("Model", numeric=False)]
    for task in tasks:
        columns.append(Column("this run", title_of(task), detail=shown_sizes(sizes[task])))
        if task in paper.SCORES:
            label = "paper (CCNet)" if task == "heldout_perplexity" else "paper"
            columns.append(Column(label, title_of(task), paper=True))
    own = {task: [measured[row, task] for row in systems if (row, task) in measured] for task in tasks}
    best = {task: _best(own[task], lower) for task in tasks}
    ties = {task for task in tasks if [shown_score(s.value, lower) for s in own[task]].count(best[task]) > 1}

    def line(
        name: str,
        detail: str,
        ours: Mapping[str, Score],
        theirs: Mapping[str, float],
        system: str = "",
        blank: str = "",
    ) -> tuple[Cell, ...]:
        cells = [Cell(name, detail)]
        for task in tasks:
            if score := ours.get(task):
                value = shown_score(score.value, lower)
                interval = shown_interval(score, lower, with_n=len(sizes[task]) != 1)
                bold = system in systems and value == best[task]
                detail = f"{interval} tie" if bold and task in ties else interval
                cells.append(from_run(Cell(value, detail, bold, signs(evidence, system, task)), score.run))
            else:
                cells.append(Cell(blank))
            if task in paper.SCORES:
                cells.append(Cell(f"{theirs[task]:.1f}" if task in theirs else ""))
        return tuple(cells)

    def of_paper(model: str) -> dict[str, float]:
        return {task: paper.SCORES[task][model] for task in tasks if model in paper.SCORES.get(task, {})}

    def of_row(row: str) -> dict[str, Score]:
        return {task: score for (other, task), score in measured.items() if other == row}

    rows = []
    for system in systems:
        theirs, name = paper.SYSTEMS[system], SYSTEMS[system]
        detail = "" if theirs == name else f"(paper: {theirs})"
        rows.append(line(name, detail, of_row(system), of_paper(theirs), system, DASH))
    rules = [len(rows)]
    for row in sorted({row for row, _ in measured} - set(systems)):
        rows.append(line(name_of(row), "(baseline)", of_row(row), {}, row))
    larger = paper.LARGER if full and key != "table8" else ()
    rows += [line(model, "", {}, of_paper(model)) for model in larger]
    rules.append(len(rows))
    if english or (full and key == "table6"):
        caption += " “All En”: the same questions in English."
        for model in ("GPT-J", *larger[1:]):
            ours = model == "GPT-J"
            theirs_english = {task: paper.ALL_ENGLISH[_ENGLISH[task]][model] for task in tasks}
            name, detail = ("M (All En)", "(paper: GPT-J)") if ours else (f"{model} (All En)", "")
            rows.append(
                line(name, detail, english if ours else {}, theirs_english, blank=DASH if ours else "")
            )
    if any(cell.signs for row in rows for cell in row):
        caption += f" {SIGNS}"
    rules = [index for index in dict.fromkeys(rules) if 0 < index < len(rows)]
    return Table(key, number, title, tuple(columns), tuple(rows), caption, tuple(rules))


def _best(scores: Sequence[Score], lower: bool) -> str:
    """The best of several values as it is shown, so that equal figures are equally bold; none where n differs."""
    values = [score.value for score in scores if math.isfinite(score.value)]
    if len({score.n for score in scores}) > 1 or len(values) < 2:
        return ""
    return shown_score((min if lower else max)(values), lower)
