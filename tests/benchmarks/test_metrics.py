"""Scores and intervals on completions as models really write them."""

import doctest
import math
import sys
import unicodedata
from fractions import Fraction
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolformer.benchmarks import metrics, tasks
from toolformer.benchmarks.loaders import lama
from toolformer.benchmarks.loaders import math as problems
from toolformer.benchmarks.metrics import as_number, number_in, score_first_words, score_math, words_of
from toolformer.evaluation.ladder import gold
from toolformer.statistics import crossed, paired


@pytest.mark.parametrize(
    "module", [metrics, tasks, paired, crossed, lama, problems, gold], ids=lambda module: module.__name__
)
def test_the_examples_in_the_docstrings_hold(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0 < doctest.testmod(module).attempted


@pytest.mark.parametrize(
    ("completion", "number"),
    [
        ("The answer is 5.", "5"), (" 5 + 3 = 8 apples, not 9", "8"), (" 1,00,005 rupees", "100005"),
        (" 5\u202f000", "5000"), (" 5'000.5", "10001/2"), (" = 12\u00a0345\u00a0678 m", "12345678"), (" $ 5 and 6", "5"),
        (" -$5", "-5"), (" $-5", "-5"), (" 5%", "5"), (" 14th", "14"), (" \u22123", "-3"), (" (-3)", "-3"),
        ("= - 3", "-3"), (" 5-3", "5"), (" (2)-3", "2"), (" 1/2 of it", "1/2"), (" 2 1/2 cups", "5/2"),
        (" 1/0", "1"), (" B12 has 4", "4"), (" in No.5", "5"), (" x <= 5 and 6", "5"),
        (" if a == 7", "7"), (" 3 apples.\n 2 + 3 = 5", "5"), (" 2 + 3 = ?\n\n5", "5"),
        (" 5\n\n== References ==", "5"),
        *dict.fromkeys(["", " five", "=", "= ?", " 5 + 3 = ?", "5 =", " x2", " v1.5", "..", " ,", "-"]).items(),
    ],
)  # fmt: skip
def test_the_number_of_a_completion(completion: str, number: str | None) -> None:
    assert number_in(completion) == (None if number is None else Fraction(number))
    assert score_math(completion, 5) is (number == "5")


ZEROS = [char for char in map(chr, range(sys.maxunicode)) if unicodedata.decimal(char, -1) == 0]


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**9), max_value=10**9),
    st.sampled_from(ZEROS),
)
def test_numbers_are_read_as_they_are_written_in_any_script(number: object, zero: str) -> None:
    value, digits = Fraction(str(number)), {ord("0") + n: ord(zero) + n for n in range(10)}
    for written in (f"{number}", f"{number:,}", f"{number:f}00"):
        other = written.translate(digits)
        assert number_in(f" {other}.") == number_in(f" 1 + 1 = {other} apples") == as_number(other) == value
        assert score_math(f" {other}", float(value)) and not score_math(f" {other}", float(value) + 1)
        assert words_of(f"the {other}.") == words_of(f"the {written}.")
        assert score_first_words(other, [written]) and score_first_words(written, [other])


@given(st.text())
@example("7" * 5000)
def test_no_completion_breaks_a_score(completion: str) -> None:
    number_in(completion)
    score_math(completion, 3)
    score_first_words(completion, [completion, "x"])


@pytest.mark.parametrize(
    ("completion", "answer", "right"),
    [
        (" 1,000.0", 1000, True), (" ٣ + ٤ = ٧", 7, True), (" -١٬٢٣٤٫٥", "-1234.5", True),
        (" 51.", "51.0", True), (" 5.67", 5.666666666666667, True), (" 5.7", 5.666666666666667, False),
        (" 5.668", 5.666666666666667, False), (" 17/3", 5.666666666666667, True), (" 0.67", "0.6667", True),
        (" 5.3", 5.25, False), (" 0", 0.001, False), (" 0", 0.0, True), (" -0.05", -0.04545, True),
        (" 0.05", -0.04545, False), (" 1/2", 0.5, True), (" 50%", 0.5, False), (" 5", "10/2", True),
        (" 10", "10/2", False), (" -2", "-6/3", True), (" 4", "2 4/2", True), (" 10", "2 4/2", False),
    ],
)  # fmt: skip
def test_math_is_right_when_the_number_equals_the_answer(
    completion: str, answer: str | float, right: bool
) -> None:
    assert score_math(completion, answer) is right


@pytest.mark.parametrize("answer", ["9 (apples)", "five", "", "2:1", "1/0", "3 1/0", math.nan, math.inf])
def test_an_answer_that_is_no_number_is_refused(answer: str | float) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        score_math(" 5", answer)


@pytest.mark.parametrize(
    ("completion", "answers", "right"),
    [
        (' **"MONDAY"**!', ["monday"], True), ("\n\nIt was a Monday", ["Monday"], True),
        (" - one - two - three - four - Monday", ["Monday"], True),
        (" about 1\u202f000\u00a0m", ["1,000"], True), (" 1,00,000 rupees", ["100000"], True), (" CHF 1'000.50", ["1000.5"], True),
        (" 1999\u00a0100 of them", ["1999"], True), (" the a the a the Monday", ["Monday"], False), (" 2011", ["1", "1st"], False),
        (" the 14th of May", ["14", "14th"], True), (" August 14, 2020", ["14"], True),
        (" 1,234.0 days", ["1234"], True), ("It was -5°C there", ["5"], False),
        ("It was -5°C there", ["-5"], True), ("答案是-5。", ["-5"], True), ("答案是５、不是６！", ["5"], True),
        ("−5°", ["5"], False), ("-$5", ["-5"], True), ("-1,000.5km", ["-1000.5"], True),
        ("-.5m", ["-0.5"], True), ("14-15", ["15"], True), ("(2)-3", ["3"], True), ("30%-40%", ["40"], True),
        ("2020-05-14", ["14"], True), (" New Jersey York", ["New York"], False),
        (" a b c d New York", ["New York"], False), (" Beatles", ["The Beatles"], True),
        (" Vitamin C", ["Vitamin A"], False), (" São Łódź", ["Sao Lodz"], True), (" Œuvre", ["oeuvre"], True),
        (" １,０００ ＡＢＣ", ["1000 abc"], True), (" ५०٪", ["50"], True), (" Lincoln's", ["Lincoln"], True),
        (" U.S. law", ["US"], True), (" the T. Rex", ["T Rex"], True), (" 在北京。", ["北京"], True),
        (" 北大", ["北京"], False), (" 1.5", ["15"], False), (" one", ["1"], False), (" STRASSE", ["Straße"], True),
        (" Tree of the Life", ["Tree of Life"], False), (" O’Neill", ["O'Neill"], True),
        (" किताब", ["कताब"], False), (" 1,2,3,4,5,6,7,8,9,10,11,12", ["11"], False),
        (" Monday/Tuesday/Wednesday/Thursday/Friday/Saturday", ["Saturday"], False),
        (" 10,000-year", ["10"], False), (" US$1,000", ["1"], False), (" (1.5)x", ["5"], False),
        (" version 1.2.3", ["1.2"], False), (" J. K. Rowling", ["J.K. Rowling"], True),
        ("straw\u00adberry", ["strawberry"], True), ("1\u2060,000", ["1000"], True), ("", ["Monday"], False),
        (" Monday", [], False), (" Monday", ["..."], False),
    ],
)  # fmt: skip
def test_the_first_words_contain_an_answer(completion: str, answers: list[str], right: bool) -> None:
    assert score_first_words(completion, answers) is right


def test_chinese_characters_are_words() -> None:
    assert words_of("在1998年，Ada去了北京") == ["在", "1998", "年", "ada", "去", "了", "北", "京"]
    text = "一二三四五六七八，九 Ada"
    assert score_first_words(text, ["Ada"], words=10) and not score_first_words(text, ["Ada"], words=9)
    assert words_of("नमस्ते दुनिया") == ["नमस्ते", "दुनिया"]
