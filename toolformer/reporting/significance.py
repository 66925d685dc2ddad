"""Which differences between the systems are more than chance: paired comparisons on the same samples.

Works on the files `samples/<task>.parquet` of evaluations; knows no tracking.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from benchmarks.metrics import RESAMPLES
from toolformer.reporting.pairing import Compared, asked, compare_task, read_samples

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


def baseline_key(name: str) -> str:
    """What a baseline is called among systems: no system's key has a blank, whatever a model's folder is called."""
    return f"baseline {name}"


def compare_systems(
    files: Mapping[tuple[str, str], Path],
    seed: int = 0,
    resamples: int = RESAMPLES,
    baselines: Mapping[tuple[str, str], Path] | None = None,
) -> dict[tuple[str, str, str], Compared]:
    """Comparisons by task, system and the system it is compared with, as far as there are common samples.

    `files` holds the samples by system and task, `baselines` those of other models by name and task; what these are
    called among the systems says `baseline_key`.

    Raises:
        UserError: a file of samples cannot be read.
    """
    found: dict[tuple[str, str, str], Compared] = {}
    others = {(baseline_key(name), task): path for (name, task), path in (baselines or {}).items()}
    for task in dict.fromkeys(task for _, task in (*files, *others)):
        rows = {
            system: read_samples(path)
            for (system, name), path in ({**files, **others}).items()
            if name == task
        }
        further = [(key, other) for key, name in others if name == task for other in BASELINE_PAIRS]
        for system, other in (*PAIRS, *further):
            if system in rows and other in rows:
                compared = compare_task(task, rows[other], rows[system], seed, resamples)
                if compared:
                    found[task, system, other] = compared
    return found


def asked_otherwise(files: Mapping[tuple[str, str], Path]) -> frozenset[str]:
    """The tasks of which some systems were asked other questions, as far as their samples say.

    Raises:
        UserError: a file of samples cannot be read.
    """
    first: dict[str, Counter[str]] = {}
    found = set()
    for (_, task), path in files.items():
        questions = Counter(map(asked, read_samples(path)))
        if first.setdefault(task, questions) != questions:
            found.add(task)
    return frozenset(found)


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
