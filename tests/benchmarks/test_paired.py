"""Paired statistics against values worked out by hand, and what must hold for any two systems."""

from __future__ import annotations

import doctest
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import paired
from benchmarks.paired import compare_perplexities, compare_scores, mcnemar

RESAMPLES = 200

pairs = st.lists(
    st.tuples(st.sampled_from([0.0, 100.0]), st.sampled_from([0.0, 100.0])), min_size=1, max_size=40
)
texts = st.lists(
    st.tuples(st.floats(-200, -0.1), st.integers(1, 60), st.floats(-200, -0.1), st.integers(1, 60)),
    min_size=1,
    max_size=20,
)


def test_the_examples_are_true() -> None:
    assert doctest.testmod(paired).failed == 0


@pytest.mark.parametrize(
    ("b", "c", "p"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (0, 5, 2 / 2**5),
        (1, 9, 2 * (1 + 10) / 2**10),  # 2 P(X <= 1), X ~ B(10, 1/2)
        (2, 10, 2 * (1 + 12 + 66) / 2**12),
        (7, 7, 1.0),
    ],
)
def test_mcnemar_by_hand(b: int, c: int, p: float) -> None:
    assert mcnemar(b, c) == pytest.approx(p, rel=1e-12) == mcnemar(c, b)


def test_a_small_bootstrap_by_hand() -> None:
    """Three samples have 27 resamples; the interval's ends are quantiles of their differences."""
    first, second = [0.0, 0.0, 100.0], [100.0, 0.0, 100.0]
    found = compare_scores(first, second, resamples=20_000)
    differences = [np.mean([(100, 0, 0)[n] for n in draw]) for draw in product(range(3), repeat=3)]
    low, high = np.quantile(differences, [0.025, 0.975], method="inverted_cdf")
    # The largest of them has probability 1/27, which is more than 2.5 %.
    assert (found.difference.low, found.difference.high) == pytest.approx((low, high)) == (0.0, 100.0)
    assert (found.difference.value, found.only_first, found.only_second) == (pytest.approx(100 / 3), 0, 1)


def test_pairing_is_what_narrows_the_interval() -> None:
    first = [100.0 * (n % 2) for n in range(200)]
    second = [100.0 if n % 20 == 0 else score for n, score in enumerate(first)]
    found = compare_scores(first, second)
    assert found.difference.value == 5.0 and found.only_second == 10 and found.only_first == 0
    assert compare_scores([50.0, 100.0], [100.0, 150.0], resamples=10).p_value is None, "nothing varies"
    assert found.difference.low > 0 and found.difference.high - found.difference.low < 7
    assert found.p_value == pytest.approx(2 / 2**10)


@settings(max_examples=40, deadline=None)
@given(pairs, st.integers(0, 3))
def test_scores_are_antisymmetric(rows: list[tuple[float, float]], seed: int) -> None:
    first, second = [one for one, _ in rows], [two for _, two in rows]
    found = compare_scores(first, second, seed, RESAMPLES)
    back = compare_scores(second, first, seed, RESAMPLES)
    assert found.p_value is not None and 0 <= found.p_value <= 1 and found.p_value == back.p_value
    assert found.difference.value == pytest.approx(-back.difference.value, abs=1e-9)
    assert found.difference.low == pytest.approx(-back.difference.high, abs=1e-9)
    assert found.difference.high == pytest.approx(-back.difference.low, abs=1e-9)
    assert found.difference.value == pytest.approx(found.second - found.first, abs=1e-9)
    assert found.difference.value == pytest.approx(100 * (found.only_second - found.only_first) / found.n)
    assert found == compare_scores(first, second, seed, RESAMPLES)


@settings(max_examples=40, deadline=None)
@given(texts)
def test_perplexities_are_antisymmetric(rows: list[tuple[float, int, float, int]]) -> None:
    one, units_one, two, units_two = (list(column) for column in zip(*rows, strict=True))
    found = compare_perplexities(one, units_one, two, units_two, 0, RESAMPLES)
    back = compare_perplexities(two, units_two, one, units_one, 0, RESAMPLES)
    assert found.first == pytest.approx(math.exp(-sum(one) / sum(units_one)))
    assert found.difference.value == pytest.approx(-back.difference.value, rel=1e-9)
    assert found.ratio.value == pytest.approx(1 / back.ratio.value)
    assert found.ratio.value == pytest.approx(found.second / found.first)
    rounding = 1e-9 * (found.first + found.second)
    assert (
        found.difference.low <= found.difference.high + rounding
        and found.ratio.low <= found.ratio.high + rounding
    )
    assert found.difference.low == pytest.approx(-back.difference.high, rel=1e-6, abs=1e-9)


def test_a_perplexity_ratio_by_hand() -> None:
    """The second loses ln 2 a word on every text: twice the perplexity, whatever is drawn."""
    words = [3, 5, 9]
    first = [-float(n) for n in words]
    second = [-n * (1 + math.log(2)) for n in words]
    found = compare_perplexities(first, words, second, words)
    assert (found.first, found.second) == pytest.approx((math.e, 2 * math.e))
    assert (found.ratio.low, found.ratio.value, found.ratio.high) == pytest.approx((2, 2, 2))
    assert found.difference.value == pytest.approx(math.e)


def test_what_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="2 and 1 samples"):
        compare_scores([0, 0], [0])
    with pytest.raises(ValueError, match="0 and 0"):
        compare_scores([], [])
    with pytest.raises(ValueError, match="units"):
        compare_perplexities([-1.0, -2.0], [1], [-1.0, -2.0], [1])
