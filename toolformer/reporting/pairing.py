"""Samples of two evaluations of one benchmark, paired by what was asked, and compared (`benchmarks/paired.py`)."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.metrics import RESAMPLES
from benchmarks.paired import PerplexityComparison, ScoreComparison, compare_perplexities, compare_scores
from toolformer.errors import UserError

Row = Mapping[str, Any]

SCORED = ("id", "prompt", "target", "score")
TEXTS = ("id", "text_sha256", "log_likelihood", "tokens", "words")
"""Columns of every file of samples, of a benchmark with scores and of a perplexity."""
DATE = "current_date"
"""What the calendar answers where an example has a day of its own; part of the question."""
PAIRS = (
    ("toolformer", "toolformer_disabled"),
    ("toolformer", "model"),
    ("toolformer_disabled", "model"),
    ("model_cc", "model"),
)
"""A system and what it is compared with; differences are the first minus the second."""
BASELINE = "baseline "
"""Stands before a baseline's name where systems have their key, which has no blank."""
BASELINE_PAIRS = ("toolformer_disabled", "model")
"""What every baseline is compared with."""
LEVEL = 0.05


def read_samples(
    path: Path, more: Sequence[str] = (), numbers: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """The rows of a file of samples with the columns that a comparison needs and `more`, None where it lacks one.

    Args:
        numbers: of the rows that are wanted; None is all.

    Raises:
        UserError: it is no file of samples.
    """
    try:
        names = pq.read_schema(path).names
        needed = SCORED if "score" in names else TEXTS
        if missing := [name for name in needed if name not in names]:
            raise KeyError(missing[0])
        wanted = dict.fromkeys([*needed, DATE, *more])
        table = pq.read_table(path, columns=[name for name in wanted if name in names])
        rows = (table if numbers is None else table.take(list(numbers))).to_pylist()
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{path} holds no samples ({type(error).__name__}): run `toolformer evaluate` again"
        ) from error
    return [{**wanted, **row} for row in rows]


@dataclass(frozen=True)
class Unpaired:
    """Samples of a benchmark without a partner."""

    only_first: int = 0
    """Documents that the second run does not have."""
    only_second: int = 0
    changed: int = 0
    """Documents of the same id with another prompt, target or text."""

    @property
    def total(self) -> int:
        return self.only_first + self.only_second + self.changed


@dataclass(frozen=True)
class Compared:
    """One benchmark."""

    task: str
    unpaired: Unpaired
    scores: ScoreComparison | None = None
    perplexity: PerplexityComparison | None = None
    unit: str = ""
    """Perplexity: per token, or per word where the two models count tokens differently."""


def compare_task(
    task: str, first: Sequence[Row], second: Sequence[Row], seed: int, resamples: int
) -> Compared | None:
    """The pairs of one benchmark compared, or None where there are none."""
    pairs, unpaired = pair(first, second)
    if not pairs:
        return None
    if "score" in pairs[0][0]:
        scores = compare_scores(
            [a["score"] for a, _ in pairs], [b["score"] for _, b in pairs], seed, resamples
        )
        return Compared(task, unpaired, scores=scores)
    # NaN, a number that is not known, differs from itself.
    per_token = all(a["tokens"] is not None and a["tokens"] == b["tokens"] for a, b in pairs)
    unit = "tokens" if per_token else "words"
    perplexity = compare_perplexities(
        [a["log_likelihood"] for a, _ in pairs],
        [int(a[unit]) for a, _ in pairs],
        [b["log_likelihood"] for _, b in pairs],
        [int(b[unit]) for _, b in pairs],
        seed,
        resamples,
    )
    return Compared(task, unpaired, perplexity=perplexity, unit=unit.removesuffix("s"))


def pair(first: Sequence[Row], second: Sequence[Row]) -> tuple[list[tuple[Row, Row]], Unpaired]:
    """Samples that were asked the same, in the first run's order; of equal ones the n-th goes with the n-th."""
    partners: dict[str, list[Row]] = {}
    for row in second:
        partners.setdefault(asked(row), []).append(row)
    pairs: list[tuple[Row, Row]] = []
    alone: Counter[str] = Counter()
    for row in first:
        matches = partners.get(asked(row))
        if matches:
            pairs.append((row, matches.pop(0)))
        else:
            alone[str(row["id"])] += 1
    left = Counter(str(row["id"]) for rows in partners.values() for row in rows)
    changed = (alone & left).total()
    return pairs, Unpaired(alone.total() - changed, left.total() - changed, changed)


def asked(row: Row) -> str:
    """What makes two samples the same question: id, prompt, date and targets, or id and text."""
    if "score" in row:
        return json.dumps([row["id"], row["prompt"], sorted(map(str, row["target"])), row.get(DATE)])
    return json.dumps([row["id"], row["text_sha256"]])


def compare_systems(
    files: Mapping[tuple[str, str], Path], seed: int = 0, resamples: int = RESAMPLES
) -> dict[tuple[str, str, str], Compared]:
    """Comparisons by task, system and the system it is compared with, where there are samples in common.

    Args:
        files: samples by system (a baseline's name after `BASELINE`) and task.

    Raises:
        UserError: a file of samples cannot be read.
    """
    comparisons: dict[tuple[str, str, str], Compared] = {}
    for task in dict.fromkeys(task for _, task in files):
        rows = {system: read_samples(path) for (system, name), path in files.items() if name == task}
        further = ((row, other) for row in rows if row.startswith(BASELINE) for other in BASELINE_PAIRS)
        for system, other in (*PAIRS, *further):
            if system in rows and other in rows:
                compared = compare_task(task, rows[other], rows[system], seed, resamples)
                if compared:
                    comparisons[task, system, other] = compared
    return comparisons


def is_significant(compared: Compared) -> bool:
    """Whether the difference is more than chance: McNemar's p below 0.05, or a 95 % interval without 0.

    A single sample, or a difference that is no finite number, is not significant.
    """
    if compared.scores and compared.scores.p_value is not None:
        return compared.scores.p_value < LEVEL
    comparison = compared.scores or compared.perplexity
    assert comparison
    low, high = comparison.difference.low, comparison.difference.high
    return math.isfinite(low) and math.isfinite(high) and low < high and not low <= 0 <= high
