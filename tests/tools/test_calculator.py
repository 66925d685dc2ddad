"""The calculator against exact fractions and everything that has no result; the calendar, and whose date it is."""

import datetime
import math
import re
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from toolformer.data import Document
from toolformer.tools.calculator import MOST_CHARACTERS, Calculator, calculate
from toolformer.tools.calendar import Calendar, sentence


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        # the paper's own: table 1, figure 1, appendix A.2, table 10
        ("27 + 4 * 2", "35"), ("400 / 1400", "0.29"), ("18 + 12 * 3", "54"), ("658,893 / 11.4%", "5779763.16"),
        ("723 / 252", "2.87"), ("723 - 20", "703"), ("2011 - 1994", "17"), ("4 * 30", "120"), ("85 / 23", "3.70"),
        # what random expressions lack
        ("(20 + 5)%", "0.25"), (".5 + .5", "1"), ("\t 7 ", "7"),
        # halves go away from zero, and there is no minus before a zero
        ("0.005", "0.01"), ("-0.005", "-0.01"), ("-0.001", "0.00"), ("0 * -1", "0"), ("1/3*3", "1"),
        # signs of print and of currencies
        ("−3 × −2", "6"), ("$1,200 ÷ 12", "100"), ("-$3 + 5 €", "2"), ("£(2 + 3) × 2", "10"),
        # groups of other countries
        ("1,00,000 / 2", "50000"), ("1'000.5 * 2", "2001"), ("1\u202f000 + 1", "1001"),
        # within the bounds
        ("1" + "+1" * 99, "100"), ("(" * 19 + "1" + ")" * 19, "1"),
    ],
)  # fmt: skip
def test_values(expression: str, value: str) -> None:
    assert calculate(expression) == value


INVALID = [
    "x", "2 x", "x 2", "2 + x 3", "2 +", "* 2", "()", "(1", "1)", "2(3)", "1 000", "5%%", "%", "5 % 3", "1,23", "1234,567", "0,123",
    ",123", "1,,234", "5.", "1..2", ".", "2**3", "7//2", "2^3", "1e5", "0xA", "1_000", "1$2", "$1$000", "1,$000", "5 $ + $", "½",
    "1\n+2", "1\x0b", "\x001", "\ud800", "1;2", "3 = 3", "abs(3)", "__import__('os').system('id')", "nan", "١٢٣ + ٤", "𝟗 * 𝟗",
]  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        *((text, "invalid expression") for text in INVALID),
        *((text, "times written as x") for text in ("18 + 12 x 3", "3x4", "5 % X (2)", "(1) x -2", "$3 x $4")),
        *((text, "division by zero") for text in ("1/0", "1 / (2 - 2)", "0/0", "1/0%", "5 + 3/(1-1) * 0")),
        *((text, "empty expression") for text in ("", " ", "\t  ")),
        *((text, "expression too long") for text in ("1" + "+1" * 100, " " * 201, "9" * 10**6, "(" * 10**6, "-" * 10**5)),
        *((text, "expression too deep") for text in ("(" * 99 + "1" + ")" * 99, "-" * 199 + "1", "(" * 200)),
        *((text, "number too long") for text in ("9" * 31, "9" * 199)),
        *((text, None) for text in ("9" * 29 + "*" + "9" * 29, "*".join(["99999"] * 33), "/".join(["99999"] * 33))),
    ],
)  # fmt: skip
def test_reasons(expression: str, expected: str | None) -> None:
    (result,) = Calculator().run([expression], [Document("d", "")])
    assert result.reason == expected


def number(digits: str, percent: bool, grouped: bool) -> str:
    whole, _, part = digits.partition(".")
    return (f"{int(whole):,}" if grouped else whole) + (f".{part}" if part else "") + "%" * percent


EXPRESSIONS = st.recursive(
    st.builds(number, st.from_regex(r"\A(0|[1-9][0-9]{0,6})(\.[0-9]{1,3})?\Z"), st.booleans(), st.booleans()),
    lambda inner: (
        st.builds("{0}{3}{1}{3}{2}".format, inner, st.sampled_from("+-*/"), inner, st.sampled_from(["", " "]))
        | st.builds("({})".format, inner)
        | st.builds("-{}".format, inner)
    ),
    max_leaves=8,
)


def exact(expression: str) -> Fraction | None:
    """By Python's own grammar, in fractions; nothing where it divides by zero."""

    def fraction(number: re.Match[str]) -> str:
        return f"(Fraction('{number[1].replace(',', '')}') / {100 if number[2] else 1})"

    try:
        value: Fraction = eval(re.sub(r"([\d,.]+)(%?)", fraction, expression), {"Fraction": Fraction})
    except ZeroDivisionError:
        return None
    return value


def two_decimals(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value)
    cents = math.floor(abs(value) * 100 + Fraction(1, 2))
    sign = "-" if value < 0 and cents else ""
    return f"{sign}{cents // 100}.{cents % 100:02}"


@given(EXPRESSIONS)
def test_random_expressions_agree_with_fractions(expression: str) -> None:
    assume(len(expression) <= MOST_CHARACTERS)
    expected = exact(expression)
    try:
        value = calculate(expression)
    except ValueError as error:
        assume(str(error) != "expression too deep")
        assert str(error) == "division by zero" and expected is None
    else:
        assert expected is not None and value == two_decimals(expected)


def test_each_document_has_the_papers_sentence_of_its_own_date() -> None:
    days = {
        (2023, 1, 30): "Today is Monday, January 30, 2023.", (2020, 2, 29): "Today is Saturday, February 29, 2020.",
        (2000, 12, 31): "Today is Sunday, December 31, 2000.",
    }  # fmt: skip
    documents = [Document("d", "", date=datetime.date(*day)) for day in days]
    calendar = Calendar(use_clock=True)
    assert [one.text for one in calendar.run(["", " ", "\n"], documents)] == list(days.values())
    reasons = [one.reason for one in calendar.run(["today", "\x00", "x" * 100_000], documents)]
    assert reasons == ["takes no input"] * 3


def test_without_a_date_there_is_no_result_but_by_the_clock() -> None:
    undated = [Document("d", "written on 2020-01-01")]
    assert Calendar().run([""], undated)[0].reason == "no date"
    before = datetime.date.today()
    text = Calendar(use_clock=True).run([""], undated)[0].text
    assert text in (sentence(before), sentence(datetime.date.today()))
