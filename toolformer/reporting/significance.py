"""Which differences between the systems are more than chance: paired comparisons on the same samples.

Works on the files `samples/<task>.parquet` of evaluations; knows no tracking.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from benchmarks.metrics import RESAMPLES
from toolformer.reporting.pairing import Compared, compare_task, read_samples

PAIRS = (
    ("toolformer", "toolformer_disabled"),
    ("toolformer", "model"),
    ("toolformer_disabled", "model"),
    ("model_cc", "model"),
)
"""A system and what it is compared with; differences are the first minus the second."""
BASELINE_PAIRS = ("toolformer_disabled", "model")
"""What every other system, a baseline, is compared with."""
LEVEL = 0.05


def compare_systems(
    files: Mapping[tuple[str, str], Path], seed: int = 0, resamples: int = RESAMPLES
) -> dict[tuple[str, str, str], Compared]:
    """Comparisons by task, system and the system it is compared with, as far as there are common samples.

    `files` holds the samples by system, or baseline, and task.

    Raises:
        UserError: a file of samples cannot be read.
    """
    found: dict[tuple[str, str, str], Compared] = {}
    own = {system for pair in PAIRS for system in pair}
    for task in dict.fromkeys(task for _, task in files):
        rows = {system: read_samples(path) for (system, name), path in files.items() if name == task}
        baselines = [(name, other) for name in rows if name not in own for other in BASELINE_PAIRS]
        for system, other in (*PAIRS, *baselines):
            if system in rows and other in rows:
                compared = compare_task(task, rows[other], rows[system], seed, resamples)
                if compared:
                    found[task, system, other] = compared
    return found


def is_significant(compared: Compared) -> bool:
    """Whether the difference is more than chance: McNemar's p below 0.05, or a 95 % interval without 0.

    A single sample, or a difference that is no finite number, says nothing.
    """
    if compared.scores:
        if compared.scores.p_value is not None:
            return compared.scores.p_value < LEVEL
        estimate = compared.scores.difference
    else:
        assert compared.perplexity is not None
        estimate = compared.perplexity.difference
    ends = (estimate.low, estimate.high)
    return all(map(math.isfinite, ends)) and ends[0] < ends[1] and not ends[0] <= 0 <= ends[1]
