"""The made-up texts with worked sums."""

import re
from fractions import Fraction
from itertools import islice

from scripts import sums

TEXTS = list(islice(sums.texts(1), 1300))
NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?"
SIGNS = {"*": "*", "x": "*", "×": "*", "/": "/", "÷": "/", "+": "+", "-": "-"}
SYMBOLS = re.compile(rf"(?<![\d.])({NUMBER}) ?([-+*/x×÷]) ?[$£€]?({NUMBER})(%?) ?= ?[$£€]?({NUMBER})")


def number(shown: str) -> Fraction:
    return Fraction(shown.replace(",", ""))


def value(left: Fraction, sign: str, right: Fraction) -> Fraction:
    return {"+": left + right, "-": left - right, "*": left * right, "/": left / right}[sign]


def test_a_seed_names_its_texts() -> None:
    assert list(islice(sums.texts(1), 100)) == TEXTS[:100] != list(islice(sums.texts(2), 100))


def test_every_sum_is_right_and_its_result_comes_last() -> None:
    for each in TEXTS:
        for one in each.sums:
            left, right = map(Fraction, one.operands)
            special = {"%": left * right / 100, "m": (left + right) / 2}
            right_answer = (
                special[one.operator] if one.operator in special else value(left, one.operator, right)
            )
            assert number(one.result) == right_answer, each
            before, after = each.text[: one.position], each.text[one.position :]
            assert after.startswith(one.result) and not re.match(r"[\d]|[.,]\d", after[len(one.result) :]), (
                each
            )
            shown = [number(found) for found in re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", before)]
            later = {left, right} - {number(other.result) for other in each.sums if other is not one}
            assert later <= set(shown), each
            assert abs(number(one.result)) not in shown, each


def test_every_written_equation_is_right() -> None:
    found = [match.groups() for each in TEXTS for match in SYMBOLS.finditer(each.text)]
    assert len(found) > 500
    for left, sign, right, percent, result in found:
        operand = number(right) / (100 if percent else 1)
        assert value(number(left), SIGNS[sign], operand) == number(result), (left, sign, right, result)


def test_texts_are_many_short_and_of_many_forms() -> None:
    assert len({each.text for each in TEXTS}) == len(TEXTS)
    assert all(15 <= len(each.text.split()) <= 70 for each in TEXTS)
    assert len({each.pattern for each in TEXTS}) >= 60 and len({each.family for each in TEXTS}) >= 12
    equals = [any(re.search(r"= ?[$£€]?$", each.text[: one.position]) for one in each.sums) for each in TEXTS]
    assert 0.4 < sum(equals) / len(TEXTS) < 0.6, "half of the results follow no equals sign"
    assert {one.operator for each in TEXTS for one in each.sums} == {*"+-*/%m"}
