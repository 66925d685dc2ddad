"""Two systems on the same samples: differences with paired bootstrap intervals, and paired tests.

Of two equally long lists, one entry a sample, or of two groups of runs over seeds. Every
difference is the second minus the first. Intervals are 95 % percentile bootstrap intervals with whole samples resampled,
of groups seeds too. Right or wrong is tested by McNemar's exact test, anything else, and groups, by a paired t test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

from benchmarks.metrics import RESAMPLES, bootstrap_ends, perplexity
from benchmarks.power import detectable_percent
from benchmarks.seeds import Answers, Figure, Group, contrast, ends, groups, resampled, to_perplexity


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
    """
    one, two = np.array(first, dtype=float), np.array(second, dtype=float)
    only_first, only_second = int(np.sum(one > two)), int(np.sum(two > one))

    def difference(one: Any, two: Any, axis: int = -1) -> Any:
        return np.mean(two, axis=axis) - np.mean(one, axis=axis)

    if np.isin([one, two], (0.0, 100.0)).all():
        p_value: float | None = mcnemar(only_first, only_second)
        detectable = detectable_percent(len(one), only_first + only_second)
    else:
        units = np.ones((1, len(one)))
        tested = contrast(Group(one[None], units), Group(two[None], units), matched=False)
        p_value, detectable = tested.p_value, tested.detectable
    return ScoreComparison(
        len(one),
        float(one.mean()),
        float(two.mean()),
        _estimate((one, two), difference, seed, resamples),
        only_first,
        only_second,
        p_value,
        detectable,
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
    """Compares perplexities from log-likelihoods in nats and units (words or tokens), one of each a text."""
    data = tuple(np.array(column, dtype=float) for column in (first, first_units, second, second_units))

    def logs(data: tuple[Any, ...], axis: int) -> tuple[Any, Any]:
        one, units_one, two, units_two = (np.sum(column, axis=axis) for column in data)
        return -one / units_one, -two / units_two

    def difference(*data: Any, axis: int = -1) -> Any:
        first, second = logs(data, axis)
        return np.exp(second) - np.exp(first)

    def ratio(*data: Any, axis: int = -1) -> Any:
        first, second = logs(data, axis)
        return np.exp(second - first)

    # A resample of texts without units, or of hopeless ones, is infinite or no number.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        one, units_one, two, units_two = (column[None] for column in data)
        tested = contrast(Group(one, units_one), Group(two, units_two), matched=False)
        return PerplexityComparison(
            len(first),
            perplexity(first, first_units),
            perplexity(second, second_units),
            _estimate(data, difference, seed, resamples),
            _estimate(data, ratio, seed, resamples),
            tested.p_value,
            None if tested.detectable is None else float(np.exp(tested.detectable)),
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
    tested = contrast(one, two, matched)
    figure: Figure = to_perplexity if is_perplexity else np.asarray
    mean, other = (float(figure(group.each).mean()) for group in (one, two))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        drawn = resampled([one, two], matched, seed, resamples, figure)
        changes, ratios = drawn[:, 1] - drawn[:, 0], drawn[:, 1] / drawn[:, 0]
    difference = Estimate(other - mean, *ends(changes))
    if is_perplexity:
        ratio = Estimate(other / mean, *ends(ratios))
        detectable = None if tested.detectable is None else float(np.exp(tested.detectable))
        return PerplexityComparison(n, mean, other, difference, ratio, tested.p_value, detectable)
    only_first = int(np.sum(one.values > two.values)) if matched else None
    only_second = int(np.sum(two.values > one.values)) if matched else None
    return ScoreComparison(
        n, mean, other, difference, only_first, only_second, tested.p_value, tested.detectable
    )


def _estimate(data: tuple[Any, ...], statistic: Any, seed: int, resamples: int) -> Estimate:
    value = float(statistic(*data))
    return Estimate(value, *bootstrap_ends(value, data, statistic, seed, resamples))
