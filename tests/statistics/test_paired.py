"""Two systems on the same questions: by hand, on simulated nulls, and what must hold for any two."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from toolformer.statistics.paired import CROSSED, MCNEMAR, OVER_QUESTIONS, OVER_SEEDS, compare, mcnemar

right = st.sampled_from([0.0, 100.0])


def answers(scores: Any) -> list[Mapping[str, tuple[float, float]]]:
    """Of [seeds, questions], all seeds asked the same."""
    return [{f"{n}": (float(score), 1.0) for n, score in enumerate(row)} for row in np.atleast_2d(scores)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(right, right), min_size=6, max_size=6), min_size=1, max_size=4))
def test_differences_are_antisymmetric(rows: list[list[tuple[float, float]]]) -> None:
    first, second = np.moveaxis(np.array(rows), -1, 0)
    there, back = compare(answers(first), answers(second)), compare(answers(second), answers(first))
    assert there.p_value == pytest.approx(back.p_value) and there.difference.value == pytest.approx(
        there.second - there.first
    )
    ends = there.difference.low, there.difference.high
    turned = [end if end is None else -end for end in (back.difference.high, back.difference.low)]
    assert ends == (None, None) == tuple(turned) or ends == pytest.approx(tuple(turned))
    assert ends[0] is None or -100 <= ends[0] <= there.difference.value <= ends[1] <= 100


def test_right_and_wrong_of_single_runs_are_tested_by_mcnemar() -> None:
    found = compare(answers([100, 0, 0, 0, 0, 0]), answers([0, 100, 100, 100, 100, 100]))
    assert (found.only_first, found.only_second, found.test) == (1, 5, MCNEMAR)
    assert found.p_value == mcnemar(1, 5) == pytest.approx(0.21875)


def test_graded_scores_of_single_runs_get_the_paired_t_test() -> None:
    first, second = np.random.default_rng(4).random((2, 50)) * 100
    found = compare(answers(first), answers(second))
    assert found.p_value == pytest.approx(ttest_rel(first, second).pvalue) and found.test == OVER_QUESTIONS


def test_seeds_are_crossed_with_questions() -> None:
    rng = np.random.default_rng(6)
    easy = 0.5 * rng.random(200)
    found = compare(*(answers(100.0 * (rng.random((5, 200)) < easy + more)) for more in (0, 0.2)))
    assert found.test == CROSSED and found.n == 200 and found.p_value is not None and found.p_value < 0.01
    assert found.difference.low < 20 < found.difference.high and found.detectable is not None
    assert (
        found.only_first is not None
        and found.only_second is not None
        and found.only_first < found.only_second
    )


def test_seeds_with_different_questions_are_tested_over_seeds() -> None:
    def side(scores: Sequence[float]) -> list[Mapping[str, tuple[float, float]]]:
        return [{f"{seed} {n}": (score, 1.0) for n in range(10)} for seed, score in enumerate(scores)]

    found = compare(side([10.0, 20.0, 30.0]), side([20.0, 32.0, 38.0]))
    assert found.test == OVER_SEEDS and found.p_value == pytest.approx(
        ttest_rel([10, 20, 30], [20, 32, 38]).pvalue
    )


def test_seeds_of_two_kinds_get_no_interval() -> None:
    """Two trainings gain nothing, one much: Student's t would end where the second had fewer than no right answers."""

    def seed(right: int) -> Mapping[str, tuple[float, float]]:
        return {str(n): (100.0 * (n < right), 1.0) for n in range(100)}

    found = compare([seed(2)] * 3, [seed(2), seed(2), seed(40)])
    assert (found.difference.low, found.difference.high) == (None, None)
    assert found.by_seed == (0.0, 0.0, 38.0) and found.p_value is not None and found.p_value > 0.05


def test_no_interval_over_seeds_ends_beyond_what_is_possible() -> None:
    def seed(first: int, right: int) -> Mapping[str, tuple[float, float]]:
        return {str(n): (100.0 * (first <= n < first + right), 1.0) for n in range(100)}

    found = compare([seed(0, 1)] * 3, [seed(0, 92), seed(5, 95), seed(0, 99)])
    assert found.difference.high == pytest.approx(100 - found.first)


def test_equal_answers_leave_something_open() -> None:
    found = compare(answers([100.0] * 40), answers([100.0] * 40))
    assert (found.p_value, found.difference.value) == (1.0, 0.0)
    assert found.difference.low == -found.difference.high and 5 < found.difference.high < 15


def test_a_constant_difference_of_graded_scores_has_no_p() -> None:
    assert compare(answers([50.0, 75.0]), answers([75.0, 100.0])).p_value is None


def test_a_perplexity_ratio_by_hand() -> None:
    """The second loses ln 2 a word on every text: twice the perplexity."""
    words = [3.0, 5.0, 9.0]
    sides = [[{f"{n}": (-of * nats, of) for n, of in enumerate(words)}] for nats in (1.0, 1.0 + math.log(2))]
    found = compare(sides[0], sides[1], is_perplexity=True)
    assert (found.first, found.second) == pytest.approx((math.e, 2 * math.e))
    assert (found.difference.low, found.difference.value, found.difference.high) == pytest.approx((2, 2, 2))


@pytest.mark.parametrize(("seeds", "texts", "by_seed"), [(1, 5, 0.0), (1, 60, 0.0), (3, 60, 0.01)])
def test_intervals_of_a_perplexity_ratio_hold_it(seeds: int, texts: int, by_seed: float) -> None:
    rng = np.random.default_rng(3)
    units = rng.integers(50, 200, texts)
    held = 0

    def runs(text: Any) -> list[Mapping[str, tuple[float, float]]]:
        shift = rng.normal(0, by_seed, (seeds, 1)) + rng.normal(0, 0.02, (seeds, texts))
        nats = text + rng.normal(0, 0.05, texts) + shift
        return [
            {f"{n}": (-x * of, float(of)) for n, (x, of) in enumerate(zip(row, units, strict=True))}
            for row in nats
        ]

    for _ in range(1000):
        text = rng.normal(3, 0.4, texts)
        found = compare(runs(text), runs(text), is_perplexity=True)
        held += found.difference.low <= 1 <= found.difference.high
    assert 0.92 <= held / 1000 <= 0.98


def test_discordant_answers_are_of_the_common_questions() -> None:
    every, fewer = {f"{n}": (0.0, 1.0) for n in range(40)}, {f"{n}": (0.0, 1.0) for n in range(30)}
    right = [dict.fromkeys(side, (100.0, 1.0)) for side in (every, fewer)]
    found = compare([every, fewer], right)
    assert (found.n, found.only_second) == (30, 60)
