"""Arithmetic: the ten families of lm-eval's `arithmetic` tasks (Brown et al., 2020, section 3.9.1), generated.

`2da` to `5da` and `2ds` to `5ds` add and subtract two numbers of up to 2 to 5 digits, `2dm` multiplies two of up to
two digits, and `1dc` is a composite of three one-digit numbers. Differences may be negative.
"""

import operator
import random
from typing import Any

FAMILY_SIZE = 2000
OPERATIONS = {
    "a": ("plus", operator.add),
    "s": ("minus", operator.sub),
    "m": ("times", operator.mul),
}
SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
FAMILIES = (*(f"{digits}d{kind}" for kind in "as" for digits in range(2, 6)), "2dm", "1dc")


def generate(seed: int = 0) -> list[dict[str, Any]]:
    """2,000 different questions of each family as `id, family, question, answer`, one of each family in turn."""
    by_family = []
    for family in FAMILIES:
        draws = random.Random(f"{seed}/arithmetic/{family}")
        questions: dict[str, int] = {}
        while len(questions) < FAMILY_SIZE:
            question, answer = _problem(family, draws)
            questions[f"What is {question}?"] = answer
        by_family.append(
            [
                {"id": f"{family}-{n:04d}", "family": family, "question": question, "answer": str(answer)}
                for n, (question, answer) in enumerate(questions.items(), start=1)
            ]
        )
    return [row for turn in zip(*by_family, strict=True) for row in turn]


def _problem(family: str, draws: random.Random) -> tuple[str, int]:
    below = 10 ** int(family[0])
    if family == "1dc":
        first, second, third = (draws.randrange(below) for _ in range(3))
        (sign, inner), (other, outer) = draws.choices(list(SIGNS.items()), k=2)
        return f"({first} {sign} {second}) {other} {third}", outer(inner(first, second), third)
    left, right = draws.randrange(below), draws.randrange(below)
    word, operation = OPERATIONS[family[-1]]
    return f"{left} {word} {right}", operation(left, right)
