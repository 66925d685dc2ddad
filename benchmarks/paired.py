"""Two systems on the same samples: differences with paired bootstrap intervals, and paired tests.

Pure functions of two equally long lists, one entry a sample, or of two groups of runs over seeds; knows no files. Every
difference is the second minus the first. Intervals are 95 % percentile bootstrap intervals with whole samples resampled,
of groups seeds too. Right or wrong is tested by McNemar's exact test, anything else, and groups, by a paired t test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

from benchmarks.metrics import RESAMPLES, bootstrap_ends, perplexity
from benchmarks.power import detectable_percent, detectable_shift
from benchmarks.seeds import Answers, Contrast, Group, contrast, ends, groups, resampled, to_perplexity


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
    """Samples; of several seeds each once."""
    first: float
    second: float
    difference: Estimate
    """Percentage points, second minus first."""
    only_first: int | None
    """Samples that the first has right and the second wrong, of all seeds; None where seeds do not match."""
    only_second: int | None
    p_value: float | None
    """Two-sided: exact McNemar, or a paired t test of graded scores and over seeds; None where nothing varies."""
    detectable: float | None = None
    """The least difference, in percentage points, that this test would have shown in four cases of five."""


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
    p_value: float | None = None
    """Two-sided, of a paired t test of log p a unit; None where nothing varies."""
    detectable: float | None = None
    """The least ratio above 1 that this test would have shown in four cases of five."""


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
    tested: tuple[float | None, float | None]
    right_or_wrong = bool(np.isin(np.concatenate([one, two]), (0.0, 100.0)).all())

    def difference(one: Any, two: Any, axis: int = -1) -> Any:
        return np.mean(two, axis=axis) - np.mean(one, axis=axis)

    if right_or_wrong:
        tested = mcnemar(only_first, only_second), detectable_percent(len(one), only_first + only_second)
    else:
        tested = _tested(_single(one), _single(two))
    return ScoreComparison(
        len(one),
        float(one.mean()),
        float(two.mean()),
        _estimate((one, two), difference, seed, resamples),
        only_first,
        only_second,
        *tested,
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
        p_value, detectable = _tested(_single(one, units_one), _single(two, units_two))
        return PerplexityComparison(
            len(one),
            value_one,
            value_two,
            _estimate(data, difference, seed, resamples),
            _estimate(data, ratio, seed, resamples),
            p_value,
            None if detectable is None else float(np.exp(detectable)),
        )


def compare_seeds(
    first: Sequence[Answers],
    second: Sequence[Answers],
    matched: bool,
    is_perplexity: bool,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> ScoreComparison | PerplexityComparison:
    """Compares two groups of runs that differ only in their seed, an entry a seed.

    Args:
        matched: both groups have the same seeds, in the same order, each asked the same in both.
        is_perplexity: answers are log-likelihoods in nats with their units, else scores from 0 to 100.
    """
    one, two = groups(first, second)
    n = one.values.shape[1]
    p_value, detectable = _tested(one, two, matched)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        drawn = resampled([one, two], matched, seed, resamples, to_perplexity if is_perplexity else None)
        changes, ratios = drawn[:, 1] - drawn[:, 0], drawn[:, 1] / drawn[:, 0]
    if is_perplexity:
        mean, other = (float(to_perplexity(group.each).mean()) for group in (one, two))
        return PerplexityComparison(
            n,
            mean,
            other,
            Estimate(other - mean, *ends(changes)),
            Estimate(other / mean, *ends(ratios)),
            p_value,
            None if detectable is None else float(np.exp(detectable)),
        )
    mean, other = (float(group.each.mean()) for group in (one, two))
    return ScoreComparison(
        n,
        mean,
        other,
        Estimate(other - mean, *ends(changes)),
        int(np.sum(one.values > two.values)) if matched else None,
        int(np.sum(two.values > one.values)) if matched else None,
        p_value,
        detectable,
    )


def _single(values: Any, units: Any = None) -> Group:
    return Group(values[None], np.ones((1, len(values))) if units is None else units[None])


def _tested(first: Group, second: Group, matched: bool = False) -> tuple[float | None, float | None]:
    """p and the least difference that would have been shown, of a t test."""
    tested: Contrast = contrast(first, second, matched)
    p_value = tested.p_value
    return p_value, None if p_value is None else detectable_shift(tested.error, tested.freedom)


def _paired(first: Sequence[float], second: Sequence[float]) -> tuple[Any, Any]:
    if len(first) != len(second) or not len(first):
        raise ValueError(f"{len(first)} and {len(second)} samples cannot be paired")
    return np.asarray(first, dtype=float), np.asarray(second, dtype=float)


def _estimate(data: tuple[Any, ...], statistic: Any, seed: int, resamples: int) -> Estimate:
    value = float(statistic(*data))
    return Estimate(value, *bootstrap_ends(value, data, statistic, seed, resamples))
