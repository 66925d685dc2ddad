"""Paired statistics and statistics over seeds: by hand, held to simulation, and what must hold for any two systems."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, nct, t, ttest_rel

from toolformer.statistics.paired import PerplexityComparison, ScoreComparison, compare
from toolformer.statistics.power import detectable_percent, detectable_shift, holm
from toolformer.statistics.seeds import Effect, Estimates, Group, contrast, effect, over_seeds

RESAMPLES = 200

right = st.sampled_from([0.0, 100.0])
pairs = st.lists(st.tuples(right, right), min_size=1, max_size=40)


def compare_scores(
    first: Sequence[float], second: Sequence[float], seed: int = 0, resamples: int = RESAMPLES
) -> ScoreComparison:
    """Of two runs."""
    found = compare(*(answers(np.array([side])) for side in (first, second)), seed=seed, resamples=resamples)
    assert isinstance(found, ScoreComparison)
    return found


def test_a_small_bootstrap_by_hand() -> None:
    """Three samples have 27 resamples; the interval's ends are quantiles of their differences."""
    first, second = [0.0, 0.0, 100.0], [100.0, 0.0, 100.0]
    found = compare_scores(first, second, resamples=20_000)
    differences = [np.mean([(100, 0, 0)[n] for n in draw]) for draw in product(range(3), repeat=3)]
    low, high = np.quantile(differences, [0.025, 0.975], method="inverted_cdf")
    # The largest of them has probability 1/27, which is more than 2.5 %.
    assert (found.difference.low, found.difference.high) == pytest.approx((low, high)) == (0.0, 100.0)
    assert (found.difference.value, found.only_first, found.only_second) == (pytest.approx(100 / 3), 0, 1)


@settings(max_examples=40, deadline=None)
@given(pairs, st.integers(0, 3))
def test_scores_are_antisymmetric(rows: list[tuple[float, float]], seed: int) -> None:
    first, second = zip(*rows, strict=True)
    found = compare_scores(first, second, seed, RESAMPLES)
    back = compare_scores(second, first, seed, RESAMPLES)
    assert found.p_value is not None and 0 <= found.p_value <= 1 and found.p_value == back.p_value
    one, two = found.difference, back.difference
    assert (one.low, one.value, one.high) == pytest.approx((-two.high, -two.value, -two.low), abs=1e-9)
    assert found.difference.value == pytest.approx(found.second - found.first, abs=1e-9)
    assert found.difference.value == pytest.approx(100 * (found.only_second - found.only_first) / found.n)
    assert found == compare_scores(first, second, seed, RESAMPLES)


def test_a_perplexity_ratio_by_hand() -> None:
    """The second loses ln 2 a word on every text: twice the perplexity, whatever is drawn."""
    words = [3, 5, 9]
    first = [-float(n) for n in words]
    second = [-n * (1 + math.log(2)) for n in words]
    sides = (
        [{f"{n}": text for n, text in enumerate(zip(nats, words, strict=True))}] for nats in (first, second)
    )
    found = compare(*sides, is_perplexity=True)
    assert isinstance(found, PerplexityComparison)
    assert (found.first, found.second) == pytest.approx((math.e, 2 * math.e))
    assert (found.ratio.low, found.ratio.value, found.ratio.high) == pytest.approx((2, 2, 2))
    assert found.difference.value == pytest.approx(math.e)


NULLS = 1000


def answers(scores: np.ndarray) -> list[Mapping[str, tuple[float, float]]]:
    """Of [seeds, questions], all asked the same."""
    return [{f"{n}": (float(score), 1.0) for n, score in enumerate(of_seed)} for of_seed in scores]


def figures(scores: np.ndarray, own: bool = False) -> Estimates:
    """Of [seeds, questions]; with `own` every seed is asked questions of its own."""
    units = np.ones_like(scores)
    if own:
        each = np.eye(len(scores))[:, :, None]
        scores, units = ((each * table[:, None]).reshape(len(scores), -1) for table in (scores, units))
    return Group(scores, units).estimates()


@pytest.mark.parametrize(
    ("seeds", "own", "matched", "by_seed", "by_question"),
    [
        (2, False, True, 0.0, 0.3),
        (3, False, True, 0.05, 0.3),
        (5, False, True, 0.2, 0.3),
        (2, True, True, 0.1, 0.0),
        (3, False, False, 0.05, 0.3),
        (10, False, False, 0.05, 0.0),
    ],
)
def test_a_test_over_seeds_calls_three_to_seven_percent_of_nulls_a_difference(
    seeds: int, own: bool, matched: bool, by_seed: float, by_question: float
) -> None:
    """Right and wrong; what each side's share right varies by over seeds, and over questions."""
    rng = np.random.default_rng(1)
    shape, found, held = (seeds, 100), 0, 0

    def side(easy: np.ndarray) -> np.ndarray:
        right, noise = rng.random(shape), rng.normal(0, by_question, 100)
        return 100.0 * (right < easy + noise + rng.normal(0, by_seed, (seeds, 1)))

    for _ in range(NULLS):
        easy = rng.random(shape if own else shape[1:])
        sides = [side(easy) for _ in range(2)]
        tested = contrast(*(figures(scores, own) for scores in sides), matched)
        found += tested.p_value is not None and tested.p_value < 0.05
        held += abs(tested.value) <= tested.margin
    assert 0.03 <= found / NULLS <= 0.07 and 0.93 <= held / NULLS <= 0.97


@pytest.mark.parametrize(("seeds", "by_seed"), [(2, 5.0), (3, 0.0), (5, 20.0)])
def test_an_interval_over_seeds_holds_the_mean_in_93_to_97_percent(seeds: int, by_seed: float) -> None:
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(4 * NULLS):
        shared = rng.normal(0, by_seed, (seeds, 1)) + rng.normal(0, 30, 200)
        mean = effect([(1.0, figures(shared + rng.normal(0, 20, (seeds, 200))))])
        held += abs(mean.value) <= mean.margin
    assert 0.93 <= held / (4 * NULLS) <= 0.97


def test_an_interval_of_a_ratio_of_perplexities_over_seeds_holds_it() -> None:
    seeds, rng = 3, np.random.default_rng(3)
    units = rng.integers(20, 200, 60)
    held = 0

    def runs(text: Any) -> list[Mapping[str, tuple[float, float]]]:
        by_seed = rng.normal(0, 0.01, (seeds, 1)) + rng.normal(0, 0.02, (seeds, 60))
        nats = text + rng.normal(0, 0.05, 60) + by_seed
        return [
            {f"{n}": (-x * of, float(of)) for n, (x, of) in enumerate(zip(row, units, strict=True))}
            for row in nats
        ]

    for _ in range(NULLS):
        text = rng.normal(3, 0.4, 60)
        found = compare(runs(text), runs(text), is_perplexity=True)
        assert isinstance(found, PerplexityComparison)
        held += found.ratio.low <= 1 <= found.ratio.high
    assert 0.93 <= held / NULLS <= 0.97


def test_groups_of_any_two_sizes_are_compared() -> None:
    rng = np.random.default_rng(7)
    for one, two in product((1, 2, 3), repeat=2):
        sides = [answers(100.0 * (rng.random((n, 50)) < share)) for n, share in ((one, 0.2), (two, 0.8))]
        found = compare(*sides, matched=one == two)
        assert isinstance(found, ScoreComparison) and (found.only_first is None) == (one != two)
        assert found.difference.low < 60 < found.difference.high and found.p_value is not None


def test_a_shift_is_detected_in_four_cases_of_five_at_every_n() -> None:
    freedom = np.arange(1, 2000)
    critical = t.ppf(0.975, freedom)
    size = np.array([detectable_shift(1.0, float(of)) for of in freedom])
    power = nct.sf(critical, freedom, size)  # the other tail is empty
    assert power == pytest.approx(np.full(1999, 0.8), abs=1e-5)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_what_seeds_could_have_detected_is_what_simulation_finds(seeds: int) -> None:
    rng = np.random.default_rng(8)
    known = Effect(0.0, by_seed=2 / seeds, seed_freedom=seeds - 1, by_question=1.0, question_freedom=24)
    assert known.detectable is not None
    shown = 0
    for _ in range(NULLS):
        scores = rng.normal(0, 1, (seeds, 1)) + rng.normal(0, 5, 25) + rng.normal(0, 5, (seeds, 25))
        p = effect([(1.0, figures(scores + known.detectable))]).p_value
        shown += p is not None and p < 0.05
    assert shown / NULLS == pytest.approx(0.8, abs=0.1)


@pytest.mark.parametrize(("n", "discordant"), [(200, 40), (1000, 100)])
def test_what_a_comparison_could_have_detected_is_what_simulation_finds(n: int, discordant: int) -> None:
    rng = np.random.default_rng(2)
    share = discordant / n

    def missed(difference: float) -> float:
        first, second, _ = rng.multinomial(
            n, [(share - difference) / 2, (share + difference) / 2, 1 - share], 20_000
        ).T
        p = 2 * binom.cdf(np.minimum(first, second), first + second, 0.5)  # McNemar's, where it is below 1
        return float(np.mean(p < 0.05)) - 0.8

    simulated = 100 * brentq(missed, 0.01, share - 1e-3, xtol=1e-3)
    assert detectable_percent(n, discordant) == pytest.approx(simulated, rel=0.1)


def test_single_runs_are_tested_by_the_paired_t_test() -> None:
    rng = np.random.default_rng(4)
    first, second = rng.random(50) * 100, rng.random(50) * 100
    found = compare_scores(list(first), list(second))
    assert found.p_value == pytest.approx(ttest_rel(first, second).pvalue)
    assert compare_scores([50.0, 100.0], [100.0, 150.0], resamples=10).p_value is None, "nothing varies"
    assert contrast(figures(first[None]), figures(second[None]), False).p_value == pytest.approx(
        found.p_value
    )


def test_an_interval_over_seeds_holds_what_seeds_and_questions_vary_by() -> None:
    rng = np.random.default_rng(5)
    easy = rng.random(200)
    alike = answers(np.repeat(100.0 * (rng.random(200) < easy)[None], 5, axis=0))
    once, five = over_seeds(alike[:1], False), over_seeds(alike, False)
    assert once.value == five.value and five.n == 200
    assert five.high - five.low == pytest.approx(once.high - once.low, rel=0.1), "five times the same"
    level = np.array([10.0, 30.0, 50.0, 70.0, 90.0])
    apart = over_seeds(answers(100.0 * (rng.random((5, 2000)) < level[:, None] / 100)), False)
    # Standard error of five seeds: 31.6 / sqrt(5) = 14.1; t of four degrees of freedom: 2.78.
    assert apart.value == pytest.approx(50, abs=2) and apart.high - apart.low == pytest.approx(78.5, rel=0.05)
    assert over_seeds(answers(np.zeros((3, 10))), False).high > 20, "nothing right leaves something open"
    assert over_seeds(alike[::-1], False).value == five.value


def test_perplexity_over_seeds_is_the_mean_of_the_seeds() -> None:
    runs = [{f"{n}": (-level * 4.0, 4.0) for n in range(20)} for level in (1.0, 2.0)]
    found = over_seeds(runs, True)
    assert found.value == pytest.approx((np.e + np.e**2) / 2)
    assert 0 < found.low < np.e and found.high > np.e**2, "two seeds leave nearly everything open"
    change = compare(
        runs, [{key: (2 * value, 4.0) for key, (value, _) in run.items()} for run in runs], True, True
    )
    assert change.first == pytest.approx(found.value) and change.p_value is not None and change.p_value > 0.05


def test_groups_of_seeds_are_compared() -> None:
    rng = np.random.default_rng(6)
    easy = 0.5 * rng.random(200)
    first = answers(100.0 * (rng.random((5, 200)) < easy))
    second = answers(100.0 * (rng.random((5, 200)) < easy + 0.2))
    found = compare(first, second, matched=True, is_perplexity=False)
    assert isinstance(found, ScoreComparison) and found.n == 200
    assert found.difference.low < 20 < found.difference.high and found.p_value < 0.01
    assert found.only_first < found.only_second and found.detectable < 20
    other = compare(first[:1], second, matched=False, is_perplexity=False)
    assert isinstance(other, ScoreComparison) and other.only_first is None
    assert other.p_value < 0.01
    assert compare(first, second, True, False) == found, "the same seeds give the same table"
    assert holm([]) == [] and holm([None]) == [None] and holm([0.02, 0.01, None]) == [0.02, 0.02, None]


@settings(max_examples=200)
@given(st.lists(st.integers(0, 64), min_size=1, max_size=12), st.integers(0, 63))
def test_holm_rejects_what_its_steps_reject(parts: list[int], level: int) -> None:
    """The smallest p at level / m, the next at level / (m - 1), up to the first that is not below; of 64ths, exact."""
    rejected, left = [], sorted(parts)
    while left and left[0] * len(left) <= level:
        rejected.append(left.pop(0))
    corrected = holm([part / 64 for part in parts])
    assert [p <= level / 64 for p in corrected if p is not None] == [part in rejected for part in parts]
