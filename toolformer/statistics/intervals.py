"""95 % intervals of scores in percent and of perplexities: percentile bootstrap with whole documents resampled, or Wilson's.

Seeded: the same scores give the same interval. Log-likelihoods are in nats.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest, bootstrap

RESAMPLES = 2000
CONFIDENCE = 0.95
_DRAWS_AT_ONCE = 2_000_000
"""Numbers held in memory by one step of the bootstrap: resamples x documents."""


@dataclass(frozen=True)
class Interval:
    """A value over `n` documents with its 95 % interval."""

    value: float
    low: float
    high: float
    n: int


def percent_interval(correct: Sequence[bool | float], seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """The share of right answers in percent.

    Where all answers are right, or all wrong, a bootstrap has nothing to vary: Wilson's interval says then what such
    a sample leaves open. ValueError without any answers.
    """
    if not len(correct):
        raise ValueError("an interval needs at least one document")
    scores = np.asarray(correct, dtype=float) * 100
    if scores.min() == scores.max() and scores[0] in (0.0, 100.0):
        low, high = wilson(round(float(scores.sum()) / 100), len(scores))
        return Interval(float(scores[0]), 100 * low, 100 * high, len(scores))

    value = float(scores.mean())
    return Interval(value, *bootstrap_ends(value, (scores,), np.mean, seed, resamples), len(scores))


def wilson(right: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of the share `right` / `n`, both ends in 0 to 1; `n` is at least 1."""
    interval = binomtest(right, n).proportion_ci(CONFIDENCE, "wilson")
    return float(interval.low), float(interval.high)


def perplexity(log_likelihoods: Sequence[float], units: Sequence[int]) -> float:
    """exp(-sum of log-likelihoods / sum of units): of all documents together, not a mean over documents."""
    total = sum(units)
    if total <= 0:
        raise ValueError("perplexity needs at least one word or token")
    exponent = -math.fsum(log_likelihoods) / total
    return math.exp(exponent) if exponent < 700 else math.inf


def perplexity_interval(
    log_likelihoods: Sequence[float], units: Sequence[int], seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Perplexity per unit (word or token), with the documents resampled.

    `log_likelihoods[n]` is the sum over document n in nats, `units[n]` its number of words or tokens; ValueError without any.
    """
    value = perplexity(log_likelihoods, units)
    sums, counts = np.asarray(log_likelihoods, dtype=float), np.asarray(units, dtype=float)

    def statistic(sums: Any, counts: Any, axis: int = -1) -> Any:
        # A resample of empty documents alone has no perplexity: infinity, never an error.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            result = np.exp(-np.sum(sums, axis=axis) / np.sum(counts, axis=axis))
        return np.nan_to_num(result, nan=np.inf, posinf=np.inf)

    ends = bootstrap_ends(value, (sums, counts), statistic, seed, resamples)
    return Interval(value, *ends, len(sums))


def bootstrap_ends(
    value: float, data: tuple[Any, ...], statistic: Any, seed: int, resamples: int
) -> tuple[float, float]:
    """The 95 % percentile interval of `statistic(*data)`, whole documents resampled; `value` where one has nothing to."""
    n = len(data[0])
    # One document has nothing to be resampled; scipy refuses it.
    if n == 1 or resamples < 1 or not math.isfinite(value):
        return value, value
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
    return low, high
