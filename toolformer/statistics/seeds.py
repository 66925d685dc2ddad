"""Runs that differ only in their seed: their mean and the difference of two groups of them, over seeds and questions.

Questions are what varies besides seeds; several seeds may have been asked the same ones, or each its own.
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
"""One seed's: by question a value and its units, a score and 1, or the nats of a text and its words or tokens."""
_CREDIT = 1.5
"""Questions' standard errors that two seeds are given; found by simulation, of more seeds too small to matter."""


@dataclass(frozen=True)
class Figures:
    """The figures of runs that differ only in their seed."""

    each: Any
    """[seeds]."""
    residuals: Any
    """[seeds, questions]: what each question adds to the error of its seed's figure."""

    def times(self, factor: Any) -> "Figures":
        """Scaled, all seeds or each by its own factor."""
        return Figures(self.each * factor, self.residuals * np.reshape(factor, (-1, 1)))


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed."""

    values: Any
    """[seeds, questions]; 0 where a seed was not asked a question."""
    units: Any
    """Likewise."""

    def figures(self, is_perplexity: bool = False) -> Figures:
        """The value of a unit; or its perplexity, of values that are log-likelihoods in nats (the delta method)."""
        each = self.values.sum(1) / self.units.sum(1)
        residuals = (self.values - each[:, None] * self.units) / self.units.sum(1)[:, None]
        if not is_perplexity:
            return Figures(each, residuals)
        perplexity = np.exp(-each)
        return Figures(perplexity, -perplexity[:, None] * residuals)


def groups(*sides: Sequence[Answers]) -> list[Group]:
    """Groups over the same questions, those of all of them."""
    questions = sorted({question for side in sides for answers in side for question in answers})
    tables = [
        np.array([[answers.get(question, (0.0, 0.0)) for question in questions] for answers in side], dtype=float)
        for side in sides
    ]  # fmt: skip
    return [Group(table[..., 0], table[..., 1]) for table in tables]


def over_seeds(runs: Sequence[Answers], is_perplexity: bool) -> Interval:
    """The mean of the seeds' scores in percent, or perplexities; n counts the questions of all seeds, each once."""
    (group,) = groups(runs)
    n, scores = group.values.shape[1], group.values[group.units > 0]
    if not is_perplexity and scores.min() == scores.max() and scores[0] in (0.0, 100.0):
        low, high = wilson(n if scores[0] else 0, n)  # nothing varies
        return Interval(float(scores[0]), 100 * low, 100 * high, n)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        figures = group.figures(is_perplexity)
        value = float(figures.each.mean())
        margin = effect([(1.0, figures)]).margin
        if is_perplexity:  # a ratio, so that no end is below 0
            widest = float(np.exp(margin / value))
            return Interval(value, value / widest, value * widest, n)
    return Interval(value, max(value - margin, 0.0), min(value + margin, 100.0), n)


@dataclass(frozen=True)
class Effect:
    """A mean or a difference with its variance, whose part by seeds has few degrees of freedom.

    Two t tests decide, and the difference has to pass both. One takes all of the variance, with Satterthwaite's degrees of
    freedom. These come out too high where the few seeds happen to agree, so the other takes the seeds' part alone with its
    own degrees of freedom, less `credit`, without which two seeds would be tested too strictly. Together they call 3 to 7 %
    of true nulls a difference from two seeds on, whatever seeds and questions vary by (tests/benchmarks/test_paired.py).
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
        """Of each test standard error, degrees of freedom and credit."""
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
        found = [
            float(2 * stdtr(freedom, -(size + credit) / error)) for error, freedom, credit in self._tests
        ]
        return max(found, default=None) if math.isfinite(size) else None

    @property
    def detectable(self) -> float | None:
        """The least difference that would have been shown in four cases of five."""
        return max(
            (detectable_shift(error, freedom) - credit for error, freedom, credit in self._tests),
            default=None,
        )


def contrast(first: Figures, second: Figures, matched: bool) -> Effect:
    """The second group's mean less the first's, over seeds and questions.

    Args:
        matched: the groups have the same seeds, in the same order: their differences count.
    """
    if matched:
        return effect([(1.0, Figures(second.each - first.each, second.residuals - first.residuals))])
    return effect([(-1.0, first), (1.0, second)])


def effect(parts: Sequence[tuple[float, Figures]]) -> Effect:
    """The sum of groups' means over seeds, each with its sign.

    The variance is what the seeds' figures differ by, and the covariance of two seeds, which comes from the questions that
    they share. Of a single run this is the t test, with units that of a ratio (the delta method).
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
    """Of the figures of two seeds; of a single run its variance."""
    count = len(part)
    if part is not other:
        return float((part.sum(0) * other.sum(0)).sum()) / (count * len(other))
    squares = float((part**2).sum())
    return squares if count == 1 else (float((part.sum(0) ** 2).sum()) - squares) / (count * (count - 1))
