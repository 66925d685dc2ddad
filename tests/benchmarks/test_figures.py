"""A task's figures, against samples counted by hand, and what policies come to on examples whose answers are known."""

from typing import Any

import pytest

from toolformer.calls import ApiCall
from toolformer.decoding.call_state import Completion
from toolformer.decoding.trace import Trace
from toolformer.evaluation.metrics import task_metrics
from toolformer.evaluation.policy_curve import Example, choose, point, points, values
from toolformer.evaluation.suite import TaskResult
from toolformer.statistics.intervals import Interval


def sample(score: float, tool: str | None = None, failed: str | None = None, **more: Any) -> dict[str, Any]:
    tools = [tool] if tool else []
    return {
        "score": score, "tool": tool, "tools": tools, "failed": failed, "fault": False, "tokens": 10,
        "seconds": 0.5, "prompt_cut": 0, "family": None,
        "results_begun": 0, "calls_in_calls": 0, **more
    }  # fmt: skip


def result(samples: list[dict[str, Any]], **others: Interval) -> TaskResult:
    return TaskResult("svamp", Interval(40.0, 10.0, 70.0, len(samples)), samples, others)


def test_scores_with_and_without_a_call() -> None:
    called = [sample(100, "Calculator"), sample(0, "Calculator"), sample(100, "Calendar")]
    samples = [*called, sample(0), sample(0, failed="malformed call")]
    found = task_metrics(result(samples), {"Calculator": "calculator"})
    assert found == {
        "score": 40.0, "ci_low": 10.0, "ci_high": 70.0, "n": 5,
        "seconds": 2.5, "examples_per_second": 2.0, "tokens_per_second": 20.0,
        "call_share": 0.6, "n_ac": 3, "n_nc": 2, "score_ac": pytest.approx(200 / 3), "score_nc": 0.0,
        "call_share/calculator": 0.4, "n_ac/calculator": 2, "score_ac/calculator": 50.0,
        "call_share/Calendar": 0.2, "n_ac/Calendar": 1, "score_ac/Calendar": 100.0,
        "failed_share": 0.2, "n_failed": 1, "n_failed/malformed call": 1, "n_faults": 0, "n_cut": 0,
        "n_results_begun": 0, "n_calls_in_calls": 0,
    }  # fmt: skip


def test_faults_cut_prompts_and_several_calls_are_counted_apart() -> None:
    samples = [
        sample(0, failed="no answer", prompt_cut=3, results_begun=2, calls_in_calls=1),
        sample(0, failed="no answer", fault=True),
        sample(100, "Calculator", tools=["Calculator", "Calendar", "Calculator"], prompt_cut=40),
        sample(0, "Calendar", tokens=None, seconds=None, results_begun=1),
    ]
    found = task_metrics(result(samples))
    assert (found["n_failed"], found["n_faults"], found["n_cut"]) == (1, 1, 2)
    assert found["n_failed/no answer"] == found["n_faults/no answer"] == 1
    assert found["n_ac"] == 2
    assert (found["n_results_begun"], found["n_calls_in_calls"]) == (3, 1)
    assert found["call_share/Calculator"] == 0.25 and found["call_share/Calendar"] == 0.5
    assert found["score_ac/Calculator"] == 100.0 and found["score_ac/Calendar"] == 50.0
    assert found["examples_per_second"] == 2.0, "only timed samples make the speed"
    # A model that does not tell, as lm-eval's own; what there is none of has no score.
    unknown = dict.fromkeys(("tokens", "seconds", "prompt_cut", "results_begun", "calls_in_calls"))
    found = task_metrics(result([sample(0, **unknown)]))
    assert found["n_ac"] == 0 and found["score_nc"] == 0.0
    assert not {
        "n_results_begun",
        "n_calls_in_calls",
        "n_cut",
        "score_ac",
        "seconds",
        "tokens_per_second",
    } & set(found)


def test_perplexities_have_no_calls() -> None:
    rows = [{"tokens": 30, "seconds": 0.25, "log_likelihood": -3.0}]
    found = task_metrics(result(rows, word_perplexity=Interval(9.0, 8.0, 10.0, 1)))
    assert found == {
        "perplexity": 40.0, "ci_low": 10.0, "ci_high": 70.0, "n": 1, "word_perplexity": 9.0,
        "seconds": 0.25, "examples_per_second": 4.0, "tokens_per_second": 120.0,
    }  # fmt: skip


CALLED = Completion("x", "x", calls=(ApiCall("QA", "a", "b"),))


def example(rank: int, without: float, called: float, number: int = 0, tool: str = "qa") -> Example:
    """One whose call starts at the second of two places, from this rank on."""
    measures = {"topk": [99.0, rank], "bias": [20.0, rank / 2], "threshold": [0.0, 1 / rank]}
    trace = Trace("y", "y", measures=measures, called={1: CALLED}, named={1: tool})
    return Example(str(number), trace, (without, called))


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
    assert choose({"a": [HELPED, HARMED, INDIFFERENT]}, grid) == ("topk", 2, {})
    assert choose({"a": [HARMED, INDIFFERENT]}, grid) == ("topk", 0, {})
    # On average k = 3 is best, and it ruins one of the two.
    gaining = [HELPED] * 20 + [example(3, 0, 100)] * 20
    ruined = [HARMED] * 10 + [INDIFFERENT] * 20
    assert choose({"a": gaining, "b": ruined}, grid) == ("topk", 2, {})
    assert choose({"a": gaining}, grid) == ("topk", 3, {})
    # By Holm the larger of two p is not doubled: 6 of 6 harmed are significant, p = 0.03, and 5 of 5 are not.
    for harmed, k in ((5, 3), (6, 2)):
        assert choose({"a": gaining, "b": [HARMED] * harmed + [INDIFFERENT] * 20}, grid) == ("topk", k, {})


def test_each_tool_gets_the_value_that_is_best_for_it() -> None:
    # No common k is good: the calendar helps from rank 4 on, and the calculator harms from rank 2 on.
    late = [example(4, 0, 100, tool="calendar")] * 20
    early = [example(2, 100, 0, tool="calculator")] * 20 + [example(1, 0, 100, tool="calculator")] * 5
    drawn, grid = {"dates": late, "sums": early}, {"topk": [0, 1, 2, 3, 4]}
    assert choose(drawn, grid) == ("topk", 1, {})
    chosen = choose(drawn, grid, ["calculator", "calendar"])
    assert chosen == ("topk", 1, {"calendar": 4})
    assert [one.score for one in points(drawn, *chosen).values()] == [100, 100]
    # Where no calls are the best of the common values, one tool may still be worth calling.
    drawn = {"dates": late, "sums": [example(1, 100, 0, tool="calculator")] * 20}
    assert choose(drawn, grid) == ("topk", 0, {})
    assert choose(drawn, grid, ["calculator", "calendar"]) == ("topk", 1, {"calculator": 0, "calendar": 4})


def test_p_is_corrected_for_the_number_of_benchmarks() -> None:
    drawn = {"a": [HELPED] * 6, "b": [HELPED] * 9, "c": [INDIFFERENT]}
    found = points(drawn, "topk", 2)
    assert [one.p_value for one in found.values()] == pytest.approx([2 / 2**6, 2 / 2**9, 1])
    assert [one.p_holm for one in found.values()] == pytest.approx([2 * 2 / 2**6, 3 * 2 / 2**9, 1])
