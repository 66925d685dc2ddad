"""Two systems on the same questions: the difference with its 95 % interval and p. Every difference is the second minus the first.

Each side is one run, or runs that differ only in their seed, paired seed by seed. The difference is `crossed`'s over seeds
and questions; right or wrong answers of one run a side are tested by McNemar's exact test. Where seeds were asked different
questions, each seed's difference is a value and Student's t is over seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.stats import binomtest

from toolformer.statistics.crossed import Effect
from toolformer.statistics.intervals import Answers, Table, exponential, table, wilson

MCNEMAR, OVER_QUESTIONS = "McNemar's exact test", "Student's t over questions"
CROSSED, OVER_SEEDS = "crossed seeds and questions", "Student's t over seeds, asked different questions"


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float | None
    """None, as `high`, where the method gives no sound interval: see `compare`."""
    high: float | None


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same questions."""

    n: int
    """Different questions."""
    first: float
    """Mean score in percent, or perplexity."""
    second: float
    difference: Estimate
    """Percentage points, second minus first; of perplexities the ratio, second over first."""
    p_value: float | None
    """Two-sided; None where nothing varies."""
    test: str
    """By which p was computed."""
    detectable: float | None = None
    """The smallest true difference (of perplexities the ratio above 1) that is significant in four cases of five."""
    only_first: int | None = None
    """Answers, of all seeds, that the first has right (or better) and the second not; None for perplexities."""
    only_second: int | None = None
    by_seed: tuple[float, ...] = ()
    """The difference of each seed, in percentage points; empty for perplexities."""


def compare(first: Sequence[Answers], second: Sequence[Answers], is_perplexity: bool = False) -> Comparison:
    """Compares two sides with one entry per seed, in the same order, each pair with the same questions.

    No interval over seeds ends beyond what is possible: a score is at least 0 and at most 100. Where Student's t would reach beyond
    zero by more than the lesser score, the seeds are of two kinds (some gain much, some nothing), for
    which three seeds cover the true mean in 77 % of cases in place of 95: there is no interval, and `by_seed` is to be shown.

    Args:
        is_perplexity: answers are log-likelihoods in nats with their units, else scores from 0 to 100.

    >>> found = compare(*([{n: (x, 1) for n, x in enumerate(side)}] for side in ([100, 0, 0, 100], [100, 100, 100, 0])))
    >>> found.first, found.second, found.difference.value, found.only_first, found.only_second, found.p_value
    (50.0, 75.0, 25.0, 1, 2, 1.0)
    """
    paired = [_differences(*pair) for pair in zip(first, second, strict=True)]
    first_mean, second_mean = (table(side).effect.value for side in (first, second))
    differences = table(paired)
    effect = differences.effect
    test = OVER_SEEDS if not differences.is_crossed else CROSSED if len(first) > 1 else OVER_QUESTIONS
    if is_perplexity:
        first_mean, second_mean = exponential(-first_mean), exponential(-second_mean)
        low, high = effect.ends
        ratio = Estimate(*(exponential(-nats) for nats in (effect.value, high, low)))
        detectable = None if effect.detectable is None else exponential(effect.detectable)
        return Comparison(differences.n, first_mean, second_mean, ratio, effect.p_value, test, detectable)
    is_shared = [question for question in paired[0] if all(question in run for run in paired)]
    questions_by_run = [is_shared if differences.is_crossed else [*run] for run in paired]
    values = [
        run[question][0]
        for run, questions in zip(paired, questions_by_run, strict=True)
        for question in questions
    ]
    lost, gained = sum(value < 0 for value in values), sum(value > 0 for value in values)
    p_value = effect.p_value
    is_binary = {score for side in (first, second) for run in side for score, _ in run.values()} <= {
        0.0,
        100.0,
    }
    if is_binary and len(first) == 1:
        p_value, test = mcnemar(lost, gained), MCNEMAR
    by_seed = tuple(fmean(value for value, _ in run.values()) for run in paired)
    low, high = _ends(effect, differences, is_binary)
    is_score = all(0 <= score <= 100 for side in (first, second) for run in side for score, _ in run.values())
    lesser = min(first_mean, second_mean)
    if len(first) == 1 or not is_score or not effect.error:
        difference = Estimate(effect.value, low, high)
    elif low < -lesser if effect.value >= 0 else high > lesser:
        difference = Estimate(effect.value, None, None)
    else:
        most = 100 - lesser
        difference = Estimate(effect.value, max(-most, low), min(most, high))
    return Comparison(
        *(
            differences.n,
            first_mean,
            second_mean,
            difference,
            p_value,
            test,
            effect.detectable,
            lost,
            gained,
            by_seed,
        )
    )


def _differences(first: Answers, second: Answers) -> Answers:
    """The second less the first by question; texts of both have the same units."""
    return {
        question: (second[question][0] - value, units)
        for question, (value, units) in first.items()
        if question in second
    }


def _ends(effect: Effect, differences: Table, is_binary: bool) -> tuple[float, float]:
    """The interval in percentage points; where no answer differs, what so many questions leave open (Wilson)."""
    if is_binary and not effect.value and not effect.error:
        high = 100 * wilson(0, differences.n)[1]
        return -high, high
    low, high = effect.ends
    return max(-100.0, low), min(100.0, high)


def mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided p of McNemar's exact test: the discordant answers fall to either side with probability 1/2.

    >>> mcnemar(0, 5), mcnemar(3, 3), mcnemar(0, 0)
    (0.0625, 1.0, 1.0)
    """
    discordant = only_first + only_second
    return float(binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0
