"""Two systems on the same samples: differences with 95 % intervals, and paired tests.

Compares two runs, or two groups of runs over seeds; every difference is the second minus the first. Two runs have percentile
bootstrap intervals with whole samples resampled, groups t intervals (`seeds`). Right or wrong answers of two runs are tested
by McNemar's exact test; graded scores, perplexities and groups by a paired t test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

from toolformer.statistics.intervals import CONFIDENCE, RESAMPLES
from toolformer.statistics.power import detectable_percent
from toolformer.statistics.seeds import Answers, Estimates, Group, contrast, groups

_DRAWS_AT_ONCE = 1_000_000


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ScoreComparison:
    """Scores in percent of two systems on the same `n` samples."""

    n: int
    """Different samples."""
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
    """The least difference, in percentage points, that would have been significant in four cases of five."""


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
    """Two-sided, of a paired t test of log p per unit; None where nothing varies."""
    detectable: float | None = None
    """The least ratio above 1 that would have been significant in four cases of five."""


def compare(
    first: Sequence[Answers],
    second: Sequence[Answers],
    matched: bool = True,
    is_perplexity: bool = False,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> ScoreComparison | PerplexityComparison:
    """Compares two runs, or two groups of runs that differ only in their seed, with one entry per seed.

    Args:
        matched: both groups have the same seeds, in the same order, each with the same questions in both.
        is_perplexity: answers are log-likelihoods in nats with their units, else scores from 0 to 100.

    >>> found = compare(*([{n: (x, 1) for n, x in enumerate(side)}] for side in ([100, 0, 0, 100], [100, 100, 100, 0])))
    >>> found.first, found.second, found.difference.value, found.only_first, found.only_second, found.p_value
    (50.0, 75.0, 25.0, 1, 2, 1.0)
    """
    one, two = groups(first, second)
    n = one.values.shape[1]
    is_single = len(first) == len(second) == 1
    # A resample of texts without units is not a number, one of impossible texts is infinite.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        tested = contrast(one.estimates(), two.estimates(), matched)
        sides = [group.estimates(is_perplexity) for group in (one, two)]
        mean, other = (float(side.each.mean()) for side in sides)
        drawn = _resampled(one, two, seed, resamples, is_perplexity) if is_single else None
        difference = _difference(sides, matched, drawn)
        ratio = _ratio(sides, matched, drawn) if is_perplexity else None
    p_value, detectable = tested.p_value, tested.detectable
    if ratio:
        detectable = None if detectable is None else float(np.exp(detectable))
        return PerplexityComparison(n, mean, other, difference, ratio, p_value, detectable)
    lost = gained = None
    if matched:
        lost, gained = int(np.sum(one.values > two.values)), int(np.sum(two.values > one.values))
        if is_single and np.isin([one.values, two.values], (0.0, 100.0)).all():
            p_value, detectable = mcnemar(lost, gained), detectable_percent(n, lost + gained)
    return ScoreComparison(n, mean, other, difference, lost, gained, p_value, detectable)


def _difference(sides: Sequence[Estimates], matched: bool, drawn: Any) -> Estimate:
    effect = contrast(sides[0], sides[1], matched)
    if drawn is None:
        return Estimate(effect.value, effect.value - effect.margin, effect.value + effect.margin)
    return Estimate(effect.value, *_ends(drawn[1] - drawn[0]))


def _ratio(sides: Sequence[Estimates], matched: bool, drawn: Any) -> Estimate:
    one, two = sides
    means = one.each.mean(), two.each.mean()
    widest = np.exp(contrast(one.times(1 / means[0]), two.times(1 / means[1]), matched).margin)
    ratio = float(means[1] / means[0])
    ends = (ratio / widest, ratio * widest) if drawn is None else _ends(drawn[1] / drawn[0])
    return Estimate(ratio, *map(float, ends))


def _resampled(first: Group, second: Group, seed: int, resamples: int, is_perplexity: bool) -> Any:
    """The values of two runs on resampled questions, the same for both: [2, resamples]."""
    rng = np.random.default_rng(seed)
    n = first.values.shape[1]
    at_once = max(1, _DRAWS_AT_ONCE // n)
    drawn: list[Any] = []
    for start in range(0, resamples, at_once):
        questions = rng.multinomial(n, np.full(n, 1 / n), min(at_once, resamples - start))
        drawn.append(
            [questions @ group.values[0] / (questions @ group.units[0]) for group in (first, second)]
        )
    values = np.concatenate(drawn, axis=1)
    return np.exp(-values) if is_perplexity else values


def _ends(drawn: Any) -> tuple[float, float]:
    """The 95 % percentile interval of resamples, without those of texts without units."""
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.nanpercentile(drawn, [tail, 100 - tail])
    return float(low), float(high)


def mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided p of McNemar's exact test: the discordant samples fall to either side with probability 1/2.

    >>> mcnemar(0, 5), mcnemar(3, 3), mcnemar(0, 0)
    (0.0625, 1.0, 1.0)
    """
    discordant = only_first + only_second
    return float(binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0
