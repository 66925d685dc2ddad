"""The paper's tables as plain cells, our figures beside the paper's. Knows neither tracking nor any markup."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from benchmarks import GROUPS
from toolformer.reporting import paper
from toolformer.reporting.annotation_tables import examples_kept, funnel, passage, reasons
from toolformer.reporting.cells import (
    DASH,
    SYSTEMS,
    TASKS,
    Notes,
    own_tasks,
    short_commit,
    shown_count,
    shown_interval,
    shown_score,
    title_of,
)
from toolformer.reporting.commands import evaluation_command, no_annotation
from toolformer.reporting.evidence import GAIN, Evidence, RunNote
from toolformer.reporting.figures import drawn, figures
from toolformer.reporting.layout import Cell, Column, Content, Table, footnote
from toolformer.reporting.outcome_tables import SIGNS, cost, paired, signs, tool_use
from toolformer.reporting.significance import baseline_key
from toolformer.reporting.table9 import table9, tasks_of


def content(evidence: Evidence) -> Content:
    """The tables of a report in the paper's order."""
    tables = (
        examples_kept(evidence),
        scores(evidence, "table3", "Table 3", "LAMA, percent correct", GROUPS["lama"]),
        scores(evidence, "table4", "Table 4", "Math benchmarks, percent correct", GROUPS["math"]),
        scores(evidence, "table5", "Table 5", "Question answering, percent correct", GROUPS["qa"]),
        multilingual(evidence),
        *xquad(evidence),
        scores(
            evidence, "table7", "Table 7", "Temporal benchmarks, percent correct", ("templama", "dateset")
        ),
        *own(evidence),
        perplexity(evidence),
        paired(evidence),
        tool_use(evidence),
        table9(evidence),
        cost(evidence),
        funnel(evidence),
        reasons(evidence),
    )
    examples = evidence.annotation.examples if evidence.annotation else ()
    missing = None if evidence.annotation else footnote("a", *no_annotation(evidence))
    gain = evidence.annotation.difference if evidence.annotation else GAIN
    caption = (
        f"Calls that the filter kept, best first, and a few that it rejected, in their texts. The gain is {gain} in "
        "nats: how much easier the following tokens become by the call's result. A call stands alone where the run does "
        "not hold its text."
    )
    title = "Toolformer: measured beside the paper"
    if evidence.experiment:
        title += f" ({evidence.experiment})"
    passages = tuple(passage(example) for example in examples)
    return Content(
        title,
        runs(evidence),
        tables,
        passages,
        caption,
        missing,
        (*evidence.remarks, *evidence.unread),
        figures(evidence),
        facts(evidence),
        gain,
    )


def facts(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """What the report rests on, in a few figures."""
    found = []
    if evidence.model:
        found.append((evidence.model, "model M"))
    if evidence.annotation:
        steps = [entry.steps for entry in evidence.annotation.funnel.values()]
        documents = max((one.get("documents", 0) for one in steps), default=0)
        found.append((shown_count(documents), "texts annotated"))
        for step, label in (("sampled", "candidate calls"), ("kept", "calls kept")):
            found.append((shown_count(sum(one.get(step, 0) for one in steps)), label))
    answered = {key: score for key, score in evidence.scores.items() if not key[1].endswith("perplexity")}
    if answered:
        found.append((shown_count(len({task for _, task in answered})), "benchmarks"))
        found.append((shown_count(sum(score.n or 0 for score in answered.values())), "answers scored"))
    return tuple(found)


def runs(evidence: Evidence) -> Table:
    """Every run behind the report, with the figures that come from it."""
    used: dict[RunNote, list[str]] = {}
    if evidence.annotation:
        used[evidence.annotation.run] = ["Table 2", "Table 10", "Annotation"]
    for note in evidence.lineage:
        used.setdefault(note, [])
    for note in evidence.trained.values():
        used.setdefault(note, []).append("Training")
    measured = dict.fromkeys(task for _, task in (*evidence.scores, *evidence.baselines))
    for task in [task for task in TASKS if task in measured] + sorted(set(measured) - set(TASKS)):
        for system in SYSTEMS:
            if (system, task) in evidence.scores:
                used.setdefault(evidence.scores[system, task].run, []).append(title_of(task))
        for (_, name), score in evidence.baselines.items():
            if name == task:
                used.setdefault(score.run, []).append(title_of(task))
    for note, name in _of_figures(evidence):
        if name not in used.setdefault(note, []):
            used[note].append(name)
    rows = [
        (
            Cell(note.run_id[:8]),
            Cell(note.stage),
            Cell(SYSTEMS.get(note.system, note.system)),
            Cell(", ".join(names) or "lineage"),
            Cell(short_commit(note.commit)),
            Cell(note.date),
            Cell(note.device),
        )
        for note, names in used.items()
    ]
    labels = ("Run", "Stage", "System or data", "Columns", "Commit", "Date", "Device")
    columns = tuple(Column(label, numeric=False) for label in labels)
    return Table("runs", "", "Runs", columns, tuple(rows), "" if rows else "There is no finished run yet.")


def _of_figures(evidence: Evidence) -> Iterator[tuple[RunNote, str]]:
    """The runs of Table 9 and of Figure 4, as far as these are drawn."""
    swept = tasks_of(evidence)
    for (_, task), at_k in evidence.by_k.items():
        if at_k.run and task in swept:
            yield at_k.run, "Table 9"
    for score in drawn(evidence).values():
        yield score.run, "Figure 4"


def scores(
    evidence: Evidence, key: str, number: str, title: str, tasks: Sequence[str], notes: Notes | None = None
) -> Table:
    """A table of systems by tasks, as Tables 4 and 7."""
    caption = (
        f"95 % intervals in brackets, our best system in bold where all were asked the same examples. The paper's M is {paper.MODEL}; figures in the "
        f"columns “paper” are from {paper.CITATION}."
    )
    return _systems_by_tasks(evidence, key, number, title, tasks, tuple(SYSTEMS), caption, notes, larger=True)


def multilingual(evidence: Evidence) -> Table:
    """Table 6, with its rows in English."""
    notes = Notes()
    found = scores(evidence, "table6", "Table 6", "MLQA, percent correct", GROUPS["mlqa"], notes)
    english = [_all_english(evidence, theirs, notes) for theirs in ("GPT-J", paper.LARGER[1])]
    caption = f"{found.caption} “All En”: the same questions in English."
    return replace(
        found,
        rows=(*found.rows, *english),
        caption=caption,
        footnotes=notes.all,
        rules=(*found.rules, len(found.rows)),
    )


def xquad(evidence: Evidence) -> tuple[Table, ...]:
    """XQuAD, which is not the paper's, where it was measured."""
    if not {task for _, task in evidence.scores} & set(GROUPS["xquad"]):
        return ()
    title = "XQuAD in the setting of Table 6 (English paragraph, foreign question), percent correct"
    caption = "Not the paper's data, so no figure of the paper is beside. 95 % intervals in brackets, our best in bold."
    return (_systems_by_tasks(evidence, "xquad", "XQuAD", title, GROUPS["xquad"], tuple(SYSTEMS), caption),)


def own(evidence: Evidence) -> tuple[Table, ...]:
    """Benchmarks of the user's own, where some were measured."""
    tasks = own_tasks(task for _, task in evidence.scores)
    if not tasks:
        return ()
    caption = (
        "Not the paper's, so no figure of the paper is beside. 95 % intervals in brackets, our best in bold."
    )
    title = "Benchmarks of one's own, in percent"
    return (_systems_by_tasks(evidence, "own", "Own", title, tasks, tuple(SYSTEMS), caption),)


def _all_english(evidence: Evidence, theirs: str, notes: Notes) -> tuple[Cell, ...]:
    """Table 6's row of a model that is asked in English; ours is M."""
    ours = theirs == paper.SYSTEMS["model"]
    absent = [task for task in GROUPS["mlqa_all_en"] if ("model", task) not in evidence.scores]
    cells = [Cell(f"{SYSTEMS['model'] if ours else theirs} (All En)", f"(paper: {theirs})" if ours else "")]
    for task in GROUPS["mlqa_all_en"]:
        score = evidence.scores.get(("model", task)) if ours else None
        if score:
            cells.append(Cell(shown_score(score.value, False), shown_interval(score, False, True)))
        elif ours:
            mark = notes.mark("Not measured yet:", evaluation_command(evidence, "model", absent))
            cells.append(Cell(DASH, mark=mark))
        else:
            cells.append(Cell())
        cells.append(Cell(f"{paper.ALL_ENGLISH[task][theirs]:.1f}"))
    return tuple(cells)


def perplexity(evidence: Evidence) -> Table:
    """Table 8; perplexity with calls would need a sum over all calls, so Toolformer itself has no row."""
    caption = (
        "Perplexity per token with calls disabled; lower is better; 95 % intervals in brackets, our best system "
        "in bold where all were asked the same texts. Held-out text stands in for the paper's CCNet. A perplexity depends on the tokenizer and the "
        "text: compare our rows with each other, not with the paper's."
    )
    systems = tuple(system for system in SYSTEMS if system != "toolformer")
    tasks = ("wikitext_perplexity", "heldout_perplexity")
    return _systems_by_tasks(evidence, "table8", "Table 8", "Perplexity", tasks, systems, caption, lower=True)


def _systems_by_tasks(
    evidence: Evidence,
    key: str,
    number: str,
    title: str,
    tasks: Sequence[str],
    systems: Sequence[str],
    caption: str,
    notes: Notes | None = None,
    *,
    lower: bool = False,
    larger: bool = False,
) -> Table:
    notes = notes or Notes()
    sizes = {
        task: {score.n for (_, name), score in evidence.scores.items() if name == task} for task in tasks
    }
    columns = [Column("Model", numeric=False)]
    for task in tasks:
        common = next(iter(sizes[task])) if len(sizes[task]) == 1 else None
        name = title_of(task)
        columns.append(Column("this run", name, detail=f"n = {shown_count(common)}" if common else ""))
        columns.append(Column("paper (CCNet)" if task == "heldout_perplexity" else "paper", name, paper=True))
    best = {task: _best(evidence, task, systems, lower) for task in tasks}
    rows = []
    for system in systems:
        theirs = paper.SYSTEMS[system]
        cells = [Cell(SYSTEMS[system], "" if theirs == SYSTEMS[system] else f"(paper: {theirs})")]
        absent = [task for task in tasks if (system, task) not in evidence.scores]
        for task in tasks:
            score = evidence.scores.get((system, task))
            if score:
                shown = shown_score(score.value, lower)
                bold = shown == best[task]
                interval = shown_interval(score, lower, with_n=len(sizes[task]) > 1)
                cells.append(Cell(shown, interval, bold, signs=signs(evidence, system, task)))
            else:
                mark = notes.mark("Not measured yet:", evaluation_command(evidence, system, absent))
                cells.append(Cell(DASH, mark=mark))
            cells.append(_paper_cell(task, theirs))
        rows.append(tuple(cells))
    rules: tuple[int, ...] = ()
    others = sorted({name for name, task in evidence.baselines if task in tasks})
    if larger or others:
        rules = (len(rows),)
    for name in others:
        cells = [Cell(name, "(baseline)")]
        for task in tasks:
            score = evidence.baselines.get((name, task))
            cells.append(
                Cell(
                    shown_score(score.value, lower),
                    shown_interval(score, lower, True),
                    signs=signs(evidence, baseline_key(name), task),
                )
                if score
                else Cell()
            )
            cells.append(Cell())
        rows.append(tuple(cells))
    if larger:
        for name in paper.LARGER:
            rows.append((Cell(name), *(cell for task in tasks for cell in (Cell(), _paper_cell(task, name)))))
    if any(cell.signs for row in rows for cell in row):
        caption = f"{caption} {SIGNS}"
    return Table(key, number, title, tuple(columns), tuple(rows), caption, notes.all, rules)


def _paper_cell(task: str, name: str) -> Cell:
    value = paper.SCORES.get(task, {}).get(name)
    return Cell() if value is None else Cell(f"{value:.1f}")


def _best(evidence: Evidence, task: str, systems: Iterable[str], lower: bool) -> str:
    """The best of several values as it is shown, so that equal figures are equally bold; none where questions differ."""
    found = [evidence.scores[system, task] for system in systems if (system, task) in evidence.scores]
    if len({score.n for score in found}) > 1 or task in evidence.asked_otherwise:
        return ""
    values = [score.value for score in found if math.isfinite(score.value)]
    return shown_score((min if lower else max)(values), lower) if len(values) > 1 else ""
