"""95 % intervals of the scores (percent) and perplexities of one run, or of runs that differ only in their seed.

Right and wrong answers of one run have Wilson's interval; everything else has `crossed`'s. Log-likelihoods are in nats.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import binomtest

from toolformer.statistics.crossed import LEVEL, Effect, crossed, over_values

Answers = Mapping[str, tuple[float, float]]
"""One seed's answers by question: a score from 0 to 100 and 1, or the nats of a text and its words or tokens."""


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval, over `n` different questions."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Table:
    """Input of `crossed`: the answers of runs that differ only in their seed."""

    values: Any
    """[seeds, questions]: scores, or nats per unit; [seeds] where seeds were asked different questions."""
    n: int
    """Different questions."""
    within: float = 0.0
    """Where seeds were asked different questions, the standard error of the mean that comes from the questions alone."""

    @property
    def is_crossed(self) -> bool:
        """Whether all seeds have the same questions."""
        return self.values.ndim == 2

    @property
    def effect(self) -> Effect:
        """The mean over seeds and questions."""
        if self.is_crossed:
            return crossed(self.values)
        effect = over_values(self.values)
        return effect if effect.error else replace(effect, error=self.within)  # seeds that happen to agree


def table(runs: Sequence[Answers]) -> Table:
    """The answers of runs to the questions that all of them share; their means if they share less than half.

    Texts weigh by their units: an entry is the text's contribution to the nats per unit of all texts, and the means of
    rows are those nats. ValueError without any answers.
    """
    every = dict.fromkeys(question for run in runs for question in run)
    common = [question for question in every if all(question in run for run in runs)]
    if not all(runs) or not runs:
        raise ValueError("an interval needs at least one document")
    if 2 * len(common) < max(map(len, runs)):
        entries = [_weighted([*run.values()]) for run in runs]
        errors = [entry.std(ddof=1) / np.sqrt(len(entry)) if len(entry) > 1 else 0.0 for entry in entries]
        within = float(np.sqrt(np.square(errors).sum()) / len(runs))
        return Table(np.array([entry.mean() for entry in entries]), len(every), within)
    return Table(np.array([_weighted([run[question] for question in common]) for run in runs]), len(common))


def _weighted(answers: Sequence[tuple[float, float]]) -> Any:
    """One seed's entries [questions]: linearised about the ratio of sums (the delta method), so that lengths do not count as spread."""
    values, units = np.array(answers, dtype=float).T
    if not units.sum() > 0:
        raise ValueError("perplexity needs at least one word or token")
    mean = values.sum() / units.sum()
    return mean + (values - mean * units) * len(units) / units.sum()


def score_interval(runs: Sequence[Answers]) -> Interval:
    """The mean score in percent of runs that differ only in their seed. ValueError without any answers."""
    answers = table(runs)
    effect = answers.effect
    is_binary = {score for run in runs for score, _ in run.values()} <= {0.0, 100.0}
    if is_binary and (len(runs) == 1 or not effect.error):
        # Also where all seeds answer alike: what so many questions leave open.
        low, high = (100 * end for end in wilson(round(effect.value * answers.n / 100), answers.n))
    else:
        low, high = (min(100.0, max(0.0, end)) for end in effect.ends)
    return Interval(effect.value, low, high, answers.n)


def mean_interval(runs: Sequence[Answers]) -> Interval:
    """The mean of anything else, as the nats of gold answers. ValueError without any answers."""
    answers = table(runs)
    return Interval(answers.effect.value, *answers.effect.ends, answers.n)


def perplexity_interval(runs: Sequence[Answers]) -> Interval:
    """exp(-nats per unit) of runs that differ only in their seed, of which it is the geometric mean.

    Of all documents together, not a mean over documents. ValueError without any units.
    """
    answers = table(runs)
    effect = answers.effect
    low, high = effect.ends
    return Interval(exponential(-effect.value), exponential(-high), exponential(-low), answers.n)


def exponential(exponent: float) -> float:
    """exp, infinite where a float ends."""
    return math.exp(exponent) if exponent < 700 else math.inf


def wilson(right: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of the share `right` / `n`, both ends in 0 to 1; `n` is at least 1."""
    interval = binomtest(right, n).proportion_ci(1 - LEVEL, "wilson")
    return float(interval.low), float(interval.high)
