"""Runs that differ only in their seed: their mean and the difference of two groups of them, over seeds and questions.

Questions are what varies besides seeds; several seeds may have been asked the same ones, or each its own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t

from benchmarks.metrics import CONFIDENCE, RESAMPLES, Interval, wilson
from benchmarks.power import detectable_shift

Answers = Mapping[str, tuple[float, float]]
"""One seed's: by question a value and its units, a score and 1, or the nats of a text and its words or tokens."""
Figure = Callable[[Any], Any]
_DRAWS_AT_ONCE = 1_000_000


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed."""

    values: Any
    """[seeds, questions]; 0 where a seed was not asked a question."""
    units: Any
    """Likewise."""

    @property
    def each(self) -> Any:
        """[seeds]: the value of a unit."""
        return self.values.sum(1) / self.units.sum(1)

    @property
    def residuals(self) -> Any:
        """[seeds, questions]: what each question adds to the error of its seed's figure."""
        return (self.values - self.each[:, None] * self.units) / self.units.sum(1)[:, None]


def groups(*sides: Sequence[Answers]) -> list[Group]:
    """Groups over the same questions, those of all of them."""
    questions = sorted({question for side in sides for answers in side for question in answers})
    tables = [
        np.array([[answers.get(question, (0.0, 0.0)) for question in questions] for answers in side], dtype=float)
        for side in sides
    ]  # fmt: skip
    return [Group(table[..., 0], table[..., 1]) for table in tables]


def over_seeds(
    runs: Sequence[Answers], is_perplexity: bool, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """The mean of the seeds' scores in percent, or perplexities; n counts the questions of all seeds, each once."""
    (group,) = groups(runs)
    n, scores = group.values.shape[1], group.values[group.units > 0]
    if not is_perplexity and scores.min() == scores.max() and scores[0] in (0.0, 100.0):
        low, high = wilson(n if scores[0] else 0, n)  # a bootstrap has nothing to vary
        return Interval(float(scores[0]), 100 * low, 100 * high, n)
    figure: Figure = to_perplexity if is_perplexity else np.asarray
    drawn = resampled([group], False, seed, resamples, figure)[:, 0]
    return Interval(float(figure(group.each).mean()), *ends(drawn), n)


def to_perplexity(log_likelihood: Any) -> Any:
    """Of log-likelihoods in nats a unit."""
    with np.errstate(over="ignore"):
        return np.exp(-log_likelihood)


def resampled(sides: Sequence[Group], matched: bool, seed: int, resamples: int, figure: Figure) -> Any:
    """A hierarchical bootstrap of the groups' means over seeds: [resamples, groups].

    Questions are drawn anew once for all seeds, which may share them (Owen 2007), and one seed less than there are,
    without which the variance over few seeds comes out too small (McCarthy and Snowden 1985).

    Args:
        matched: the groups have the same seeds, in the same order, which are drawn together.
        figure: makes a seed's figure from its value of a unit.
    """
    rng = np.random.default_rng(seed)
    n = sides[0].values.shape[1]
    means = np.empty((resamples, len(sides)))
    at_once = max(1, _DRAWS_AT_ONCE // n)
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        questions = rng.multinomial(n, np.full(n, 1 / n), size)
        for index, group in enumerate(sides):
            count = len(group.values)
            if index == 0 or not matched:
                drawn = rng.multinomial(max(1, count - 1), np.full(count, 1 / count), size)
            with np.errstate(divide="ignore", invalid="ignore"):
                each = (questions @ group.values.T) / (questions @ group.units.T)
            each = figure(each)
            means[start : start + size, index] = np.where(drawn > 0, drawn * each, 0).sum(1) / drawn.sum(1)
    return means


def ends(drawn: Any) -> tuple[float, float]:
    """The 95 % percentile interval of resamples; those of seeds that no drawn question was asked do not count."""
    tail = 100 * (1 - CONFIDENCE) / 2
    with np.errstate(invalid="ignore"):
        low, high = np.nanpercentile(drawn, [tail, 100 - tail])
    return float(low), float(high)


@dataclass(frozen=True)
class Contrast:
    """A difference with its standard error."""

    difference: float
    error: float
    freedom: float
    """Degrees of freedom (Satterthwaite's)."""

    @property
    def p_value(self) -> float | None:
        """Of a two-sided t test; None where there is no error to compare the difference with."""
        if not (self.error > 0 and math.isfinite(self.error) and math.isfinite(self.difference)):
            return None
        return float(2 * t.sf(abs(self.difference) / self.error, self.freedom))

    @property
    def detectable(self) -> float | None:
        """The least difference that the test would have shown in four cases of five."""
        return None if self.p_value is None else detectable_shift(self.error, self.freedom)


def contrast(first: Group, second: Group, matched: bool) -> Contrast:
    """The second group's mean less the first's, over seeds and questions.

    The variance is what the seeds' figures differ by, and the covariance of two seeds, which comes from the questions that
    they share. Of single runs this is the paired t test, with units that of a ratio (the delta method).

    Args:
        matched: the groups have the same seeds, in the same order: their differences count.
    """
    parts = [(-1.0, first.each, first.residuals), (1.0, second.each, second.residuals)]
    difference = float(second.each.mean() - first.each.mean())
    if matched:
        parts = [(1.0, second.each - first.each, second.residuals - first.residuals)]
    n = first.values.shape[1]
    if n < 2:
        return Contrast(difference, 0.0, 0.0)
    shared = n / (n - 1) * sum(
        sign * other_sign * _covariance(part, other)
        for sign, _, part in parts
        for other_sign, _, other in parts
    )  # fmt: skip
    shared = max(float(shared), 0.0)
    between = [(float(each.var(ddof=1)) / len(each), len(each) - 1) for _, each, _ in parts if len(each) > 1]
    variance = shared + sum(part for part, _ in between)
    spread = shared * shared / (n - 1) + sum(part * part / freedom for part, freedom in between)
    return Contrast(difference, math.sqrt(variance), variance * variance / spread if spread else 0.0)


def _covariance(part: Any, other: Any) -> float:
    """Of the figures of two seeds; of a single run its variance."""
    count = len(part)
    if part is not other:
        return float((part.sum(0) * other.sum(0)).sum()) / (count * len(other))
    squares = float((part**2).sum())
    return squares if count == 1 else (float((part.sum(0) ** 2).sum()) - squares) / (count * (count - 1))
