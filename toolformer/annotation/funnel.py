"""The funnel of an annotation: how many documents, positions and calls remain after each step, and why others were dropped.

Only counts; each step is counted where it happens.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

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
    log.info("%s", "\n".join(["remaining after each step", *lines]))


def rows_skipped(skipped: Mapping[str, int]) -> dict[str, int]:
    """Metrics of the rows of the corpus that were skipped, in total and by reason."""
    return {"rows_skipped": sum(skipped.values())} | {
        f"rows_skipped/{reason}": count for reason, count in skipped.items()
    }
