"""The mean over crossed seeds and questions: by hand, and on simulated nulls."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import nct, t, ttest_1samp

from toolformer.statistics.crossed import Effect, crossed, holm, over_values

NULLS = 1000


def test_mean_squares_by_hand() -> None:
    """Seeds of mean 19 and 21, questions of mean 0, 20 and 40: the mean squares are 6, 800 and 6 (residuals)."""
    effect = crossed(np.array([[0.0, 20.0, 37.0], [0.0, 20.0, 43.0]]))
    assert (effect.value, effect.error) == pytest.approx((20, np.sqrt(800 / 6)))
    assert effect.freedom == pytest.approx(800**2 / (6**2 / 1 + 800**2 / 2 + 6**2 / 2))


@pytest.mark.parametrize("shape", [(1, 30), (5, 1)])
def test_one_seed_or_one_question_is_students_t(shape: tuple[int, int]) -> None:
    table = np.random.default_rng(0).normal(1, 2, shape)
    assert crossed(table).p_value == pytest.approx(ttest_1samp(np.ravel(table), 0).pvalue)


@pytest.mark.parametrize(
    ("seeds", "questions", "by_seed", "by_question"),
    [(2, 50, 0.6, 0.0), (2, 300, 0.0, 0.8), (3, 300, 0.2, 0.8), (5, 50, 0.2, 0.0), (8, 300, 0.6, 0.8)],
)
def test_few_nulls_are_called_a_difference(
    seeds: int, questions: int, by_seed: float, by_question: float
) -> None:
    """Right and wrong answers of two systems, whose logits vary by seed and by question."""
    rng = np.random.default_rng(1)
    rejected = 0

    def answers(easy: np.ndarray) -> np.ndarray:
        return 100.0 * (
            rng.random((seeds, questions)) < 1 / (1 + np.exp(-(easy + rng.normal(0, by_seed, (seeds, 1)))))
        )

    for _ in range(NULLS):
        easy = rng.normal(-0.5, 1.5, questions)
        effect = crossed(answers(easy + rng.normal(0, by_question, questions)) - answers(easy))
        rejected += effect.p_value is not None and effect.p_value < 0.05
    assert rejected / NULLS <= 0.08


@pytest.mark.parametrize(
    ("seeds", "by_seed", "least"), [(2, 20.0, 0.86), (3, 10.0, 0.9), (5, 20.0, 0.93), (10, 0.0, 0.93)]
)
def test_intervals_hold_the_mean(seeds: int, by_seed: float, least: float) -> None:
    """Nearly as often as they promise; two seeds that differ a lot cannot say by how much."""
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(NULLS):
        table = rng.normal(0, by_seed, (seeds, 1)) + rng.normal(0, 30, 200) + rng.normal(0, 20, (seeds, 200))
        low, high = crossed(table).ends
        held += low <= 0 <= high
    assert least <= held / NULLS <= 0.97


def test_two_seeds_with_equal_means_have_an_interval_and_p() -> None:
    table = np.array([[100.0, 0, 0, 100, 0, 0], [0.0, 100, 0, 100, 0, 0]])
    effect = crossed(table)
    assert effect.p_value is not None and effect.margin > 0


def test_where_nothing_varies_there_is_no_p() -> None:
    effect = crossed(np.full((3, 10), 5.0))
    assert (effect.p_value, effect.ends, effect.detectable) == (None, (5.0, 5.0), None)


def test_one_value_has_no_error() -> None:
    assert over_values([7.0]) == Effect(7.0, 0.0, 0)


def test_a_detectable_difference_is_found_in_four_cases_of_five() -> None:
    freedom = np.arange(1, 500)
    size = np.array([Effect(0.0, 1.0, float(of)).detectable for of in freedom])
    power = nct.sf(t.ppf(0.975, freedom), freedom, size)  # the other tail is empty
    assert power == pytest.approx(np.full(499, 0.8), abs=1e-5)


@settings(max_examples=200)
@given(st.lists(st.integers(0, 64), min_size=1, max_size=12), st.integers(0, 63))
def test_holm_rejects_what_its_steps_reject(parts: list[int], level: int) -> None:
    """The smallest p at level / m, the next at level / (m - 1), up to the first that is not below; of 64ths, exact."""
    rejected, left = [], sorted(parts)
    while left and left[0] * len(left) <= level:
        rejected.append(left.pop(0))
    corrected = holm([part / 64 for part in parts])
    assert [p <= level / 64 for p in corrected if p is not None] == [part in rejected for part in parts]


def test_holm_skips_unknown_p_values() -> None:
    assert holm([]) == [] and holm([None]) == [None] and holm([0.02, 0.01, None]) == [0.02, 0.02, None]
