"""The calculator on a hundred thousand generated expressions, held to exact fractions; slow."""

from __future__ import annotations

import random
from collections import Counter

from tests.tools.test_calculator import Tree, joined, negated, number, two_decimals
from toolformer.tools.calculator import DEEPEST, MOST_CHARACTERS, calculate

EXPRESSIONS = 100_000
SEED = 20230209


def tree(chance: random.Random, size: int) -> Tree:
    """A random expression of so many numbers, with its value by `fractions`."""
    if size == 1:
        digits = str(chance.randrange(10 ** chance.randrange(1, 8)))
        if chance.random() < 0.3:
            digits += f".{chance.randrange(1000):0{chance.randrange(3, 5)}d}"
        made = number(digits, chance.random() < 0.15, chance.random() < 0.3)
    else:
        left = chance.randrange(1, size)
        blank = chance.choice(["", " ", "\t", "  "])
        made = joined(tree(chance, left), chance.choice("+-*/"), tree(chance, size - left), blank)
    return negated(made) if chance.random() < 0.1 else made


def test_a_hundred_thousand_expressions_agree_with_fractions() -> None:
    chance = random.Random(SEED)
    seen: Counter[str] = Counter()
    while seen["value"] + seen["division by zero"] < EXPRESSIONS:
        made = tree(chance, chance.choice((1, 2, 2, 3, 3, 4, 6)))
        try:
            found = calculate(made.text)
        except ValueError as error:
            reason = str(error)
            assert (
                (reason == "division by zero" and made.value is None)
                or (reason == "expression too long" and len(made.text) > MOST_CHARACTERS)
                or (
                    reason == "expression too deep" and made.text.count("(") + made.text.count("-") >= DEEPEST
                )
            ), (made.text, reason)
            seen[reason] += 1
        else:
            assert made.value is not None and found == two_decimals(made.value), made.text
            seen["value"] += 1
    # Enough of each kind that the figure means something.
    assert seen["value"] > 0.9 * EXPRESSIONS and seen["division by zero"] > 100, seen


def test_broken_ones_have_a_reason_or_a_value() -> None:
    """One character of a valid expression changed, dropped or doubled: never another exception."""
    chance = random.Random(SEED)
    reasons: Counter[str] = Counter()
    for _ in range(EXPRESSIONS // 5):
        text = tree(chance, chance.choice((1, 2, 3, 4))).text
        place = chance.randrange(len(text))
        other = chance.choice(["", text[place] * 2, chance.choice("()+-*/%.,^x_eE\n\x00½٣−＋")])
        try:
            calculate(text[:place] + other + text[place + 1 :])
        except ValueError as error:
            reasons[str(error)] += 1
    assert set(reasons) <= {
        "invalid expression",
        "division by zero",
        "empty expression",
        "expression too deep",
    }
    assert reasons["invalid expression"] > 1000
