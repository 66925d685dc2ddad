"""What goes into a cell: figures with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from benchmarks import MLQA_LANGUAGES
from benchmarks.metrics import wilson
from toolformer.decoding import settings
from toolformer.reporting import paper
from toolformer.reporting.data import Score
from toolformer.reporting.pairing import BASELINE
from toolformer.reporting.table import Cell
from toolformer.tracking import Run

DASH = "–"

SYSTEMS: Mapping[str, str] = {system: settings.SYSTEMS[system] for system in settings.PAPER_SYSTEMS}
TASKS: Mapping[str, str] = {
    "lama_squad": "SQuAD",
    "lama_google_re": "Google-RE",
    "lama_trex": "T-REx",
    "asdiv": "ASDiv",
    "svamp": "SVAMP",
    "mawps": "MAWPS",
    "arithmetic": "Arithmetic",
    "webqs": "WebQS",
    "nq": "NQ",
    "triviaqa": "TriviaQA",
    **{f"mlqa_{language}": f"MLQA {language}" for language in MLQA_LANGUAGES},
    **{f"mlqa_all_en_{language}": f"MLQA {language} (All En)" for language in MLQA_LANGUAGES},
    "mlqa_en": "MLQA en",
    **{f"xquad_{language}": f"XQuAD {language}" for language in MLQA_LANGUAGES},
    "xquad_en": "XQuAD en",
    "templama": "TempLAMA",
    "dateset": "Dateset",
    "wikitext_perplexity": "WikiText",
    "heldout_perplexity": "Held-out text",
}


SYMBOLS: Mapping[str, str] = {
    "M": "the language model as it is",
    "M + CC": "the model, finetuned on the texts without calls",
    "Toolformer": "the model, finetuned on the texts with calls, and free to call tools",
    "Toolformer (disabled)": "the same model, not allowed to call",
    "C*": "the texts with the calls that were kept; C: the same texts without",
    "τ_f": "the gain, in nats, that a call must reach to be kept",
    "L(ε)": "loss on the tokens after the call's place, in nats, without a call",
    "L⁺": "the same with the call and its result",
    "L⁻": "the same without the result: the smaller of the losses without a call and with one whose result is empty",
    "k": "a call starts when its token is among the k most likely",
    "AC": "over the examples with a call",
    "NC": "over the examples without a call",
    "n": "examples, or texts, that a number rests on",
    "p": "how likely so large a difference is by chance alone, were the systems equal; corrected for all comparisons: Holm",
    "[a, b]": "95 % interval",
    "†": "differs from Toolformer (disabled) by more than chance",
    "‡": "differs from M by more than chance",
    "tie": "another system has the same figure",
    DASH: "not measured",
}
"""What the tables' symbols mean."""


def from_run(cell: Cell, run: Run) -> Cell:
    """The number with the run that it comes from."""
    return replace(cell, run=run.run_id[:8], command=repeats(run))


def repeats(run: Run) -> str:
    """The command that does what the run did."""
    return f"toolformer {run.stage} like={run.run_id[:8]}"


def shown_sizes(sizes: Iterable[int | None]) -> str:
    """For the head of a column: how many examples its numbers rest on."""
    known = sorted({size for size in sizes if size})
    if len(known) < 2:
        return f"n = {known[0]:,}" if known else ""
    return f"n differs: {known[0]:,} to {known[-1]:,}"


def title_of(task: str) -> str:
    """A task's name in tables; a task of the user's own goes by its own."""
    name, _, measure = task.partition("/")
    return TASKS.get(name, name) + (f", {measure.replace('_', ' ')}" if measure else "")


def name_of(row: str) -> str:
    """A system's name in tables, or a baseline's."""
    return SYSTEMS.get(row, row.removeprefix(BASELINE))


def own_tasks(measured: Iterable[str]) -> list[str]:
    """The user's own among the measured tasks (docs/extending.md)."""
    return sorted(set(measured) - set(TASKS))


def in_table_order(measured: Iterable[str]) -> list[str]:
    """The measured tasks, the user's own last."""
    known = set(measured)
    return [*(task for task in TASKS if task in known), *own_tasks(known)]


def shown_score(value: float, perplexity: bool) -> str:
    return f"{value:.2f}" if perplexity else f"{value:.1f}"


def shown_interval(score: Score, perplexity: bool, with_n: bool) -> str:
    parts = []
    if score.low is not None and score.high is not None:
        parts.append(f"[{shown_score(score.low, perplexity)}, {shown_score(score.high, perplexity)}]")
    if with_n and score.n is not None:
        parts.append(f"n = {shown_count(score.n)}")
    if score.others:
        parts.append(f"({score.seeds} seeds)")
    return " ".join(parts)


def share_cell(percent: float, n: int | None, counted: bool = False) -> Cell:
    """A share of `n` examples with Wilson's interval; `counted` adds n."""
    text = f"{percent:.1f}"
    if not n:
        return Cell(text)
    low, high = wilson(min(n, max(0, round(percent * n / 100))), n)
    return Cell(text, f"[{100 * low:.1f}, {100 * high:.1f}]" + (f" ({n:,})" if counted else ""))


def shown_count(number: int | None) -> str:
    return DASH if number is None else f"{number:,}"


def shown_calls(number: int) -> str:
    return f"({shown_count(number)} call{'' if number == 1 else 's'})" if number else ""


def shown_reasons(reasons: Mapping[str, int]) -> str:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{reason} {shown_count(number)}" for reason, number in ordered)


def in_order(tools: Iterable[str]) -> list[str]:
    known = set(tools)
    return [tool for tool in paper.TOOLS if tool in known] + sorted(known - set(paper.TOOLS))


def short_commit(commit: str) -> str:
    name, dash, dirty = commit.partition("-")
    return f"{name[:10]}{dash}{dirty}"
