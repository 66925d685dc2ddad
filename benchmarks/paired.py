"""Two systems on the same samples: differences with paired bootstrap intervals, and McNemar's exact test.

Pure functions of two equally long lists, one entry a sample; knows no runs and no files. Every difference is the
second minus the first. Intervals are 95 % percentile bootstrap intervals with whole samples resampled, seeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

from benchmarks.metrics import RESAMPLES, bootstrap_ends, perplexity


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ScoreComparison:
    """Scores in percent of two systems on the same `n` samples."""

    n: int
    first: float
    second: float
    difference: Estimate
    """Percentage points, second minus first."""
    only_first: int
    """Samples that the first has right and the second wrong."""
    only_second: int
    p_value: float | None
    """Two-sided exact McNemar; None where a score is neither 0 nor 100."""


@dataclass(frozen=True)
class PerplexityComparison:
    """Perplexities of two systems on the same `n` texts."""

    n: int
    first: float
    second: float
    difference: Estimate
    """Second minus first."""
    ratio: Estimate
    """Second over first."""


def compare_scores(
    first: Sequence[float], second: Sequence[float], seed: int = 0, resamples: int = RESAMPLES
) -> ScoreComparison:
    """Compares scores (0 to 100 a sample).

    >>> found = compare_scores([100, 0, 0, 100], [100, 100, 100, 0])
    >>> found.first, found.second, found.difference.value, found.only_first, found.only_second, found.p_value
    (50.0, 75.0, 25.0, 1, 2, 1.0)

    Raises:
        ValueError: the lists are empty or differ in length.
    """
    one, two = _paired(first, second)
    only_first, only_second = int(np.sum(one > two)), int(np.sum(two > one))
    right_or_wrong = bool(np.isin(np.concatenate([one, two]), (0.0, 100.0)).all())

    def difference(one: Any, two: Any, axis: int = -1) -> Any:
        return np.mean(two, axis=axis) - np.mean(one, axis=axis)

    return ScoreComparison(
        n=len(one),
        first=float(one.mean()),
        second=float(two.mean()),
        difference=_estimate((one, two), difference, seed, resamples),
        only_first=only_first,
        only_second=only_second,
        p_value=mcnemar(only_first, only_second) if right_or_wrong else None,
    )


def mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided p of McNemar's exact test: the discordant samples fall to either side with probability 1/2.

    >>> mcnemar(0, 5), mcnemar(3, 3), mcnemar(0, 0)
    (0.0625, 1.0, 1.0)
    """
    discordant = only_first + only_second
    return float(binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0


def compare_perplexities(
    first: Sequence[float],
    first_units: Sequence[int],
    second: Sequence[float],
    second_units: Sequence[int],
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> PerplexityComparison:
    """Compares perplexities from log-likelihoods in nats and units (words or tokens), one of each a text.

    Raises:
        ValueError: the lists are empty, differ in length, or hold no unit.
    """
    one, two = _paired(first, second)
    units_one, units_two = _paired(first_units, second_units)
    if len(units_one) != len(one):
        raise ValueError("each text needs its units")
    value_one, value_two = perplexity(first, first_units), perplexity(second, second_units)

    def logs(data: tuple[Any, ...], axis: int) -> tuple[Any, Any]:
        one, units_one, two, units_two = (np.sum(column, axis=axis) for column in data)
        return -one / units_one, -two / units_two

    def difference(*data: Any, axis: int = -1) -> Any:
        first, second = logs(data, axis)
        return np.exp(second) - np.exp(first)

    def ratio(*data: Any, axis: int = -1) -> Any:
        first, second = logs(data, axis)
        return np.exp(second - first)

    data = (one, units_one, two, units_two)
    # A resample of texts without units, or of hopeless ones, is infinite or no number.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return PerplexityComparison(
            n=len(one),
            first=value_one,
            second=value_two,
            difference=_estimate(data, difference, seed, resamples),
            ratio=_estimate(data, ratio, seed, resamples),
        )


def _paired(first: Sequence[float], second: Sequence[float]) -> tuple[Any, Any]:
    if len(first) != len(second) or not len(first):
        raise ValueError(f"{len(first)} and {len(second)} samples cannot be paired")
    return np.asarray(first, dtype=float), np.asarray(second, dtype=float)


def _estimate(data: tuple[Any, ...], statistic: Any, seed: int, resamples: int) -> Estimate:
    value = float(statistic(*data))
    return Estimate(value, *bootstrap_ends(value, data, statistic, seed, resamples))
