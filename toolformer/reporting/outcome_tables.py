"""The tables beside the scores: paired differences and their significance, how often tools are called, cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.figures import GOLD_NATS
from toolformer.decoding.settings import TRAINED_ON
from toolformer.reporting import paper
from toolformer.reporting.data import Evidence, Score
from toolformer.reporting.formatting import (
    DASH,
    SYSTEMS,
    from_run,
    in_order,
    in_table_order,
    name_of,
    repeats,
    share_cell,
    shown_count,
    shown_sizes,
    title_of,
)
from toolformer.reporting.pairing import PAIRS, Compared, is_significant
from toolformer.reporting.table import Cell, Column, Table

if TYPE_CHECKING:
    from benchmarks.paired import Estimate

DIFFERENCE = ("difference", "only it", "only other", "p", "detectable")
SIGN_OF = {"toolformer_disabled": "†", "model": "‡"}
SIGNS = (
    "† differs from Toolformer (disabled), ‡ differs from M: paired on the same examples, p < 0.05 corrected for all "
    "comparisons of the report (Holm); exact McNemar, or for graded scores, perplexity and several seeds a paired t test."
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
    rows = []
    for task in in_table_order(task for task, *_ in evidence.paired):
        # Perplexity is measured with calls disabled: Toolformer (disabled) stands for both.
        pairs = (PAIRS[0], PAIRS[2] if task.endswith("perplexity") else PAIRS[1])
        cells = [cell for pair in pairs for cell in _difference(evidence, task, *pair)]
        if any(cell.text for cell in cells):
            rows.append((Cell(title_of(task)), *cells))
    groups = [f"Toolformer − {SYSTEMS[other]}" for _, other in PAIRS[:2]]
    columns = [Column("Benchmark", numeric=False)]
    for group in groups:
        columns += [Column(label, group) for label in DIFFERENCE]
    caption = (
        "Percentage points (perplexity: its difference, of Toolformer (disabled), calls being off), over the examples "
        "that both systems were asked; 95 % paired bootstrap intervals in brackets. “Only it” and “only other” are the "
        "examples that one of the two alone has right; p is two-sided: McNemar's from them, exact, or of a paired t test "
        "for perplexity, graded scores and several seeds. Below it p corrected for all comparisons of the report (Holm); "
        "bold where that is below 0.05. “Detectable” is the least difference (perplexity: ratio) that a test at 5 % of so "
        "many examples shows in four cases of five."
    )
    title = "Toolformer against the disabled model and the base, example by example"
    return Table("paired", "Significance", title, tuple(columns), tuple(rows), caption)


def _difference(evidence: Evidence, task: str, system: str, other: str) -> list[Cell]:
    compared = evidence.paired.get((task, system, other))
    if compared is None:
        return [Cell()] * len(DIFFERENCE)
    measured = task.removesuffix(f"/{GOLD_NATS}")
    first, second = (evidence.scores[row, measured].run.run_id[:8] for row in (other, system))
    command = f"toolformer compare {first} {second}"
    return [replace(cell, run=second, command=command) for cell in _compared(compared)]


def _compared(compared: Compared) -> list[Cell]:
    comparison, p = compared.scores or compared.perplexity, Cell(DASH)
    assert comparison
    if compared.p_value is not None:
        detail = "" if compared.p_holm is None else f"Holm {shown_p(compared.p_holm)}"
        p = Cell(shown_p(compared.p_value), detail, is_significant(compared))
    least = comparison.detectable
    if scores := compared.scores:
        digits = 2 if compared.task.endswith(GOLD_NATS) else 1
        shown, counts = (
            _estimate(scores.difference, digits, scores.n),
            (scores.only_second, scores.only_first),
        )
        detectable = DASH if least is None else f"{least:.{digits}f}"
    else:
        shown, counts = _estimate(comparison.difference, 2, comparison.n), (None, None)
        shown = Cell(shown.text, f"{shown.detail} a {compared.unit}")
        detectable = DASH if least is None else f"× {least:.3f}"
    if max(compared.seeds) > 1:
        shown = Cell(
            shown.text, f"{shown.detail} ({' and '.join(map(str, sorted(set(compared.seeds))))} seeds)"
        )
    return [
        shown,
        *(Cell("" if count is None else shown_count(count)) for count in counts),
        p,
        Cell(detectable),
    ]


def shown_p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def _estimate(estimate: Estimate, digits: int, n: int) -> Cell:
    value, low, high = (
        f"{number:+.{digits}f}".replace("-", "−") for number in (estimate.value, estimate.low, estimate.high)
    )
    return Cell(value, f"[{low}, {high}] n = {shown_count(n)}")


def cost(evidence: Evidence) -> Table:
    """Seconds, calls and tokens: what making a system took, and what its answers took."""
    rows = []
    systems = list(SYSTEMS)
    for system in (*systems, *sorted({row for row, _ in evidence.scores} - set(systems))):
        scores = [score for (row, _), score in evidence.scores.items() if row == system]
        training = evidence.trained.get(TRAINED_ON.get(system, ""))
        if scores or training:
            making = [DASH if system in TRAINED_ON else ""] * 4
            if training:
                making = [_shown_seconds(training.annotation_seconds), shown_count(training.calls)]
                making += [_shown_seconds(training.seconds), shown_count(training.tokens)]
            name = Cell(name_of(system), "" if system in SYSTEMS else "(baseline)")
            made = [from_run(Cell(text), training.run) if training else Cell(text) for text in making]
            runs = {score.run.run_id[:8]: repeats(score.run) for score in scores}
            first, again = next(iter(runs), ""), "; ".join(runs.values())
            rows.append(
                (name, *made, *(replace(cell, run=first, command=again) for cell in _answers(scores)))
            )
    rules = tuple(index for index, row in enumerate(rows) if row[0].detail)[:1]
    columns = [Column("System", numeric=False)]
    labels = ("annotation, s", "calls tried", "training, s", "tokens")
    columns += [Column(label, "Making it") for label in labels]
    columns += [Column(label, "Answering") for label in ("examples", "seconds", "calls", "tokens")]
    caption = (
        "Wall time on the device that the runs name (of an annotation what its workers took for the texts, in whichever "
        "run), over the benchmarks shown above; a call is an example with an "
        "executed call. Toolformer and Toolformer (disabled) are one model, made once."
    )
    return Table(
        "cost", "Cost", "Seconds, calls and tokens", tuple(columns), tuple(rows), caption, rules=rules
    )


def _answers(scores: Sequence[Score]) -> list[Cell]:
    """Examples, seconds, calls and tokens; a rate counts the benchmarks alone that logged both of its parts."""
    timed = [(score.seconds, score.n or 0) for score in scores if score.seconds]
    written = [(score.tokens, score.seconds) for score in scores if score.seconds and score.tokens]
    calls = [score.calls for score in scores if score.calls is not None]
    seconds, answered = sum(time for time, _ in timed), sum(n for _, n in timed)
    tokens, writing = sum(number for number, _ in written), sum(time for _, time in written)
    return [
        Cell(shown_count(sum(score.n or 0 for score in scores))),
        Cell(_shown_seconds(seconds or None), f"{seconds / answered:.2f} an example" if answered else ""),
        Cell(shown_count(sum(calls) if calls else None)),
        Cell(shown_count(tokens or None), f"{tokens / writing:,.0f} a second" if tokens else ""),
    ]


def _shown_seconds(seconds: float | None) -> str:
    return DASH if seconds is None else f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.1f}"


def tool_use(evidence: Evidence) -> Table:
    """How often Toolformer calls its tools on each benchmark (the paper gives it in its text)."""
    measured = {
        task: score
        for (system, task), score in evidence.scores.items()
        if system == "toolformer" and score.call_share is not None
    }
    tools = in_order({tool for score in measured.values() for tool in score.tool_shares})
    rows = []
    for task in in_table_order(measured):
        score = measured[task]
        shares = (score.call_share or 0.0, *(score.tool_shares.get(tool, 0.0) for tool in tools))
        theirs = next(((share, tool) for (name, tool), share in paper.TOOL_USE.items() if name == task), None)
        papers = Cell(f"{theirs[0]:.1f}", theirs[1]) if theirs else Cell()
        cells = (from_run(share_cell(100 * share, score.n), score.run) for share in shares)
        rows.append((Cell(title_of(task)), *cells, papers))
    columns = [Column("Benchmark", numeric=False), Column("any tool", "with a call, %")]
    columns += [Column(tool, "with a call, %") for tool in tools]
    columns.append(Column("paper", paper=True))
    caption = (
        "Toolformer with calls enabled (k = 10); 95 % Wilson intervals in brackets. The paper's 97.9 % is over its "
        "three math benchmarks together."
    )
    title = "Share of examples with a call"
    return Table("tool_use", "Tool use", title, tuple(columns), tuple(rows), caption)


def wordings(evidence: Evidence) -> Table:
    """Score and share of calls over the wordings of the prompts: a row for each system and benchmark asked in another."""
    known = {row for row, _ in evidence.wordings}
    rows: list[tuple[Cell, ...]] = []
    rules = []
    for system in (*(system for system in SYSTEMS if system in known), *sorted(known - set(SYSTEMS))):
        rules.append(len(rows))
        for task in in_table_order(task for row, task in evidence.wordings if row == system):
            scores = evidence.wordings[system, task]
            sizes = shown_sizes(score.n for score in scores.values())
            rows.append(
                (
                    Cell(name_of(system)),
                    Cell(title_of(task), sizes),
                    Cell(str(len(scores))),
                    *_spread(scores, {wording: score.value for wording, score in scores.items()}),
                    *_spread(scores, {wording: 100 * (s.call_share or 0) for wording, s in scores.items()}),
                )
            )
    columns = [Column("System", numeric=False), Column("Benchmark", numeric=False), Column("wordings")]
    groups = ("correct, %", "with a call, %")
    columns += [Column(label, group) for group in groups for label in ("min", "max", "mean")]
    caption = (
        "The same questions in several wordings, the paper's and our own (benchmarks/wordings.py): the least and the largest "
        "figure, each with its wording, and the mean over wordings. All other tables have the paper's wording alone."
    )
    title = "Score and share of calls by wording"
    return Table("wordings", "Wordings", title, tuple(columns), tuple(rows), caption, tuple(rules[1:]))


def _spread(scores: Mapping[str, Score], values: Mapping[str, float]) -> Iterator[Cell]:
    """The least and the largest of a figure's values by wording, and their mean."""
    order = sorted(values, key=values.__getitem__)
    for wording in (order[0], order[-1]):
        differ = values[order[0]] < values[order[-1]]
        yield from_run(Cell(f"{values[wording]:.1f}", wording if differ else ""), scores[wording].run)
    yield from_run(Cell(f"{fmean(values.values()):.1f}"), scores[order[0]].run)
