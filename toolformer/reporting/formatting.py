"""What goes into a cell: figures with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks import MLQA_LANGUAGES
from benchmarks.metrics import wilson
from toolformer.decoding import settings
from toolformer.reporting import paper
from toolformer.reporting.data import Score
from toolformer.reporting.pairing import BASELINE
from toolformer.reporting.table import Cell

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
