"""What policies come to on examples whose answers are known, and which of them is chosen."""

import pytest

from benchmarks.policy_curve import Example, choose, point, points, values
from toolformer.calls import ApiCall
from toolformer.decoding.call_state import Completion
from toolformer.decoding.trace import Trace

CALLED = Completion("x", "x", calls=(ApiCall("QA", "a", "b"),))


def example(rank: int, without: float, called: float, number: int = 0) -> Example:
    """One whose call starts at the second of two places, from this rank on."""
    measures = {"topk": [99.0, rank], "bias": [20.0, rank / 2], "threshold": [0.0, 1 / rank]}
    return Example(str(number), Trace("y", "y", measures=measures, called={1: CALLED}), (without, called))


HELPED, HARMED, INDIFFERENT = example(2, 0, 100), example(3, 100, 0), example(4, 100, 100)


def test_calls_are_counted_against_need() -> None:
    examples = [HELPED, HARMED, INDIFFERENT, example(6, 0, 100)]
    found = {k: point(examples, "topk", k).figures for k in (0, 2, 3, 4)}
    assert found[0] == {"score": 50, "disabled": 50, "tokens": 0, "call_share": 0, "recall": 0}
    changed = {"score": 75, "call_share": 0.25, "precision": 1, "recall": 0.5, "harm_rate": 0}
    assert found[2] == found[0] | changed
    assert found[3] == found[2] | {"score": 50, "call_share": 0.5, "precision": 0.5, "harm_rate": 0.5}
    assert found[4]["harm_rate"] == 1 / 3 and point(examples, "bias", 1.2).figures == found[2]
    assert point(examples, "threshold", 0.3).figures == found[3]


def test_the_values_that_tell_answers_apart() -> None:
    examples = [HELPED, HARMED, INDIFFERENT]
    assert values(examples, "topk", 3) == [0, 1, 2, 3]
    assert values(examples, "bias", 5.0) == [1.25, 1.75, 5.0]
    assert values(examples, "threshold", 0.3) == [(1 / 2 + 1 / 3) / 2, 0.3]
    assert values([], "bias", 5.0) == [5.0]
    assert len(values([example(n, 0, 0) for n in range(1, 500)], "bias", 400.0)) == 40


def test_the_best_policy_that_harms_no_benchmark_is_chosen() -> None:
    grid = {"topk": [0, 1, 2, 3, 4], "bias": [0.5, 1.2, 5.0]}
    assert choose({"a": [HELPED, HARMED, INDIFFERENT]}, grid) == ("topk", 2)
    assert choose({"a": [HARMED, INDIFFERENT]}, grid) == ("topk", 0)
    # On average k = 3 is best, and it ruins one of the two.
    gaining = [HELPED] * 20 + [example(3, 0, 100)] * 20
    ruined = [HARMED] * 10 + [INDIFFERENT] * 20
    assert choose({"a": gaining, "b": ruined}, grid) == ("topk", 2)
    assert choose({"a": gaining}, grid) == ("topk", 3)
    # By Holm the larger of two p is not doubled: 6 of 6 harmed are significant, p = 0.03, and 5 of 5 are not.
    for harmed, k in ((5, 3), (6, 2)):
        assert choose({"a": gaining, "b": [HARMED] * harmed + [INDIFFERENT] * 20}, grid) == ("topk", k)


def test_p_is_corrected_for_the_number_of_benchmarks() -> None:
    drawn = {"a": [HELPED] * 6, "b": [HELPED] * 9, "c": [INDIFFERENT]}
    found = points(drawn, "topk", 2)
    assert [one.p_value for one in found.values()] == pytest.approx([2 / 2**6, 2 / 2**9, 1])
    assert [one.p_holm for one in found.values()] == pytest.approx([2 * 2 / 2**6, 3 * 2 / 2**9, 1])
