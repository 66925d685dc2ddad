"""Evaluations in which answers met a fault (a tool or server that broke down): which count nevertheless, and what is said.

Knows runs and their figures, and nothing of how they came about.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolformer.tracking import Run

log = logging.getLogger(__name__)


def counting(runs: Sequence[Run]) -> Run | None:
    """Of runs of one evaluation, the newest first, the one by which it is done.

    Answers that met a fault are not kept, so that the evaluation is done again for them, until the newest run met what
    an earlier one did: as many faults of each task, for the same reasons.
    """
    found = [_faults(run.metrics) for run in runs]
    if {} in found:
        return runs[found.index({})]
    return runs[0] if found and found[0] in found[1:] else None


def met(metrics: Mapping[str, float]) -> bool:
    """Whether answers of a run met a fault."""
    return bool(_faults(metrics))


def tell(metrics: Mapping[str, float], counts: Run | None, command: str = "") -> None:
    """Names the faults of a run, if it met any, and how to ask for these answers again.

    Args:
        counts: the run by which the evaluation is done nevertheless.
        command: what began the run.
    """
    reasons: Counter[str] = Counter()
    for (_, reason), number in _faults(metrics).items():
        reasons[reason] += int(number)
    if not reasons:
        return
    told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(5))
    then = f"they count in this run and are not kept. To ask only for them again: {command or 'the same command'}"
    if counts:
        then = (
            f"an earlier run met the same, so that run {counts.run_id} counts as done. To ask only for them once more, "
            "delete that run (toolformer ui) and give the same command, or give it another name="
        )
    log.warning("evaluate: %d answers met a fault (%s); %s", reasons.total(), told, then)


def _faults(metrics: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """How many answers of a task met a fault for a reason."""
    from benchmarks.figures import FAULTS

    named = {name: name.partition(f"/{FAULTS}/") for name in metrics}
    return {(task, reason): metrics[name] for name, (task, found, reason) in named.items() if found}
