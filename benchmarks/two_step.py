"""Word problems of two operations, generated, of the kind of MultiArith (Roy and Roth, 2015).

Eight families by their operations, such as `as` (add, then subtract) and `am` (the sum of two numbers, multiplied). All
numbers are whole: those of a problem, its intermediate result and its answer.
"""

import random
from typing import Any

FAMILY_SIZE = 75
NAMES = (
    "Ada",
    "Ben",
    "Chloe",
    "Dan",
    "Emma",
    "Finn",
    "Grace",
    "Hugo",
    "Iris",
    "Jon",
    "Kate",
    "Leo",
    "Mia",
    "Noah",
)
THINGS = (
    "apples",
    "books",
    "cards",
    "coins",
    "marbles",
    "pencils",
    "pictures",
    "plants",
    "shells",
    "stickers",
    "tickets",
)
PROBLEMS = {
    "as": (
        "{name} had {a} {things} and bought {b} more. Then {name} gave {c} of the {things} away. "
        "How many {things} does {name} have now?",
        "{a} + {b} - {c}",
    ),
    "sa": (
        "There were {s} {things} in a shop. The shop sold {b} of them in the morning and received {c} in the afternoon. "
        "How many {things} are in the shop now?",
        "{s} - {b} + {c}",
    ),
    "ma": (
        "{name} packed {a} boxes with {b} {things} each. Another {c} {things} did not fit into the boxes. "
        "How many {things} does {name} have?",
        "{a} * {b} + {c}",
    ),
    "ms": (
        "{name} bought {b} packs of {m} {things} each and lost {c} {things} on the way home. "
        "How many {things} are left?",
        "{b} * {m} - {c}",
    ),
    "am": (
        "{a} girls and {b} boys each brought {c} {things} to school. How many {things} did they bring in all?",
        "({a} + {b}) * {c}",
    ),
    "sm": (
        "{name} had {s} boxes and gave {b} of them away. Each of the other boxes holds {c} {things}. "
        "How many {things} do these boxes hold?",
        "({s} - {b}) * {c}",
    ),
    "ad": (
        "{name} has {d} red and {e} blue {things} and puts them into bags of {c}. How many bags does {name} fill?",
        "({d} + {e}) / {c}",
    ),
    "sd": (
        "A farmer had {f} {things}, kept {b} and shared the others equally among {c} friends. "
        "How many {things} did each friend get?",
        "({f} - {b}) / {c}",
    ),
}
"""By family: the problem, and its equation."""


def generate(seed: int = 0) -> list[dict[str, Any]]:
    """75 different problems of each family as `id, family, question, answer, equation`, one of each family in turn."""
    by_family = []
    for family in PROBLEMS:
        draws = random.Random(f"{seed}/two_step/{family}")
        problems: dict[str, tuple[str, int]] = {}
        while len(problems) < FAMILY_SIZE:
            question, equation, answer = _problem(family, draws)
            problems[question] = (equation, answer)
        by_family.append(
            [
                {
                    "id": f"{family}-{n:03d}", "family": family, "question": question, "answer": str(answer),
                    "equation": equation,
                }
                for n, (question, (equation, answer)) in enumerate(problems.items(), start=1)
            ]
        )  # fmt: skip
    return [row for turn in zip(*by_family, strict=True) for row in turn]


def _problem(family: str, draws: random.Random) -> tuple[str, str, int]:
    """A problem of a family, its equation and its answer."""
    a, b, m = (draws.randint(11, 99) for _ in range(3))
    c = draws.randint(3, 9)
    d = draws.randint(11, 99)
    numbers = {
        "a": a, "b": b, "c": c, "d": d, "m": m,
        "s": b + draws.randint(11, 99),
        "e": draws.randint(2, 20) * c - d % c + c,  # the sum is a multiple of c
        "f": b + draws.randint(11, 99) * c,
    }  # fmt: skip
    s, e, f = (numbers[name] for name in "sef")
    answers = {
        "as": a + b - c, "sa": s - b + c, "ma": a * b + c, "ms": b * m - c,
        "am": (a + b) * c, "sm": (s - b) * c, "ad": (d + e) // c, "sd": (f - b) // c,
    }  # fmt: skip
    problem, equation = PROBLEMS[family]
    question = problem.format(name=draws.choice(NAMES), things=draws.choice(THINGS), **numbers)
    return question, equation.format(**numbers), answers[family]
