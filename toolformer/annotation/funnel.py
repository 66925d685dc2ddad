"""The funnel of an annotation: how many documents, positions and calls remain after each step, and why others were dropped.

Only counts; each step is counted where it happens. Inputs that are kept over and over are named: a model that copies its prompt
passes every step.
"""

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from toolformer.annotation.leaks import terms

log = logging.getLogger(__name__)

STEPS = tuple("documents selected windows positions sampled well_formed executed scored kept".split())
"""Texts, texts tried, their windows, positions above τ_s, calls sampled there, calls that parse as calls of the tool,
calls with a result, calls with their losses, calls in C*."""

REASONS = {
    "reasons": "texts",
    "window_reasons": "windows left",
    "drop_reasons": "calls dropped",
    "filter_reasons": "scored calls not kept",
}
"""The counters of reasons, and what they count."""

REPEATED = 1 / 3
"""An input is named that this share of a tool's kept calls have, and at least `LEAST_REPEATED`."""
LEAST_REPEATED = 5


class KeptInputs:
    """The inputs of the kept calls of one tool.

    Args:
        examples: the inputs of the calls in its prompt.
    """

    def __init__(self, examples: Collection[str] = ()) -> None:
        self._examples = set(examples)
        self._counts, self._copied = Counter[str](), Counter[str]()

    def add(self, call_input: str, text: str) -> None:
        """Adds a kept call of a text."""
        self._counts[call_input] += 1
        if call_input in self._examples and _is_strange(call_input, text):
            self._copied[call_input] += 1

    def named(self) -> dict[str, dict[str, int]]:
        """For the funnel: `repeated_inputs`, and `copied_inputs`, the prompt's examples in texts without most of their words."""
        least = max(LEAST_REPEATED, REPEATED * self._counts.total())
        repeated = {text: count for text, count in self._counts.items() if text and count >= least}
        named = {"repeated_inputs": repeated, "copied_inputs": dict(self._copied)}
        return {name: counts for name, counts in named.items() if counts}


def _is_strange(call_input: str, text: str) -> bool:
    """Whether a text lacks most of the numbers and words of an input."""
    inside = terms(call_input)
    return len(inside & terms(text)) < len(inside) / 2


def log_funnel(funnel: Mapping[str, Mapping[str, Any]]) -> None:
    """Logs a table with a row per tool and a column per step, then a line per tool with the reasons."""
    rows: list[tuple[str, ...]] = [("tool", *STEPS)]
    rows += [(tool, *(str(counts.get(step, "")) for step in STEPS)) for tool, counts in funnel.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    ]
    for tool, counts in funnel.items():
        reasons = [
            f"{what}: " + ", ".join(f"{count} {why}" for why, count in Counter(counts[name]).most_common())
            for name, what in REASONS.items()
            if counts.get(name)
        ]
        if counts.get("leaking"):
            leaks = f"{counts['leaking']} scored, {counts['kept_leaking']} kept"
            reasons.append(f"calls that hold what appears only after them: {leaks}")
        lines += [f"{tool}: {'; '.join(reasons)}"] if reasons else []
        lines += _inputs_named(tool, counts)
    log.info("%s", "\n".join(["remaining after each step", *lines]))


def _inputs_named(tool: str, counts: Mapping[str, Any]) -> list[str]:
    """A line on the input that is kept most often, if the funnel names it."""
    copied, repeated = counts.get("copied_inputs") or {}, counts.get("repeated_inputs") or {}
    named = {**repeated, **copied}
    if not named:
        return []
    call_input = max(named, key=lambda text: named[text])
    shown = call_input if len(call_input) <= 60 else f"{call_input[:60]}…"
    copy = ", copied from the prompt: most of its words are not in the texts" if call_input in copied else ""
    return [
        f"{tool}: {named[call_input]} of {counts.get('kept', 0)} kept calls have the input {shown!r}{copy}; give the tool "
        f"demonstrations from your texts (toolformer tool {tool} --demonstrations drafts them), or set tool.{tool}.rank=lift "
        f"tool.{tool}.temperature=0.5 tool.{tool}.result_ahead=12"
    ]


def rows_skipped(skipped: Mapping[str, int]) -> dict[str, int]:
    """Metrics of the rows of the corpus that were skipped, in total and by reason."""
    return {"rows_skipped": sum(skipped.values())} | {
        f"rows_skipped/{reason}": count for reason, count in skipped.items()
    }
