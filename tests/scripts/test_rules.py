"""The rules that answer in place of learned calls, and the published scores of them."""

import pytest

from scripts import answers, rules
from toolformer.benchmarks.tasks import math_score
from toolformer.errors import UserError


@pytest.mark.parametrize(
    ("answer", "ruled"),
    [
        (" 12 + 30 = 52 apples", " 12 + 30 = 42"),
        (" 5048 + 2357 = 5048 + 2357 = 1", " 5048 + 2357 = 7405"),
        (" (1 + 7) * 2 = 9", " (1 + 7) * 2 = 16"),
        (" $4.50 * 2 = $8.", " $4.50 * 2 = 9"),
        (" 7 apples", " 7 apples"),
        (" x = 3", " x = 3"),
        (" 3 / 0 = 0", " 3 / 0 = 0"),
    ],
)
def test_the_first_expression_is_computed(answer: str, ruled: str) -> None:
    assert rules.calculated(answer) == ruled


@pytest.mark.parametrize("arm", ["M", "M + CC", "disabled"])
def test_scores_of_the_rule_on_sums_follow_from_answers(arm: str) -> None:
    right = answers.right_answers()[f"{arm} + rule"]["arithmetic"]
    for seeds, rows in answers.Answers().by_seed(arm, "arithmetic").items():
        ids = [
            row["id"]
            for row in rows
            if math_score({"answer": row["target"][0]}, [rules.calculated(row["prediction"])])["score"]
        ]
        assert right[str(seeds[0])] == sorted(ids)


def test_every_rule_was_asked_the_published_questions() -> None:
    published = answers.Answers()
    for rule, tasks in answers.right_answers().items():
        for task in tasks:
            for _, rows in published.of(rule, task):
                assert {row["score"] for row in rows} == {0.0, 100.0}


def test_a_rule_that_was_not_measured_is_refused() -> None:
    with pytest.raises(UserError, match="no answers of M \\+ rule on nq"):
        answers.scored("M + rule", "nq", 0, [], answers.right_answers())
