"""The paper's tables as plain cells, our figures beside the paper's. Knows neither tracking nor any markup."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks import GROUPS, MLQA_LANGUAGES
from toolformer.calls import insert, linearise
from toolformer.reporting import paper
from toolformer.reporting.reader import STEPS, Evidence, Example, RunNote, Score

DASH = "–"
SYSTEMS: Mapping[str, str] = {
    "model": "M",
    "model_cc": "M + CC",
    "toolformer_disabled": "Toolformer (disabled)",
    "toolformer": "Toolformer",
}
TASKS: Mapping[str, str] = {
    "lama_squad": "SQuAD",
    "lama_google_re": "Google-RE",
    "lama_trex": "T-REx",
    "asdiv": "ASDiv",
    "svamp": "SVAMP",
    "mawps": "MAWPS",
    "webqs": "WebQS",
    "nq": "NQ",
    "triviaqa": "TriviaQA",
    **{f"mlqa_{language}": f"MLQA {language}" for language in MLQA_LANGUAGES},
    **{f"xquad_{language}": f"XQuAD {language}" for language in MLQA_LANGUAGES},
    "templama": "TempLAMA",
    "dateset": "Dateset",
    "wikitext_perplexity": "WikiText",
    "heldout_perplexity": "Held-out text",
}
CONTEXT = 110  # characters of text shown on either side of a call
LONGEST_CALL = 260  # characters


@dataclass(frozen=True)
class Cell:
    """One figure or label."""

    text: str = ""
    detail: str = ""
    """Small print beside it: an interval, a number of examples, the paper's name of a row."""
    bold: bool = False
    mark: str = ""
    """Letter of the footnote that belongs to it."""


@dataclass(frozen=True)
class Column:
    """A column; neighbours of one group stand under a common heading."""

    label: str
    group: str = ""
    paper: bool = False
    """Whether its figures are the paper's."""
    detail: str = ""
    numeric: bool = True
    wide: bool = False
    """Whether it holds sentences that are broken into lines."""


@dataclass(frozen=True)
class Footnote:
    """What a mark stands for; the command, if any, fills the marked cells."""

    mark: str
    text: str
    command: str = ""


@dataclass(frozen=True)
class Table:
    """A table and what is to be known about it."""

    key: str
    number: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    footnotes: tuple[Footnote, ...] = ()
    rules: tuple[int, ...] = ()
    """Rows before which a rule stands."""


@dataclass(frozen=True)
class Passage:
    """A call in its text, cut around it."""

    tool: str
    before: str
    call: str
    after: str
    """Begins with a blank unless the call stands inside a word."""
    gain: float
    kept: bool


@dataclass(frozen=True)
class Content:
    """All of a report, before any markup."""

    title: str
    runs: Table
    tables: tuple[Table, ...]
    passages: tuple[Passage, ...]
    passages_caption: str
    passages_footnote: Footnote | None
    remarks: tuple[str, ...]


def content(evidence: Evidence) -> Content:
    """The tables of a report in the paper's order."""
    from toolformer.reporting.table9 import table9  # stands on this module

    tables = (
        examples_kept(evidence),
        scores(evidence, "table3", "Table 3", "LAMA, percent correct", GROUPS["lama"]),
        scores(evidence, "table4", "Table 4", "Math benchmarks, percent correct", GROUPS["math"]),
        scores(evidence, "table5", "Table 5", "Question answering, percent correct", GROUPS["qa"]),
        multilingual(evidence),
        scores(
            evidence, "table7", "Table 7", "Temporal benchmarks, percent correct", ("templama", "dateset")
        ),
        perplexity(evidence),
        tool_use(evidence),
        table9(evidence),
        funnel(evidence),
        reasons(evidence),
    )
    examples = evidence.annotation.examples if evidence.annotation else ()
    missing = (
        None if evidence.annotation else Footnote("a", "No annotation yet:", _command(evidence, "generate"))
    )
    caption = (
        "Calls that the filter kept, best first, and a few that it rejected, in their texts. The gain is L⁻ − L⁺ in "
        "nats: how much easier the following tokens become by the call's result. A rejected call stands alone where "
        "its text kept no call, since the run does not hold such texts."
    )
    title = "Toolformer: measured beside the paper"
    if evidence.experiment:
        title += f" ({evidence.experiment})"
    passages = tuple(passage(example) for example in examples)
    return Content(title, runs(evidence), tables, passages, caption, missing, evidence.remarks)


def runs(evidence: Evidence) -> Table:
    """Every run behind the report, with the figures that come from it."""
    used: dict[RunNote, list[str]] = {}
    if evidence.annotation:
        used[evidence.annotation.run] = ["Table 2", "Table 10", "Annotation"]
    for note in evidence.lineage:
        used.setdefault(note, [])
    for task in TASKS:
        for system in SYSTEMS:
            if (system, task) in evidence.scores:
                used.setdefault(evidence.scores[system, task].run, []).append(TASKS[task])
    for (_, task), score in evidence.baselines.items():
        used.setdefault(score.run, []).append(TASKS.get(task, task))
    rows = [
        (
            Cell(note.run_id[:8]),
            Cell(note.stage),
            Cell(SYSTEMS.get(note.system, note.system)),
            Cell(", ".join(names) or "lineage"),
            Cell(_short_commit(note.commit)),
            Cell(note.date),
            Cell(note.device),
        )
        for note, names in used.items()
    ]
    labels = ("Run", "Stage", "System or data", "Columns", "Commit", "Date", "Device")
    columns = tuple(Column(label, numeric=False) for label in labels)
    return Table("runs", "", "Runs", columns, tuple(rows), "" if rows else "There is no finished run yet.")


def examples_kept(evidence: Evidence) -> Table:
    """Table 2: texts with at least one call whose gain reaches τ_f."""
    annotation = evidence.annotation
    known = {tool for tool, _ in annotation.counts} if annotation else set()
    notes = _Notes()
    rows = []
    for tool in _in_order({*paper.TOOLS, *known}):
        cells = [Cell(paper.TOOLS.get(tool, tool))]
        tried = (
            annotation.funnel[tool].steps.get("selected")
            if annotation and tool in annotation.funnel
            else None
        )
        if annotation and tool in known:
            counts = [annotation.counts[tool, threshold] for threshold in paper.THRESHOLDS]
            cells += [Cell(_count(tried))]
            cells += [Cell(_count(count.examples), _calls(count.calls)) for count in counts]
        else:
            overrides = [f"tools=[{','.join(paper.TOOLS)}]"] if annotation else []
            mark = notes.mark("Not annotated yet:", _command(evidence, "generate", *overrides))
            cells += [Cell(DASH, mark=mark)] * 4
        figures = paper.EXAMPLES_KEPT.get(tool)
        cells += [Cell(_count(figure)) for figure in figures] if figures else [Cell()] * 3
        rows.append(tuple(cells))
    columns = [Column("API", numeric=False), Column("texts tried", "This run")]
    columns += [Column(f"τ_f = {threshold}", "This run") for threshold in paper.THRESHOLDS]
    columns += [Column(f"τ_f = {threshold}", "Paper", paper=True) for threshold in paper.THRESHOLDS]
    caption = (
        "Texts with at least one call whose gain reaches τ_f; in brackets, how many calls they hold. Counted from "
        "all scored candidates of one run. The paper annotated a part of CCNet, ours is another, smaller corpus: "
        "compare shares, not counts."
    )
    title = "Examples with calls in C*, by filtering threshold"
    return Table("table2", "Table 2", title, tuple(columns), tuple(rows), caption, notes.all)


def scores(evidence: Evidence, key: str, number: str, title: str, tasks: Sequence[str]) -> Table:
    """A table of systems by tasks, as Tables 4 and 7."""
    caption = (
        f"95 % intervals in brackets, our best system in bold. The paper's M is {paper.MODEL}; figures in the "
        f"columns “paper” are from {paper.CITATION}."
    )
    return _systems_by_tasks(evidence, key, number, title, tasks, tuple(SYSTEMS), caption, larger=True)


def multilingual(evidence: Evidence) -> Table:
    """Table 6; where MLQA was not measured and XQuAD was, XQuAD stands in for it, without the paper's figures."""
    measured = {task for _, task in evidence.scores}
    if measured & set(GROUPS["xquad"]) and not measured & set(GROUPS["mlqa"]):
        title = "XQuAD in the setting of MLQA (English paragraph, foreign question), percent correct"
        tasks, caption = (
            GROUPS["xquad"],
            "Not the paper's data: XQuAD stands in for MLQA, so no figure of the paper is beside.",
        )
        return _systems_by_tasks(evidence, "table6", "Table 6", title, tasks, tuple(SYSTEMS), caption)
    return scores(evidence, "table6", "Table 6", "MLQA, percent correct", GROUPS["mlqa"])


def perplexity(evidence: Evidence) -> Table:
    """Table 8; perplexity with calls would need a sum over all calls, so Toolformer itself has no row."""
    caption = (
        "Perplexity per token with calls disabled; lower is better; 95 % intervals in brackets, our best system "
        "in bold. Held-out text stands in for the paper's CCNet. A perplexity depends on the tokenizer and the "
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
    *,
    lower: bool = False,
    larger: bool = False,
) -> Table:
    notes = _Notes()
    sizes = {
        task: {score.n for (_, name), score in evidence.scores.items() if name == task} for task in tasks
    }
    columns = [Column("Model", numeric=False)]
    for task in tasks:
        common = next(iter(sizes[task])) if len(sizes[task]) == 1 else None
        columns.append(Column("this run", TASKS[task], detail=f"n = {_count(common)}" if common else ""))
        columns.append(
            Column("paper (CCNet)" if task == "heldout_perplexity" else "paper", TASKS[task], paper=True)
        )
    best = {task: _best(evidence, task, systems, lower) for task in tasks}
    rows = []
    for system in systems:
        theirs = paper.SYSTEMS[system]
        cells = [Cell(SYSTEMS[system], "" if theirs == SYSTEMS[system] else f"(paper: {theirs})")]
        absent = [task for task in tasks if (system, task) not in evidence.scores]
        for task in tasks:
            score = evidence.scores.get((system, task))
            if score:
                shown = _score_text(score.value, lower)
                bold = shown == best[task]
                cells.append(Cell(shown, _interval(score, lower, with_n=len(sizes[task]) > 1), bold))
            else:
                mark = notes.mark("Not measured yet:", _evaluation(evidence, system, absent))
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
                Cell(_score_text(score.value, lower), _interval(score, lower, True)) if score else Cell()
            )
            cells.append(Cell())
        rows.append(tuple(cells))
    if larger:
        for name in paper.LARGER:
            rows.append((Cell(name), *(cell for task in tasks for cell in (Cell(), _paper_cell(task, name)))))
    return Table(key, number, title, tuple(columns), tuple(rows), caption, notes.all, rules)


def _paper_cell(task: str, name: str) -> Cell:
    value = paper.SCORES.get(task, {}).get(name)
    return Cell() if value is None else Cell(f"{value:.1f}")


def _best(evidence: Evidence, task: str, systems: Iterable[str], lower: bool) -> str:
    """The best of several values as it is shown, so that equal figures are equally bold."""
    values = [evidence.scores[system, task].value for system in systems if (system, task) in evidence.scores]
    values = [value for value in values if math.isfinite(value)]
    return _score_text((min if lower else max)(values), lower) if len(values) > 1 else ""


def tool_use(evidence: Evidence) -> Table:
    """How often Toolformer calls its tools on each benchmark (the paper says it in its text)."""
    measured_tasks = {task for _, task in evidence.scores}
    tasks = [task for task in TASKS if not task.endswith("perplexity")]
    tasks = [task for task in tasks if task in measured_tasks or not task.startswith("xquad")]
    notes = _Notes()
    absent = [task for task in tasks if _share_of(evidence, task) is None]
    measured = [score for (system, _), score in evidence.scores.items() if system == "toolformer"]
    tools = _in_order({*paper.TOOLS, *(tool for score in measured for tool in score.tool_shares)})
    rows = []
    for task in tasks:
        score = evidence.scores.get(("toolformer", task))
        cells = [Cell(TASKS[task])]
        if score is None or score.call_share is None:
            mark = notes.mark("Not measured yet:", _evaluation(evidence, "toolformer", absent))
            cells += [Cell(DASH, mark=mark)] * (1 + len(tools))
        else:
            cells.append(_share(score.call_share, score.n))
            cells += [_share(score.tool_shares.get(tool, 0.0), score.n) for tool in tools]
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


def funnel(evidence: Evidence) -> Table:
    """What each step of the annotation left, per tool."""
    found = evidence.annotation.funnel if evidence.annotation else {}
    steps = [step for step in STEPS if not found or any(step in entry.steps for entry in found.values())]
    notes = _Notes()
    rows = [
        (Cell(paper.TOOLS.get(tool, tool)), *(Cell(_count(found[tool].steps.get(step))) for step in steps))
        for tool in _in_order(found)
    ]
    if not rows:
        mark = notes.mark("No annotation yet:", _command(evidence, "generate"))
        rows.append((Cell("All tools"), *[Cell(DASH, mark=mark)] * len(steps)))
    columns = (Column("Tool", numeric=False), *(Column(step.replace("_", "-")) for step in steps))
    caption = "Texts (documents, selected), then places and calls: what each step of the annotation left."
    if evidence.annotation and evidence.annotation.skipped:
        caption += f" Rows skipped while reading the corpus: {_reasons(evidence.annotation.skipped)}."
    return Table("funnel", "Annotation", "From texts to kept calls", columns, tuple(rows), caption, notes.all)


def reasons(evidence: Evidence) -> Table:
    """Why texts and candidates went no further, per tool."""
    found = evidence.annotation.funnel if evidence.annotation else {}
    rows = tuple(
        (
            Cell(paper.TOOLS.get(tool, tool)),
            Cell(_reasons(found[tool].reasons)),
            Cell(_reasons({**found[tool].window_reasons, **found[tool].drop_reasons})),
            Cell(_reasons(found[tool].filter_reasons)),
        )
        for tool in _in_order(found)
    )
    columns = (
        Column("Tool", numeric=False),
        Column("texts by decision", numeric=False, wide=True),
        Column("windows and candidates dropped", numeric=False, wide=True),
        Column("scored, not kept", numeric=False, wide=True),
    )
    return Table("reasons", "Annotation", "Reasons", columns, rows, "" if rows else "No annotation yet.")


def _in_order(tools: Iterable[str]) -> list[str]:
    known = set(tools)
    return [tool for tool in paper.TOOLS if tool in known] + sorted(known - set(paper.TOOLS))


def passage(example: Example) -> Passage:
    """The call in its text, with some context on either side."""
    call = linearise(example.call)
    if len(call) > LONGEST_CALL:
        call = f"{call[: LONGEST_CALL - 3]} …]"
    if example.text is None:
        return Passage(example.tool, "", call.strip(), "", example.gain, example.kept)
    whole = insert(example.text, [(example.position, example.call)])
    end = example.position + len(linearise(example.call))
    before, after = _cut(whole[: example.position], left=True), _cut(whole[end:], left=False)
    if whole[end : end + 1].isspace():
        after = f" {after}"
    return Passage(example.tool, before, call.strip(), after, example.gain, example.kept)


def _cut(text: str, *, left: bool) -> str:
    """One line of at most CONTEXT characters, cut between words where there are any."""
    flat = " ".join(text.split())
    if len(flat) <= CONTEXT:
        return flat
    if left:
        part = flat[-CONTEXT:]
        return "… " + (part.split(" ", 1)[1] if " " in part[: CONTEXT // 2] else part)
    part = flat[:CONTEXT]
    return (part.rsplit(" ", 1)[0] if " " in part[CONTEXT // 2 :] else part) + " …"


class _Notes:
    """Footnotes of a table; equal ones share a mark."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], str] = {}

    def mark(self, text: str, command: str = "") -> str:
        return self._marks.setdefault((text, command), _letters(len(self._marks)))

    @property
    def all(self) -> tuple[Footnote, ...]:
        return tuple(Footnote(mark, text, command) for (text, command), mark in self._marks.items())


def _letters(number: int) -> str:
    return chr(ord("a") + number % 26) * (number // 26 + 1)


def _command(evidence: Evidence, stage: str, *overrides: str) -> str:
    named = [f"name={evidence.experiment}"] if evidence.experiment else []
    return shlex.join(["toolformer", stage, *named, *overrides])


def _evaluation(evidence: Evidence, system: str, tasks: Sequence[str]) -> str:
    """The command, or commands, that measure a system: what it is made of comes first where it is missing."""
    steps = []
    if system != "model":
        data = "plain" if system == "model_cc" else "augmented"
        if not evidence.annotation:
            steps.append(_command(evidence, "generate"))
        if data not in evidence.trained:
            steps.append(_command(evidence, "train", f"data={data}"))
    steps.append(_command(evidence, "evaluate", f"system={system}", f"benchmarks=[{','.join(tasks)}]"))
    return " && ".join(steps)


def _score_text(value: float, perplexity: bool) -> str:
    return f"{value:.2f}" if perplexity else f"{value:.1f}"


def _interval(score: Score, perplexity: bool, with_n: bool) -> str:
    parts = []
    if score.low is not None and score.high is not None:
        parts.append(f"[{_score_text(score.low, perplexity)}, {_score_text(score.high, perplexity)}]")
    if with_n and score.n is not None:
        parts.append(f"n = {_count(score.n)}")
    return " ".join(parts)


def _share(share: float, n: int | None) -> Cell:
    if not n:
        return Cell(f"{100 * share:.1f}")
    low, high = wilson(share, n)
    return Cell(f"{100 * share:.1f}", f"[{100 * low:.1f}, {100 * high:.1f}]")


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, both in 0 to 1; `n` is at least 1."""
    z = 1.959964
    centre = share + z * z / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def _count(number: int | None) -> str:
    return DASH if number is None else f"{number:,}"


def _calls(number: int) -> str:
    return f"({_count(number)} call{'' if number == 1 else 's'})" if number else ""


def _reasons(reasons: Mapping[str, int]) -> str:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{reason} {_count(number)}" for reason, number in ordered)


def _short_commit(commit: str) -> str:
    name, dash, dirty = commit.partition("-")
    return f"{name[:10]}{dash}{dirty}"
