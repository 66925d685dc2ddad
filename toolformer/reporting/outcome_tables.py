"""What stands beside the scores: paired differences and their significance, how often tools are called, cost.

Knows neither tracking nor any markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolformer.reporting import paper
from toolformer.reporting.cells import (
    DASH,
    SYSTEMS,
    TASKS,
    Notes,
    in_order,
    own_tasks,
    share_cell,
    shown_count,
    title_of,
)
from toolformer.reporting.commands import evaluation_command, no_annotation, no_training
from toolformer.reporting.evidence import Cost, Evidence, Score
from toolformer.reporting.layout import Cell, Column, Table
from toolformer.reporting.significance import PAIRS, is_significant

if TYPE_CHECKING:
    from benchmarks.paired import Estimate
    from toolformer.reporting.pairing import Compared

SIGN_OF = {"toolformer_disabled": "†", "model": "‡"}
SIGNS = (
    "† differs from Toolformer (disabled), ‡ differs from M: paired on the same examples, exact McNemar p < 0.05 "
    "(graded scores and perplexity: 95 % paired bootstrap interval without 0), not corrected for the number of comparisons."
)


def signs(evidence: Evidence, system: str, task: str) -> str:
    """The signs of those systems from which this one differs by more than chance."""
    return "".join(
        sign
        for other, sign in SIGN_OF.items()
        if (task, system, other) in evidence.paired and is_significant(evidence.paired[task, system, other])
    )


def paired(evidence: Evidence) -> Table:
    """Differences on the same examples, with intervals and McNemar's p."""
    measured = {task for task, *_ in evidence.paired} | {task for _, task in evidence.scores}
    tasks = [task for task in (*TASKS, *own_tasks(measured)) if task in measured]
    notes = Notes()
    rows = []
    for task in tasks or ["svamp"]:
        cells = [Cell(title_of(task) if tasks else "All benchmarks")]
        for system, other in PAIRS[:2]:
            if task.endswith("perplexity"):
                # Perplexity is measured with calls disabled: Toolformer (disabled) stands for both.
                system, other = PAIRS[2] if other == "model" else (system, other)
            found = evidence.paired.get((task, system, other))
            cells += _difference(evidence, found, task, system, other, notes)
        rows.append(tuple(cells))
    groups = [f"Toolformer − {SYSTEMS[other]}" for _, other in PAIRS[:2]]
    columns = [Column("Benchmark", numeric=False)]
    for group in groups:
        columns += [Column(label, group) for label in ("difference", "only it", "only other", "p")]
    caption = (
        "Percentage points (perplexity: its difference, of Toolformer (disabled), calls being off), over the examples "
        "that both systems were asked; 95 % paired bootstrap intervals in brackets. “Only it” and “only other” are the "
        "examples that one of the two alone has right, p is McNemar's from them, exact and two-sided; bold below "
        "0.05, not corrected for the number of comparisons."
    )
    title = "Toolformer against the disabled model and the base, example by example"
    return Table("paired", "Significance", title, tuple(columns), tuple(rows), caption, notes.all)


def _difference(
    evidence: Evidence, found: Compared | None, task: str, system: str, other: str, notes: Notes
) -> list[Cell]:
    if found is None:
        if task.endswith("perplexity") and system == "toolformer":
            return [Cell()] * 4  # not measured by anyone: calls are off
        absent = _absent(evidence, task, (system, other))
        if not absent:
            mark = notes.mark("The samples of one of the two are gone, or they share no example.")
        else:
            tasks = {name for _, name in evidence.scores}
            alike = [
                name
                for name in (*TASKS, *own_tasks(tasks))
                if name in tasks and _absent(evidence, name, (system, other)) == absent
            ]
            alike = [
                name for name in alike if name.endswith("perplexity") == task.endswith("perplexity")
            ] or [task]
            mark = notes.mark("Not measured yet:", evaluation_command(evidence, absent, alike))
        return [Cell(DASH, mark=mark)] * 4
    bold = is_significant(found)
    if found.scores:
        one = found.scores
        counts = [Cell(shown_count(one.only_second)), Cell(shown_count(one.only_first))]
        p = Cell(DASH) if one.p_value is None else Cell(_shown_p(one.p_value), bold=bold)
        return [_estimate(one.difference, 1, one.n), *counts, p]
    assert found.perplexity is not None
    shown = _estimate(found.perplexity.difference, 2, found.perplexity.n)
    return [Cell(shown.text, f"{shown.detail} a {found.unit}", bold), Cell(), Cell(), Cell()]


def _absent(evidence: Evidence, task: str, systems: tuple[str, str]) -> list[str]:
    return [system for system in systems if (system, task) not in evidence.scores]


def _estimate(estimate: Estimate, digits: int, n: int) -> Cell:
    low, high = f"{estimate.low:+.{digits}f}", f"{estimate.high:+.{digits}f}"
    return Cell(_minus(f"{estimate.value:+.{digits}f}"), _minus(f"[{low}, {high}] n = {shown_count(n)}"))


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _shown_p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def cost(evidence: Evidence) -> Table:
    """Seconds, calls and tokens: what making a system took, and what its answers took."""
    notes = Notes()
    rows = []
    for system, name in SYSTEMS.items():
        scores = [score for (one, _), score in evidence.scores.items() if one == system]
        made = _made_of(evidence, system, notes)
        if scores:
            rows.append((Cell(name), *made, *_answers(scores)))
        else:
            mark = notes.mark("Not measured yet:", evaluation_command(evidence, system, ["paper"]))
            rows.append((Cell(name), *made, *[Cell(DASH, mark=mark)] * 4))
    rules = (len(rows),) if evidence.baselines else ()
    for name in sorted({name for name, _ in evidence.baselines}):
        scores = [score for (one, _), score in evidence.baselines.items() if one == name]
        rows.append((Cell(name, "(baseline)"), *[Cell()] * 4, *_answers(scores)))
    columns = (
        Column("System", numeric=False),
        Column("annotation, s", "Making it"),
        Column("calls tried", "Making it"),
        Column("training, s", "Making it"),
        Column("tokens", "Making it"),
        Column("examples", "Answering"),
        Column("seconds", "Answering"),
        Column("calls", "Answering"),
        Column("tokens", "Answering"),
    )
    caption = (
        "Wall time on the device that the runs name (of an annotation what its workers took for the texts, in whichever "
        "run), over the benchmarks shown above; a call is an example with an "
        "executed call. Toolformer and Toolformer (disabled) are one model, made once."
    )
    return Table("cost", "Cost", "Seconds, calls and tokens", columns, tuple(rows), caption, notes.all, rules)


def _made_of(evidence: Evidence, system: str, notes: Notes) -> list[Cell]:
    if system == "model":
        return [Cell()] * 4
    data = "plain" if system == "model_cc" else "augmented"
    if evidence.annotation or data in evidence.annotating:
        shown = evidence.annotation.cost if evidence.annotation else Cost(None)
        found = evidence.annotating.get(data, shown)
        made = [Cell(_shown_seconds(found.seconds)), Cell(shown_count(found.calls))]
    else:
        made = [Cell(DASH, mark=notes.mark(*no_annotation(evidence)))] * 2
    training = evidence.training.get(data, Cost(None))
    mark = ""
    if data not in evidence.training:
        mark = notes.mark(*no_training(evidence, data))
    figures = (_shown_seconds(training.seconds), shown_count(training.tokens))
    return [*made, *(Cell(figure, mark=mark) for figure in figures)]


def _answers(found: Sequence[Score]) -> list[Cell]:
    examples = sum(score.n or 0 for score in found)
    timed = [score for score in found if score.seconds]
    seconds = sum(score.seconds or 0.0 for score in timed)
    per = seconds / answered if (answered := sum(score.n or 0 for score in timed)) else None
    written = [score for score in timed if score.tokens is not None]
    tokens = sum(score.tokens or 0 for score in written) if written else None
    speed = sum(score.seconds or 0.0 for score in written)
    calls = [score.calls for score in found if score.calls is not None]
    return [
        Cell(shown_count(examples)),
        Cell(_shown_seconds(seconds if timed else None), "" if per is None else f"{per:.2f} an example"),
        Cell(shown_count(sum(calls) if calls else None)),
        Cell(shown_count(tokens), f"{tokens / speed:,.0f} a second" if tokens and speed else ""),
    ]


def _shown_seconds(seconds: float | None) -> str:
    return DASH if seconds is None else f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.1f}"


def tool_use(evidence: Evidence) -> Table:
    """How often Toolformer calls its tools on each benchmark (the paper says it in its text)."""
    measured_tasks = {task for _, task in evidence.scores}
    tasks = [task for task in TASKS if not task.endswith("perplexity")] + own_tasks(measured_tasks)
    tasks = [task for task in tasks if task in measured_tasks or not task.startswith("xquad")]
    notes = Notes()
    absent = [task for task in tasks if _share_of(evidence, task) is None]
    measured = [score for (system, _), score in evidence.scores.items() if system == "toolformer"]
    tools = in_order({*paper.TOOLS, *(tool for score in measured for tool in score.tool_shares)})
    rows = []
    for task in tasks:
        score = evidence.scores.get(("toolformer", task))
        cells = [Cell(title_of(task))]
        if score is None or score.call_share is None:
            mark = notes.mark("Not measured yet:", evaluation_command(evidence, "toolformer", absent))
            cells += [Cell(DASH, mark=mark)] * (1 + len(tools))
        else:
            cells.append(share_cell(score.call_share, score.n))
            cells += [share_cell(score.tool_shares.get(tool, 0.0), score.n) for tool in tools]
        for_task = [(tool, share) for (name, tool), share in paper.TOOL_USE.items() if name == task]
        cells.append(
            Cell(", ".join(f"{share:.1f}" for _, share in for_task), ", ".join(tool for tool, _ in for_task))
        )
        rows.append(tuple(cells))
    columns = [Column("Benchmark", numeric=False), Column("any tool", "with a call, %")]
    columns += [Column(tool, "with a call, %") for tool in tools]
    columns.append(Column("paper", paper=True))
    caption = (
        "Toolformer with calls enabled (k = 10); 95 % Wilson intervals in brackets. The paper's 97.9 % is over its "
        "three math benchmarks together."
    )
    return Table(
        "tool_use",
        "Tool use",
        "Share of examples with a call",
        tuple(columns),
        tuple(rows),
        caption,
        notes.all,
    )


def _share_of(evidence: Evidence, task: str) -> float | None:
    score = evidence.scores.get(("toolformer", task))
    return score.call_share if score else None
