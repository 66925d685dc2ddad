"""Intervals of scores and perplexities."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from toolformer.statistics.intervals import mean_interval, perplexity_interval, score_interval, wilson


def run(values: Any, units: Any = None) -> Mapping[str, tuple[float, float]]:
    """One seed's answers."""
    units = np.ones(len(values)) if units is None else units
    return {f"{n}": (float(x), float(of)) for n, (x, of) in enumerate(zip(values, units, strict=True))}


def test_right_and_wrong_answers_have_wilsons_interval() -> None:
    interval = score_interval([run([100.0] * 50 + [0.0] * 50)])
    assert (interval.value, interval.low, interval.high, interval.n) == pytest.approx(
        (50, 40.4, 59.6, 100), abs=0.05
    )
    assert wilson(50, 100) == pytest.approx((0.404, 0.596), abs=5e-4)


@pytest.mark.parametrize("score", [0.0, 100.0])
def test_unanimous_answers_leave_something_open(score: float) -> None:
    for runs in (1, 3):
        interval = score_interval([run([score] * 20)] * runs)
        assert interval.value == score and interval.high - interval.low > 10


def test_graded_scores_stay_within_their_range() -> None:
    interval = score_interval([run([100.0, 90.0, 0.0, 100.0])])
    assert 0 <= interval.low < interval.value < interval.high == 100


def test_nats_may_exceed_a_hundred() -> None:
    assert mean_interval([run([150.0, 250.0])]).high > 250


def test_seeds_that_agree_count_like_one() -> None:
    scores = 100.0 * (np.random.default_rng(5).random(200) < 0.4)
    one, five = score_interval([run(scores)]), score_interval([run(scores)] * 5)
    assert five.value == pytest.approx(one.value) and five.n == 200
    assert five.high - five.low == pytest.approx(one.high - one.low, rel=0.1)


def test_the_spread_of_seeds_widens_an_interval() -> None:
    rng = np.random.default_rng(5)
    seeds = [run(100.0 * (rng.random(2000) < share)) for share in (0.1, 0.3, 0.5, 0.7, 0.9)]
    # Standard error of five seeds: 31.6 / sqrt(5) = 14.1; t of four degrees of freedom: 2.78.
    interval = score_interval(seeds)
    assert interval.high - interval.low == pytest.approx(78.5, rel=0.05)


def test_seeds_with_different_questions_are_values() -> None:
    seeds = [
        {f"{seed} {n}": (score, 1.0) for n in range(10)} for seed, score in enumerate((10.0, 20.0, 30.0))
    ]
    interval = mean_interval(seeds)
    assert interval.n == 30 and (interval.low, interval.high) == pytest.approx(
        (20 - 24.84, 20 + 24.84), abs=0.01
    )


def test_perplexity_is_of_all_texts_together() -> None:
    interval = perplexity_interval([run([-3.0, -20.0], [3, 5])])
    assert interval.value == pytest.approx(math.exp(23 / 8)) and interval.low < interval.value < interval.high


def test_lengths_alone_are_not_spread() -> None:
    units = [1, 10, 100]
    interval = perplexity_interval([run([-2.0 * of for of in units], units)])
    assert (interval.low, interval.high) == pytest.approx((math.exp(2), math.exp(2)))


def test_perplexity_over_seeds_is_the_geometric_mean() -> None:
    interval = perplexity_interval([run([-4.0 * level] * 20, [4.0] * 20) for level in (1.0, 2.0)])
    assert interval.value == pytest.approx(math.exp(1.5))
    assert interval.low < math.e and interval.high > math.e**2, "two seeds leave nearly everything open"


@pytest.mark.parametrize("n", [5, 20])
def test_intervals_of_few_texts_hold_the_perplexity(n: int) -> None:
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(1000):
        units = rng.integers(50, 150, n)
        interval = perplexity_interval([run(-(3 + rng.normal(0, 0.4, n)) * units, units)])
        held += interval.low <= math.exp(3) <= interval.high
    assert 0.92 <= held / 1000 <= 0.98


def test_an_impossible_text_has_infinite_perplexity() -> None:
    assert perplexity_interval([run([-1e9, -1.0], [1, 1])]).value == math.inf


@pytest.mark.parametrize(
    ("interval", "answers"),
    [(score_interval, {}), (mean_interval, {}), (perplexity_interval, {"a": (-1.0, 0.0)})],
)
def test_nothing_has_no_interval(interval: Callable[..., Any], answers: Any) -> None:
    with pytest.raises(ValueError, match="at least one"):
        interval([answers])


def test_seeds_that_agree_leave_something_open() -> None:
    seeds = [{f"{seed} {n}": (100.0 * (n == 0), 1.0) for n in range(10)} for seed in range(3)]
    interval = mean_interval(seeds)
    assert interval.value == 10 and interval.low < 0 < 20 < interval.high
