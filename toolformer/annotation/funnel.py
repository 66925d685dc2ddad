"""The funnel of an annotation: how many documents, places and calls each step left, and why the others were dropped.

Counts only; the steps are counted where they happen.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

log = logging.getLogger(__name__)

STEPS = tuple("documents selected windows positions sampled well_formed executed scored kept".split())
"""Texts, texts tried, what fits the model of them, places above τ_s, calls written there, calls that read back as one
of the tool, calls with a result, calls with their losses, calls in C*."""

REASONS = {
    "reasons": "texts",
    "window_reasons": "windows left",
    "drop_reasons": "calls dropped",
    "filter_reasons": "scored calls not kept",
}
"""What the counters beside the steps count."""


def log_funnel(funnel: Mapping[str, Mapping[str, Any]]) -> None:
    """One table with a row a tool and a column a step, and below it a line a tool with the reasons."""
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
        lines += [f"{tool}: {'; '.join(reasons)}"] if reasons else []
    log.info("%s", "\n".join(["what each step left", *lines]))


def rows_skipped(skipped: Mapping[str, int]) -> dict[str, int]:
    """The metrics of what reading the corpus left out, in all and by reason."""
    return {"rows_skipped": sum(skipped.values())} | {
        f"rows_skipped/{reason}": count for reason, count in skipped.items()
    }
