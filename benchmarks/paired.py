"""Two systems on the same samples: differences with paired bootstrap intervals, and McNemar's exact test.

Pure functions of two equally long lists, one entry a sample; knows no runs and no files. Every difference is the
second minus the first. Intervals are 95 % percentile bootstrap intervals with whole samples resampled, seeded; where all
differences are equal a bootstrap has nothing to vary, and Newcombe's paired score interval stands in its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest, bootstrap

from benchmarks.metrics import CONFIDENCE, RESAMPLES, perplexity, wilson

_DRAWS_AT_ONCE = 2_000_000
"""Numbers held in memory by one step of the bootstrap: resamples x samples."""


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

    if right_or_wrong and len(set((two - one).tolist())) == 1:
        estimate = _newcombe(one / 100, two / 100)
    else:
        estimate = _estimate((one, two), difference, seed, resamples)
    return ScoreComparison(
        n=len(one),
        first=float(one.mean()),
        second=float(two.mean()),
        difference=estimate,
        only_first=only_first,
        only_second=only_second,
        p_value=mcnemar(only_first, only_second) if right_or_wrong else None,
    )


def _newcombe(one: np.ndarray, two: np.ndarray) -> Estimate:
    """The difference of two paired shares (0 or 1 a sample) in percentage points (Newcombe, 1998, method 10)."""
    n = len(one)
    p1, p2 = float(one.mean()), float(two.mean())
    (low1, high1), (low2, high2) = (wilson(int(right.sum()), n) for right in (one, two))
    both, neither = float(np.sum(one * two)), float(np.sum((1 - one) * (1 - two)))
    apart = float(np.sum(one * (1 - two))) * float(np.sum((1 - one) * two))
    spread = math.sqrt(n * p1 * n * (1 - p1) * n * p2 * n * (1 - p2))
    odds = both * neither - apart
    odds = max(odds - n / 2, 0.0) if odds > 0 else odds
    phi = odds / spread if spread else 0.0

    def distance(of_two: float, of_one: float) -> float:
        return math.sqrt(max(0.0, of_two**2 - 2 * phi * of_two * of_one + of_one**2))

    value = p2 - p1
    low, high = value - distance(p2 - low2, high1 - p1), value + distance(high2 - p2, p1 - low1)
    return Estimate(100 * value, 100 * low, 100 * high)


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

    def log_perplexity(sums: Any, units: Any, axis: int) -> Any:
        with np.errstate(divide="ignore", invalid="ignore"):
            return -np.sum(sums, axis=axis) / np.sum(units, axis=axis)

    def difference(one: Any, units_one: Any, two: Any, units_two: Any, axis: int = -1) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.exp(log_perplexity(two, units_two, axis)) - np.exp(log_perplexity(one, units_one, axis))

    def ratio(one: Any, units_one: Any, two: Any, units_two: Any, axis: int = -1) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.exp(log_perplexity(two, units_two, axis) - log_perplexity(one, units_one, axis))

    data = (one, units_one, two, units_two)
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
    value, n = float(statistic(*data)), len(data[0])
    # One sample has nothing to be resampled; scipy refuses it.
    if n == 1 or resamples < 1 or not math.isfinite(value):
        return Estimate(value, value, value)
    # scipy also computes a standard error, which warns where a resample is infinite.
    with np.errstate(invalid="ignore"):
        result = bootstrap(
            data,
            statistic,
            paired=True,
            vectorized=True,
            n_resamples=resamples,
            batch=max(1, _DRAWS_AT_ONCE // n),
            confidence_level=CONFIDENCE,
            method="percentile",
            rng=np.random.default_rng(seed),
        )
    low, high = (float(end) for end in result.confidence_interval)
    return Estimate(value, low, high)
