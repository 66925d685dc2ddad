"""Paired statistics and statistics over seeds: by hand, held to simulation, and what must hold for any two systems."""

import math
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, ttest_rel
from statsmodels.stats.multitest import multipletests

from benchmarks.paired import PerplexityComparison, ScoreComparison, compare
from benchmarks.power import detectable_percent, holm
from benchmarks.seeds import Group, contrast, groups, over_seeds

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


def group(scores: np.ndarray, own: bool) -> Group:
    """Of [seeds, questions]; with `own` every seed is asked questions of its own."""
    units = np.ones_like(scores)
    if own:
        each = np.eye(len(scores))[:, :, None]
        scores, units = ((each * table[:, None]).reshape(len(scores), -1) for table in (scores, units))
    return Group(scores, units)


@pytest.mark.parametrize(
    ("seeds", "own", "matched", "by_seed"),
    [(5, False, True, 0.0), (5, False, True, 0.1), (5, True, True, 0.1), (5, False, False, 0.1), (10, False, False, 0.05)],
)  # fmt: skip
def test_a_test_over_seeds_calls_three_to_seven_percent_of_nulls_a_difference(
    seeds: int, own: bool, matched: bool, by_seed: float
) -> None:
    """Right and wrong; `by_seed` is the spread of the difference over seeds, as a share right."""
    rng = np.random.default_rng(1)
    shape, found = (seeds, 100), 0
    for _ in range(NULLS):
        easy = rng.random(shape if own else shape[1:])
        sides = [
            100.0 * (rng.random(shape) < easy + rng.normal(0, by_seed / 2**0.5, (seeds, 1))) for _ in range(2)
        ]
        p = contrast(*(group(side, own) for side in sides), matched).p_value
        found += p is not None and p < 0.05
    assert 0.03 <= found / NULLS <= 0.07


@pytest.mark.parametrize(("n", "discordant"), [(200, 40), (1000, 100), (100, 50)])
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
    by_seeds = contrast(*groups(answers(first[None]), answers(second[None])), matched=True)
    assert by_seeds.p_value == pytest.approx(found.p_value) and by_seeds.freedom == pytest.approx(49)


def test_an_interval_over_seeds_holds_what_seeds_and_questions_vary_by() -> None:
    rng = np.random.default_rng(5)
    easy = rng.random(200)
    alike = answers(np.repeat(100.0 * (rng.random(200) < easy)[None], 5, axis=0))
    once, five = over_seeds(alike[:1], False), over_seeds(alike, False)
    assert once.value == five.value and five.n == 200
    assert five.high - five.low == pytest.approx(once.high - once.low, rel=0.1), "five times the same"
    level = np.array([10.0, 30.0, 50.0, 70.0, 90.0])
    apart = over_seeds(answers(100.0 * (rng.random((5, 2000)) < level[:, None] / 100)), False)
    # Standard error of five seeds: 31.6 / sqrt(5) = 14.1.
    assert apart.value == pytest.approx(50, abs=2) and apart.high - apart.low == pytest.approx(55, rel=0.15)
    assert over_seeds(answers(np.zeros((3, 10))), False).high > 20, "nothing right leaves something open"
    assert over_seeds(alike[::-1], False).value == five.value


def test_perplexity_over_seeds_is_the_mean_of_the_seeds() -> None:
    runs = [{f"{n}": (-level * 4.0, 4.0) for n in range(20)} for level in (1.0, 2.0)]
    found = over_seeds(runs, True)
    assert found.value == pytest.approx((np.e + np.e**2) / 2)
    assert (found.low, found.high) == pytest.approx((np.e, np.e**2)), "one of two seeds is drawn"
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


@settings(max_examples=20)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_that_of_statsmodels(p_values: list[float]) -> None:
    assert holm(p_values) == multipletests(p_values, method="holm")[1].tolist()
