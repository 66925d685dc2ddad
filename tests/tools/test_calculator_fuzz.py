"""The calculator on a hundred thousand expressions that hypothesis generates, held to exact fractions; slow."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.tools.test_calculator import Tree, joined, negated, number, two_decimals
from toolformer.tools.calculator import DEEPEST, MOST_CHARACTERS, calculate

EXPRESSIONS = 100_000
TOGETHER = 100
"""Expressions of an example: hypothesis takes milliseconds for an example of its own."""

SIZES = (1, 2, 2, 3, 3, 4, 6)


class Choices:
    """Choices read from bytes, so that hypothesis draws once for an expression and not for each of its parts."""

    def __init__(self, drawn: bytes) -> None:
        self.left = int.from_bytes(drawn, "big")

    def below(self, limit: int) -> int:
        self.left, choice = divmod(self.left, limit)
        return choice


def tree(choices: Choices, size: int) -> Tree:
    """An expression of so many numbers, with its value by `fractions`."""
    if size == 1:
        digits = str(choices.below(10 ** (1 + choices.below(7))))
        if choices.below(3) == 0:
            digits += f".{choices.below(1000):0{3 + choices.below(2)}d}"
        made = number(digits, choices.below(7) == 0, choices.below(3) == 0)
    else:
        left = 1 + choices.below(size - 1)
        blank = ("", " ", "\t", "  ")[choices.below(4)]
        made = joined(tree(choices, left), "+-*/"[choices.below(4)], tree(choices, size - left), blank)
    return negated(made) if choices.below(10) == 0 else made


def drawn_tree(drawn: bytes) -> Tree:
    choices = Choices(drawn)
    return tree(choices, SIZES[choices.below(len(SIZES))])


TREES = st.binary(min_size=32, max_size=32).map(drawn_tree)
seen: Counter[str] = Counter()


def checked(tree: Tree) -> str:
    """What became of an expression, after its value was compared."""
    try:
        found = calculate(tree.text)
    except ValueError as error:
        reason = str(error)
        assert (
            (reason == "division by zero" and tree.value is None)
            or (reason == "expression too long" and len(tree.text) > MOST_CHARACTERS)
            or (reason == "expression too deep" and tree.text.count("(") + tree.text.count("-") >= DEEPEST)
        ), (tree.text, reason)
        return reason
    assert tree.value is not None and found == two_decimals(tree.value), tree.text
    return "value"


@settings(
    max_examples=EXPRESSIONS // TOGETHER, deadline=None, database=None,
    suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink],
)  # fmt: skip
@given(st.lists(TREES, min_size=TOGETHER, max_size=TOGETHER))
def each_agrees_with_fractions(trees: list[Tree]) -> None:
    for tree in trees:
        seen[checked(tree)] += 1


def test_a_hundred_thousand_expressions_agree_with_fractions() -> None:
    seen.clear()
    each_agrees_with_fractions()
    # Enough of each kind that the figure means something.
    assert seen.total() >= EXPRESSIONS and seen["value"] > 0.8 * EXPRESSIONS, seen
    assert seen["division by zero"] > 100, seen


REASONS = {
    "invalid expression",
    "division by zero",
    "empty expression",
    "expression too deep",
    "number too long",
}


@settings(
    max_examples=EXPRESSIONS // TOGETHER // 5, deadline=None, database=None,
    suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink],
)  # fmt: skip
@given(st.lists(st.tuples(TREES, st.binary(min_size=4, max_size=4)), min_size=TOGETHER, max_size=TOGETHER))
def each_broken_one_has_a_reason_or_a_value(drawn: list[tuple[Tree, bytes]]) -> None:
    for made, more in drawn:
        choices = Choices(more)
        place = choices.below(len(made.text))
        others = ["", made.text[place] * 2, *"()+-*/%.,^x_eE\n\x00½٣−＋"]
        text = made.text[:place] + others[choices.below(len(others))] + made.text[place + 1 :]
        try:
            calculate(text)
            seen["value"] += 1
        except ValueError as error:
            assert str(error) in REASONS, (text, str(error))
            seen[str(error)] += 1


def test_broken_ones_have_a_reason_or_a_value() -> None:
    """One character of a valid expression changed, dropped or doubled: never another exception."""
    seen.clear()
    each_broken_one_has_a_reason_or_a_value()
    assert seen.total() >= EXPRESSIONS // 5 and seen["invalid expression"] > 1000, seen
