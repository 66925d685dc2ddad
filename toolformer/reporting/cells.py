"""What goes into a cell: figures with their intervals, and footnotes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks import MLQA_LANGUAGES
from benchmarks import TASKS as PROJECT_TASKS
from benchmarks.metrics import wilson
from toolformer.reporting import paper
from toolformer.reporting.evidence import Score
from toolformer.reporting.layout import Cell, Footnote, footnote

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


def title_of(task: str) -> str:
    """A task's name in tables; a task of the user's own goes by its own."""
    return TASKS.get(task, task)


def own_tasks(measured: Iterable[str]) -> list[str]:
    """The user's own among the measured tasks (docs/extending.md)."""
    return sorted(set(measured) - set(PROJECT_TASKS))


class Notes:
    """Footnotes of a table; equal ones share a mark."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], str] = {}

    def mark(self, text: str, command: str = "") -> str:
        return self._marks.setdefault((text, command), _letters(len(self._marks)))

    @property
    def all(self) -> tuple[Footnote, ...]:
        return tuple(footnote(mark, text, command) for (text, command), mark in self._marks.items())


def _letters(number: int) -> str:
    return chr(ord("a") + number % 26) * (number // 26 + 1)


def shown_score(value: float, perplexity: bool) -> str:
    return f"{value:.2f}" if perplexity else f"{value:.1f}"


def shown_interval(score: Score, perplexity: bool, with_n: bool) -> str:
    parts = []
    if score.low is not None and score.high is not None:
        parts.append(f"[{shown_score(score.low, perplexity)}, {shown_score(score.high, perplexity)}]")
    if with_n and score.n is not None:
        parts.append(f"n = {shown_count(score.n)}")
    return " ".join(parts)


def share_cell(share: float, n: int | None) -> Cell:
    if not n:
        return Cell(f"{100 * share:.1f}")
    low, high = wilson(round(share * n), n)
    return Cell(f"{100 * share:.1f}", f"[{100 * low:.1f}, {100 * high:.1f}]")


def shown_count(number: int | None) -> str:
    return DASH if number is None else f"{number:,}"


def shown_calls(number: int) -> str:
    return f"({shown_count(number)} call{'' if number == 1 else 's'})" if number else ""


def shown_reasons(reasons: Mapping[str, int]) -> str:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{reason} {shown_count(number)}" for reason, number in ordered)


def listing(words: Iterable[str]) -> str:
    """`a, b and c`."""
    found = list(words)
    return ", ".join(found[:-1]) + f" and {found[-1]}" if len(found) > 1 else "".join(found)


def in_order(tools: Iterable[str]) -> list[str]:
    known = set(tools)
    return [tool for tool in paper.TOOLS if tool in known] + sorted(known - set(paper.TOOLS))


def short_commit(commit: str) -> str:
    name, dash, dirty = commit.partition("-")
    return f"{name[:10]}{dash}{dirty}"
