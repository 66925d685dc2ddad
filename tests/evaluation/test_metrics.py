"""A task's figures, against samples counted by hand."""

from typing import Any

import pytest

from toolformer.evaluation.metrics import COUNTED, task_metrics
from toolformer.evaluation.suite import TaskResult
from toolformer.statistics.intervals import Interval


def sample(score: float, tool: str | None = None, failed: str | None = None, **more: Any) -> dict[str, Any]:
    tools = [tool] if tool else []
    return {
        "score": score, "tool": tool, "tools": tools, "failed": failed, "fault": False, "tokens": 10,
        "seconds": 0.5, "prompt_cut": 0, "family": None,
        "results_begun": 0, "results_cut": 0, "calls_in_calls": 0, **more
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
        "n_results_begun": 0, "n_results_cut": 0, "n_calls_in_calls": 0,
    }  # fmt: skip


def test_faults_cut_prompts_and_several_calls_are_counted_apart() -> None:
    samples = [
        sample(0, failed="no answer", prompt_cut=3, results_begun=2, calls_in_calls=1),
        sample(0, failed="no answer", fault=True),
        sample(100, "Calculator", tools=["Calculator", "Calendar", "Calculator"], prompt_cut=40),
        sample(0, "Calendar", tokens=None, seconds=None, results_begun=1, results_cut=4),
    ]
    found = task_metrics(result(samples))
    assert (found["n_failed"], found["n_faults"], found["n_cut"]) == (1, 1, 2)
    assert found["n_failed/no answer"] == found["n_faults/no answer"] == 1
    assert found["n_ac"] == 2
    assert (found["n_results_begun"], found["n_results_cut"], found["n_calls_in_calls"]) == (3, 4, 1)
    assert found["call_share/Calculator"] == 0.25 and found["call_share/Calendar"] == 0.5
    assert found["score_ac/Calculator"] == 100.0 and found["score_ac/Calendar"] == 50.0
    assert found["examples_per_second"] == 2.0, "only timed samples make the speed"
    # A model that does not tell, as lm-eval's own; what there is none of has no score.
    unknown = dict.fromkeys(("tokens", "seconds", "prompt_cut", *COUNTED))
    found = task_metrics(result([sample(0, **unknown)]))
    assert found["n_ac"] == 0 and found["score_nc"] == 0.0
    assert not {
        *(f"n_{name}" for name in COUNTED),
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
