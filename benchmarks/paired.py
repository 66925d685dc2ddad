"""Two systems on the same samples: differences with paired bootstrap intervals, and paired tests.

Of two runs, or of two groups of runs over seeds. Every difference is the second minus the first. Intervals are 95 %
percentile bootstrap intervals with whole samples resampled, of groups seeds too. Right or wrong of two runs is tested by
McNemar's exact test, anything else, and groups, by a paired t test.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from benchmarks.metrics import RESAMPLES
from benchmarks.power import detectable_percent
from benchmarks.seeds import Answers, Figure, contrast, ends, groups, resampled, to_perplexity


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


def compare(
    first: Sequence[Answers],
    second: Sequence[Answers],
    matched: bool = True,
    is_perplexity: bool = False,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> ScoreComparison | PerplexityComparison:
    """Compares two runs, or two groups of runs that differ only in their seed, an entry a seed.

    Args:
        matched: both groups have the same seeds, in the same order, each asked the same in both.
        is_perplexity: answers are log-likelihoods in nats with their units, else scores from 0 to 100.

    >>> found = compare(*([{n: (x, 1) for n, x in enumerate(side)}] for side in ([100, 0, 0, 100], [100, 100, 100, 0])))
    >>> found.first, found.second, found.difference.value, found.only_first, found.only_second, found.p_value
    (50.0, 75.0, 25.0, 1, 2, 1.0)
    """
    one, two = groups(first, second)
    n = one.values.shape[1]
    figure: Figure = to_perplexity if is_perplexity else np.asarray
    # A draw of texts without units, or of hopeless ones, is infinite or no number.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        tested = contrast(one, two, matched)
        mean, other = (float(figure(group.each).mean()) for group in (one, two))
        drawn = resampled([one, two], matched, seed, resamples, figure)
        changes, ratios = drawn[:, 1] - drawn[:, 0], drawn[:, 1] / drawn[:, 0]
    difference = Estimate(other - mean, *ends(changes))
    p_value, detectable = tested.p_value, tested.detectable
    if is_perplexity:
        ratio = Estimate(other / mean, *ends(ratios))
        detectable = None if detectable is None else float(np.exp(detectable))
        return PerplexityComparison(n, mean, other, difference, ratio, p_value, detectable)
    lost, won = int(np.sum(one.values > two.values)), int(np.sum(two.values > one.values))
    if len(first) == len(second) == 1 and np.isin([one.values, two.values], (0.0, 100.0)).all():
        p_value, detectable = mcnemar(lost, won), detectable_percent(n, lost + won)
    paired = (lost, won) if matched else (None, None)
    return ScoreComparison(n, mean, other, difference, paired[0], paired[1], p_value, detectable)


def mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided p of McNemar's exact test: the discordant samples fall to either side with probability 1/2.

    >>> mcnemar(0, 5), mcnemar(3, 3), mcnemar(0, 0)
    (0.0625, 1.0, 1.0)
    """
    discordant = only_first + only_second
    return float(binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0
