"""Runs that differ only in their seed: the mean of a group and the difference of two groups, over seeds and questions.

Several seeds may share their questions, or each have different ones.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from toolformer.statistics.intervals import CONFIDENCE, Interval, wilson
from toolformer.statistics.power import detectable_shift

Answers = Mapping[str, tuple[float, float]]
"""One seed's answers: per question a value and its units, a score and 1, or the nats of a text and its words or tokens."""
_CREDIT = 1.5
"""Standard errors of the questions credited to two seeds; from simulation, and negligible with more seeds."""


@dataclass(frozen=True)
class Estimates:
    """The score or perplexity of each run of a group."""

    each: Any
    """[seeds]."""
    residuals: Any
    """[seeds, questions]: the contribution of each question to the error of its seed's estimate."""

    def times(self, factor: Any) -> "Estimates":
        """Scaled by one factor, or by one per seed."""
        return Estimates(self.each * factor, self.residuals * np.reshape(factor, (-1, 1)))


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed."""

    values: Any
    """[seeds, questions]; 0 where a seed has no such question."""
    units: Any
    """Likewise."""

    def estimates(self, is_perplexity: bool = False) -> Estimates:
        """The value per unit; or the perplexity per unit, if values are log-likelihoods in nats (the delta method)."""
        each = self.values.sum(1) / self.units.sum(1)
        residuals = (self.values - each[:, None] * self.units) / self.units.sum(1)[:, None]
        if not is_perplexity:
            return Estimates(each, residuals)
        perplexity = np.exp(-each)
        return Estimates(perplexity, -perplexity[:, None] * residuals)


def groups(*sides: Sequence[Answers]) -> list[Group]:
    """Groups over the union of their questions."""
    questions = sorted({question for side in sides for answers in side for question in answers})
    tables = [
        np.array([[answers.get(question, (0.0, 0.0)) for question in questions] for answers in side], dtype=float)
        for side in sides
    ]  # fmt: skip
    return [Group(table[..., 0], table[..., 1]) for table in tables]


def over_seeds(runs: Sequence[Answers], is_perplexity: bool) -> Interval:
    """The mean of the seeds' scores in percent, or perplexities; n is the number of different questions."""
    (group,) = groups(runs)
    n, scores = group.values.shape[1], group.values[group.units > 0]
    if not is_perplexity and scores.min() == scores.max() and scores[0] in (0.0, 100.0):
        low, high = wilson(n if scores[0] else 0, n)  # nothing varies
        return Interval(float(scores[0]), 100 * low, 100 * high, n)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        estimates = group.estimates(is_perplexity)
        value = float(estimates.each.mean())
        margin = effect([(1.0, estimates)]).margin
        if is_perplexity:  # a ratio, so that no end is below 0
            widest = float(np.exp(margin / value))
            return Interval(value, value / widest, value * widest, n)
    return Interval(value, max(value - margin, 0.0), min(value + margin, 100.0), n)


@dataclass(frozen=True)
class Effect:
    """A mean or a difference with its variance, of which the seeds' part has few degrees of freedom.

    A difference has to pass two t tests. One uses the whole variance, with Satterthwaite's degrees of freedom. These are too
    high where the few seeds happen to agree, so the other uses the seeds' part alone with its degrees of freedom, less
    `credit`, without which two seeds would be tested too strictly. Together they reject 3 to 7 % of true nulls from two seeds
    on, whatever seeds and questions vary by (tests/benchmarks/test_paired.py).
    """

    value: float
    by_seed: float
    """Variance."""
    seed_freedom: float
    """0 of single runs."""
    by_question: float
    """Variance."""
    question_freedom: float

    @property
    def _tests(self) -> list[tuple[float, float, float]]:
        """Standard error, degrees of freedom and credit of each test."""
        parts = [(self.by_seed, self.seed_freedom), (self.by_question, self.question_freedom)]
        variance = sum(part for part, _ in parts)
        if not (variance > 0 and math.isfinite(variance)):
            return []
        spread = sum(part * part / freedom for part, freedom in parts if part)
        tests = [(math.sqrt(variance), variance * variance / spread, 0.0)]
        if self.by_seed:
            credit = _CREDIT * math.sqrt(self.by_question) / self.seed_freedom**2
            tests.append((math.sqrt(self.by_seed), self.seed_freedom, credit))
        return tests

    @property
    def margin(self) -> float:
        """Half the width of the 95 % interval; 0 where there is no error to estimate."""
        tail = (1 + CONFIDENCE) / 2
        return max(
            (float(error * stdtrit(freedom, tail)) - credit for error, freedom, credit in self._tests),
            default=0.0,
        )

    @property
    def p_value(self) -> float | None:
        """Two-sided; None where there is no error to compare the difference with."""
        size = abs(self.value)
        p_values = [
            float(2 * stdtr(freedom, -(size + credit) / error)) for error, freedom, credit in self._tests
        ]
        return max(p_values, default=None) if math.isfinite(size) else None

    @property
    def detectable(self) -> float | None:
        """The least difference that would have been significant in four cases of five."""
        return max(
            (detectable_shift(error, freedom) - credit for error, freedom, credit in self._tests),
            default=None,
        )


def contrast(first: Estimates, second: Estimates, matched: bool) -> Effect:
    """The second group's mean less the first's, over seeds and questions.

    Args:
        matched: the groups have the same seeds, in the same order, and are compared pairwise.
    """
    if matched:
        return effect([(1.0, Estimates(second.each - first.each, second.residuals - first.residuals))])
    return effect([(-1.0, first), (1.0, second)])


def effect(parts: Sequence[tuple[float, Estimates]]) -> Effect:
    """The sum of groups' means over seeds, each with its sign.

    Its variance is that of the seeds' estimates plus the covariance of two seeds, which comes from the questions that they
    share. For a single run this is the t test, with units the t test of a ratio (the delta method).
    """
    n = parts[0][1].residuals.shape[1]
    shared = sum(
        sign * other_sign * _covariance(part.residuals, other.residuals)
        for sign, part in parts
        for other_sign, other in parts
    )  # fmt: skip
    shared = max(float(shared) * n / (n - 1), 0.0) if n > 1 else 0.0
    between = [
        (float(part.each.var(ddof=1)) / len(part.each), len(part.each) - 1) for _, part in parts if len(part.each) > 1
    ]  # fmt: skip
    by_seed = sum(variance for variance, _ in between)
    spread = sum(variance * variance / freedom for variance, freedom in between)
    value = sum(sign * float(part.each.mean()) for sign, part in parts)
    return Effect(value, by_seed, by_seed * by_seed / spread if spread else 0.0, shared, n - 1)


def _covariance(part: Any, other: Any) -> float:
    """Covariance of the estimates of two seeds; for a single run its variance."""
    count = len(part)
    if part is not other:
        return float((part.sum(0) * other.sum(0)).sum()) / (count * len(other))
    squares = float((part**2).sum())
    return squares if count == 1 else (float((part.sum(0) ** 2).sum()) - squares) / (count * (count - 1))
