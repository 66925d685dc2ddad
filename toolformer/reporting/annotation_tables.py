"""What the annotation found: Table 2, the calls of Table 10 in their texts, the funnel and its reasons."""

from __future__ import annotations

from toolformer.calls import insert, linearise
from toolformer.reporting import paper
from toolformer.reporting.cells import DASH, Notes, in_order, shown_calls, shown_count, shown_reasons
from toolformer.reporting.commands import annotation_command, no_annotation
from toolformer.reporting.evidence import STEPS, Evidence, Example
from toolformer.reporting.layout import Cell, Column, Passage, Table

CONTEXT = 110  # characters of text shown on either side of a call
LONGEST_CALL = 260  # characters


def examples_kept(evidence: Evidence) -> Table:
    """Table 2: texts with at least one call whose gain reaches τ_f."""
    annotation = evidence.annotation
    known = {tool for tool, _ in annotation.counts} if annotation else set()
    notes = Notes()
    rows = []
    tools = in_order({*paper.TOOLS, *known})
    missing = (
        ("Not annotated yet, and all is made anew with it:", annotation_command(evidence, tools))
        if annotation
        else no_annotation(evidence)
    )
    for tool in tools:
        cells = [Cell(paper.TOOLS.get(tool, tool))]
        tried = (
            annotation.funnel[tool].steps.get("selected")
            if annotation and tool in annotation.funnel
            else None
        )
        if annotation and tool in known:
            counts = [annotation.counts[tool, threshold] for threshold in paper.THRESHOLDS]
            cells += [Cell(shown_count(tried))]
            cells += [Cell(shown_count(count.examples), shown_calls(count.calls)) for count in counts]
        else:
            cells += [Cell(DASH, mark=notes.mark(*missing))] * 4
        figures = paper.EXAMPLES_KEPT.get(tool)
        cells += [Cell(shown_count(figure)) for figure in figures] if figures else [Cell()] * 3
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


def funnel(evidence: Evidence) -> Table:
    """What each step of the annotation left, per tool."""
    found = evidence.annotation.funnel if evidence.annotation else {}
    steps = [step for step in STEPS if not found or any(step in entry.steps for entry in found.values())]
    notes = Notes()
    rows = [
        (
            Cell(paper.TOOLS.get(tool, tool)),
            *(Cell(shown_count(found[tool].steps.get(step))) for step in steps),
        )
        for tool in in_order(found)
    ]
    if not rows:
        mark = notes.mark(*no_annotation(evidence))
        rows.append((Cell("All tools"), *[Cell(DASH, mark=mark)] * len(steps)))
    columns = (Column("Tool", numeric=False), *(Column(step.replace("_", "-")) for step in steps))
    caption = "Texts (documents, selected), then places and calls: what each step of the annotation left."
    if evidence.annotation and evidence.annotation.skipped:
        caption += f" Rows skipped while reading the corpus: {shown_reasons(evidence.annotation.skipped)}."
    return Table("funnel", "Annotation", "From texts to kept calls", columns, tuple(rows), caption, notes.all)


def reasons(evidence: Evidence) -> Table:
    """Why texts and candidates went no further, per tool."""
    found = evidence.annotation.funnel if evidence.annotation else {}
    rows = tuple(
        (
            Cell(paper.TOOLS.get(tool, tool)),
            Cell(shown_reasons(found[tool].reasons)),
            Cell(shown_reasons({**found[tool].window_reasons, **found[tool].drop_reasons})),
            Cell(shown_reasons(found[tool].filter_reasons)),
        )
        for tool in in_order(found)
    )
    columns = (
        Column("Tool", numeric=False),
        Column("texts by decision", numeric=False, wide=True),
        Column("windows and candidates dropped", numeric=False, wide=True),
        Column("scored, not kept", numeric=False, wide=True),
    )
    return Table("reasons", "Annotation", "Reasons", columns, rows, "" if rows else "No annotation.")


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
