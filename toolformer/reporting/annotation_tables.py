"""Results of an annotation: Table 2, the funnel and its reasons, and where the yield is lost."""

from collections.abc import Mapping, Sequence
from typing import Any

from toolformer.annotation.funnel import STEPS
from toolformer.reporting import paper
from toolformer.reporting.candidate_stats import FATES
from toolformer.reporting.data import Annotation
from toolformer.reporting.formatting import implementations, in_order, tool_name
from toolformer.reporting.table import Cell, Passage, Table, Value, cell, number_columns, text_columns
from toolformer.tools.limits import CALL_TOO_LONG

MOST_CUT = 0.05
"""Share of calls that may be too long, or have a result that is, without a word."""
_SKIPPED = "rows_skipped/"
_LABEL = "τ_f = {}".format


def examples_kept(annotation: Annotation | None, full: bool = False) -> Table:
    """Table 2: texts with at least one call whose gain reaches τ_f, of the tools that were annotated (`full`: of all)."""
    counts = annotation.counts if annotation else {}
    funnels = annotation.funnel if annotation else {}
    known = {tool for tool, _ in counts}
    thresholds = sorted({*paper.THRESHOLDS, *(threshold for _, threshold in counts)})
    rows: list[list[Value]] = []
    for tool in in_order({*paper.TOOLS, *known} if full else known):
        counted = (counts.get((tool, threshold), (None, 0)) for threshold in thresholds)
        kept = (
            cell(texts, f"({calls:,} call{'s' * (calls != 1)})" * (calls > 0)) for texts, calls in counted
        )
        papers = paper.EXAMPLES_KEPT.get(tool, ("", "", ""))
        rows.append([tool_name(tool), funnels.get(tool, {}).get("selected"), *kept, *papers])
    columns = [
        *text_columns("API"),
        *number_columns("texts tried", *map(_LABEL, thresholds), group="This run"),
        *number_columns(*map(_LABEL, paper.THRESHOLDS), group="Paper", paper=True),
    ]
    caption = (
        "Texts with at least one call whose gain reaches τ_f; in brackets, how many calls they hold. At the run's τ_f, what it "
        "kept. The paper annotated "
        "another, larger corpus: compare shares, not counts."
    )
    title = "Examples with calls in C*, by filtering threshold"
    return Table.of("table2", "Table 2", title, columns, rows, caption)


def funnel(annotation: Annotation) -> Table:
    """Texts and calls left by each step of the annotation, per tool."""
    entries = annotation.funnel
    steps = [step for step in STEPS if any(step in entry for entry in entries.values())]
    rows = [[tool_name(tool), *(entries[tool].get(step) for step in steps)] for tool in in_order(entries)]
    columns = [*text_columns("Tool"), *number_columns(*(step.replace("_", "-") for step in steps))]
    caption = (
        "Texts (documents, selected), then positions and calls, as each step of the annotation left them."
    )
    if any("kept_leaking" in entry for entry in entries.values()):
        columns += number_columns("leaking")
        rows = [
            [*row, entries[tool].get("kept_leaking")]
            for row, tool in zip(rows, in_order(entries), strict=True)
        ]
        caption += " Leaking: kept calls that hold a number or a name which the text has only after them."
    caption += _cut(entries)
    if used := implementations([annotation.run]):
        caption += f" Tools: {used}."
    metrics = annotation.run.metrics.items()
    if skipped := {name[len(_SKIPPED) :]: round(n) for name, n in metrics if name.startswith(_SKIPPED)}:
        caption += f" Rows skipped while reading the corpus: {_listed(skipped)}."
    return Table.of("funnel", "Annotation", "From texts to kept calls", columns, rows, caption)


def _cut(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """A sentence for each kind of cut that more than `MOST_CUT` of a tool's calls, or of their results, were too long for."""
    shares = {
        "Calls longer than tool.NAME.max_call_tokens": {
            tool: (entry.get("drop_reasons", {}).get(CALL_TOO_LONG, 0), entry.get("sampled", 0))
            for tool, entry in entries.items()
        },
        "Results cut to tool.NAME.max_result_tokens": {
            tool: (entry.get("results_cut", 0), entry.get("executed", 0)) for tool, entry in entries.items()
        },
    }
    sentences = {
        what: [
            f"{tool_name(tool)} {100 * n / of:.0f} %" for tool, (n, of) in counts.items() if n > MOST_CUT * of
        ]
        for what, counts in shares.items()
    }
    return "".join(f" {what}: {', '.join(tools)}." for what, tools in sentences.items() if tools)


def reasons(annotation: Annotation) -> Table:
    """Why texts and candidates went no further, per tool."""
    rows: list[list[Value]] = []
    for tool in in_order(annotation.funnel):
        texts, windows, dropped, filtered = (
            annotation.funnel[tool].get(f"{name}reasons", {}) for name in ("", "window_", "drop_", "filter_")
        )
        rows.append([tool_name(tool), *map(_listed, (texts, {**windows, **dropped}, filtered))])
    labels = ("texts by decision", "windows and candidates dropped", "scored, not kept")
    return Table.of("reasons", "Annotation", "Reasons", text_columns("Tool", *labels, wide=labels), rows)


def lost(annotation: Annotation) -> Table:
    """How far the texts tried came with their best call: a row per tool."""
    rows: list[list[Value]] = []
    for tool in in_order(annotation.lost):
        fates, tried = annotation.lost[tool], sum(annotation.lost[tool].values())
        cells = (cell(fates[fate], f"({100 * fates[fate] / tried:.1f} %)" if tried else "") for fate in FATES)
        rows.append([tool_name(tool), tried, *cells])
    columns = [*text_columns("Tool"), *number_columns("texts tried", *FATES)]
    caption = (
        "Every text tried counts once, with the call that came furthest; no position: no call was tried; no help: no result "
        "lowers the loss; not kept: one does, and its gain is below τ_f, or it leaks or was not drawn."
    )
    return Table.of("lost", "Annotation", "Where the yield is lost", columns, rows, caption)


def nearest(passages: Sequence[Passage]) -> Table:
    """The calls nearest below τ_f, in their texts."""
    rows: list[list[Value]] = [
        [tool_name(passage.tool), Cell(passage.gain, 2), f"{passage.before} {passage.call}{passage.after}"]
        for passage in passages
    ]
    columns = [*text_columns("Tool"), *number_columns("gain"), *text_columns("Example", wide=["Example"])]
    return Table.of("misses", "Annotation", "Nearest misses", columns, rows, "Gains in nats, below τ_f.")


def leaking(passages: Sequence[tuple[str, Passage]]) -> Table:
    """Kept calls that hold what appears only after them, in their texts."""
    rows: list[list[Value]] = [
        [tool_name(call.tool), Cell(call.gain, 2), leak, f"{call.before} {call.call}{call.after}"]
        for leak, call in passages
    ]
    columns = [
        *text_columns("Tool"),
        *number_columns("gain"),
        *text_columns("leaks", "Example", wide=["Example"]),
    ]
    caption = "Numbers and names of the call that the text has only after it; filter.leak=drop leaves such calls out."
    return Table.of("leaking", "Annotation", "Kept calls that leak", columns, rows, caption)


def _listed(reasons: Mapping[str, int]) -> str:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{reason} {number:,}" for reason, number in ordered)
