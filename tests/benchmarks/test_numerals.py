"""Numbers in answers are read whole or not at all."""

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer.benchmarks.loaders.math import numeric_answer
from toolformer.benchmarks.metrics import as_number, number_in, score_first_words, score_math


@pytest.mark.parametrize(
    ("completion", "value"),
    [
        # Signs.
        (" - 5", "-5"), (" - 1/2", "-1/2"), (" \u20117", "-7"), (" \u20137", "-7"), (" \u22127", "-7"), (" is - 5", "-5"),
        (": - 5", "-5"), (" minus 5", "-5"), (" Negative 5", "-5"), (" -US$5", "-5"), ("\n- 5 pears\n- 3 apples", "5"),
        # Fractions.
        (" \\frac{3}{4}", "3/4"), (" -\\frac{1}{2}", "-1/2"), (" 2\\dfrac12 cups", "5/2"), (" 1\u20444", "1/4"), (" \u00bd", "1/2"),
        (" 2\u00bd", "5/2"), (" -1 \u00be", "-7/4"), (" 3 and 1/2", "7/2"), (" 2 and a half", "5/2"), (" 2 thirds of it", "2/3"),
        # Powers of ten.
        (" 1e-3", "1/1000"), (" 4.2e1", "42"), (" 3 \\times 10^4", "30000"), (" 3 x 10^{4}", "30000"), (" 6\u00d710\u207b\u00b2", "3/50"),
        (" 10^4", "10000"), (" 10**4", "10000"), (" 10\u2074", "10000"),
        (" 3 * 10 ** 4", "30000"), (" 6 times 10^4", "60000"), (" {3 \\over 4}", "3/4"), (" \\cfrac{1}{2}", "1/2"),
        (" 12\u00a0million", "12000000"), (" \u00a33.5 m", "3500000"), (" -\u200b5", "-5"), (" \u27965", "-5"), (" \\textbf{7}", "7"),
        # Words for large numbers.
        (" 10k", "10000"), (" 1.2 million", "1200000"), (" 5 hundred thousand", "500000"), (" $1.5m", "1500000"), (" 1.5m", "3/2"),
        (" 2 and a half million", "2500000"), (" 3bn", "3000000000"), (" 2 lakh", "200000"), (" 2 dozen", "2"),
        (" 5 and half of them", "5"), (" 5 points", "5"), (" 5... 3", "5"), (" 5 and third place", "5"),
        # Separators.
        (" 1.234.567", "1234567"), (" 1.234,5", "2469/2"), (" 1_000", "1000"), (" 1{,}234", "1234"), (" 1\\,234", "1234"),
        # Markup.
        (" _72_", "72"), (" **72**", "72"), (" **-5**", "-5"), (" \\boxed{-5}", "-5"), (" -\\boxed{5}", "-5"), (" \\(7\\)", "7"),
        (" $-7$", "-7"), (" \\$7", "7"), (" ...5", "5"), (" x_2 is 3", "3"), (" COVID-19: 7", "7"), (" 5-3", "5"), (" 3 - 5", "3"),
    ],
)  # fmt: skip
def test_a_number_is_read_whole(completion: str, value: str) -> None:
    assert number_in(completion) == number_in(f"2 + 2 = {completion}.") == Fraction(value)


@pytest.mark.parametrize(
    "completion",
    [
        " 1/-2", " \\frac{1}{-2}", " -\\left(5\\right)", " \\sqrt{16}", " \\sqrt[3]{8}", " 2\\pi", " \\frac{\\frac{1}{2}}{3}", " 1.5 K",
        " 1.2 Mio", " 2 thousand five hundred", " 3 million, 200 thousand", " 5 thousandths", " 1e3-2e3",
        " 3-5", " 3\u20135", " 3 \u2013 5", " $3-$5", " 3%-5%", " 3 to 5", " 3 cm to 5 cm", " between 3 and 5", " 12:30", " 2:1", " 2 : 1",
        " 3/4/2020", " 2020-05-14", " 1.2.3", " 192.168.1.1", " 5'6\"", " 0x1F", " 4c2", " \u00b15", " 5 \u00b1 1", " x - 5", " Total - 5",
        " --5", " 5^2", " 2\u00b3", " 10^x", " 1e400", " 1e5.5", " 1,2345", " 3,5", " 5,000,00", " 10 000", " 1 234 567", " 10 k",
        " 2 million 500 thousand", " x/2", " 555-1234", " 3-1/2", " 1`000", " 1\u00b4000", " 1\u2018000", " 5 squared", " 5 to the power of 2",
        " 5 to the 2nd power", " 5 and three quarters", " 2-and-a-half", " 5 and half", " 5 point 3", " 5 point five", " 10..12", " 10\u202612",
        " 10 ~ 12", " 10\uff5e12", " 1.5 E3", " 1.5E 3", " 5.10^3",
    ],
)  # fmt: skip
def test_digits_without_one_value_are_no_number(completion: str) -> None:
    assert number_in(completion) is None


def _grouped(separator: str) -> Callable[[int], str]:
    return lambda number: f"{number:,}".replace(",", separator)


FORMS: list[tuple[int, Callable[[int], str]]] = [
    (1, str), (1, lambda number: f"{number}.0"), (1, lambda number: f"{number:,}"), (1, lambda number: f"{number}\u20441"),
    *((1, _grouped(separator)) for separator in ("\u00a0", "\u202f", "'", "_", "{,}", "\\,", " ")),
    (1, lambda number: f"**{number}**"), (1, lambda number: f"_{number}_"), (1, lambda number: f"\\boxed{{{number}}}"),
    (1000, lambda number: f"{number}k"), (1000, lambda number: f"{number} thousand"), (10**6, lambda number: f"{number:,} million"),
    (100, lambda number: f"{number}e2"), (100, lambda number: f"{number}E+02"), (10**4, lambda number: f"{number} \\times 10^4"),
    (10**4, lambda number: f"{number} \u00d7 10\u2074"), (10**4, lambda number: f"{number}x10^{{4}}"),
]  # fmt: skip
"""Ways to write a whole number, each with its factor."""
SIGNS = (
    "-",
    "\u2010",
    "\u2011",
    "\u2012",
    "\u2013",
    "\u2212",
    "\ufe63",
    "\uff0d",
    " - ",
    "minus ",
    "$-",
    "-$",
    "-US$",
)
OUTSIDE = (
    " {}",
    " The answer is {}.",
    "{}",
    " 2 + 2 = {} apples",
    " so it is ({}), not 9",
    "\n\n{}\n",
    " x = {}, y = 3",
    "$ {} $",
)


@given(st.integers(1, 10**9), st.sampled_from(FORMS), st.sampled_from(["", *SIGNS]), st.sampled_from(OUTSIDE))
def test_a_number_is_read_as_its_value_or_not_at_all(
    number: int, form: tuple[int, Callable[[int], str]], sign: str, outside: str
) -> None:
    factor, written = form
    value = number * factor * (-1 if sign else 1)
    text = outside.format(sign + written(number))
    assert number_in(text) in (value, None)
    assert not score_math(text, value + 1) and not score_math(text, -value)


@given(st.fractions(min_value=0, max_value=100, max_denominator=60), st.booleans(), st.sampled_from(OUTSIDE))
def test_a_fraction_is_read_as_its_value_or_as_a_division(
    number: Fraction, is_negative: bool, outside: str
) -> None:
    above, below = number.as_integer_ratio()
    sign = -1 if is_negative else 1
    for form in ("{}/{}", "\\frac{{{}}}{{{}}}", "{}\u2044{}"):
        written = f"{'-' * is_negative}{form.format(above, below)}"
        assert number_in(outside.format(written)) == sign * number
        assert as_number(written) == sign * number


@pytest.mark.parametrize(
    ("published", "answer"),
    [
        ("10k", "10k"), ("1.2 million people", "1.2 million"), ("5 thousand (dollars)", "5 thousand"), ("1e-3", "1e-3"), ("30%", "30%"),
        ("1/2 (pizza)", "1/2"), ("$ 5 each", "$ 5"), ("5km", "5"), ("3-5", None), ("1,2345", None), ("5 km/h", None),
    ],
)  # fmt: skip
def test_a_unit_leaves_an_answers_value(published: str, answer: str | None) -> None:
    assert numeric_answer(published)[0] == answer


def test_answers_are_compared_by_value() -> None:
    assert score_math(" 1e-3", "0.001") and not score_math(" 1e-3", 1)
    assert score_math(" 30,000", "3 \\times 10^4") and score_math(" 0.00001", 1e-05)
    assert score_math(" 1,200,000", "1.2 million") and not score_math(" 1.2", "1.2 million")


@pytest.mark.parametrize("dash", ["\u2011", "\u2013", "\ufe63"])
def test_a_dash_before_a_number_is_its_sign_among_words(dash: str) -> None:
    assert score_first_words(f" {dash}5 degrees", ["-5"]) and not score_first_words(
        f" {dash}5 degrees", ["5"]
    )
    assert score_first_words(f" 14{dash}15 people", ["15"])
