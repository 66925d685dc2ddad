"""The numbers of a text: what is one, what is none, and which compute; and the date in an address."""

import datetime
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer.data import date_from_url
from toolformer.data.numbers import MOST_NUMBERS, TOKEN, compute, numbers


def values(text: str) -> list[Fraction]:
    return [number.value for number in numbers(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,234.56 and 3.5% of $12", ["1234.56", "3.5", "12"]),
        ("1/2 cup, 6/3, 1 1/2, 100/200/300", ["1/2", "6", "3", "3/2", "100", "200", "300"]),
        ("658\u00a0893 and 1\u202f234.5", ["658893", "1234.5"]), ("on page 7 120 people", ["7", "120"]),
        ("-5, −7, -$8 and 5 -3", ["-5", "-7", "-8", "5", "-3"]),
        ("10-12 and 1994–2011", ["10", "12", "1994", "2011"]), ("18 + 12 x 3 = 54.", ["18", "12", "3", "54"]),
        ("(5) [6] \"7\" '8' 9! 10? 11; 12: 13, 14/ x=15", [str(n) for n in range(5, 16)]),
        ("5km, 90°, 5°C and 3-star", ["5", "90", "5", "3"]),
        ("US$4, €3, £1,000,000.50", ["4", "3", "1000000.5"]), ("٣٤ and １２", ["34", "12"]),
        ("共有120人, 2011年", ["120", "2011"]), ("They may 5 times march 20 miles", ["5", "20"]),
        # Dates and times.
        ("on 2020-08-14 at 10:30, or 14/08/2020, or 14.08.20, 7 came", ["7"]),
        ("2020-08-14T10:30:00Z and 10:30:45.5 and 12pm, 5 p.m., 10.30 am", []),
        ("August 14, 2020; 14 August 2020; Aug. 14; 3rd of May 1990; May 2020; Sept 5", []),
        ("AUGUST 14, 2020; SEPTEMBER 2020; Aug 14-16, 2020; 14-16 August 2020; 14 – 16 May", []),
        ("12/2020, 2020-08 and 2020/08", []), ("13/2020 and 2020-13", ["13", "2020", "2020", "13"]),
        # Names and codes.
        ("version 1.2.3, version 2.0, v2 and 3.11.4", []), ("192.168.100.200 and 10.0.0.1", []),
        ("+1 555 123 4567, (555) 123-4567, 555-123-4567, 555.123.4567, 0301234567", []),
        ("1234-5678-9012-3456", []), ("1st 2nd 20th 1990s 3D COVID-19 F-16 room4 007", []),
        ("https://example.org/1/22/333?n=4 www.x5.org/6 me7@example8.org", []), ("10²", []),
        ("1,23 and 1,2,3 and 1..2x", ["1"]), ("", []),
        ("₹1,00,000 of 12,34,567.5", ["100000", "1234567.5"]), ("1'234 and 5’000’000", ["1234", "5000000"]), ("0,123", []),
    ],
)  # fmt: skip
def test_numbers(text: str, expected: list[str]) -> None:
    assert values(text) == [Fraction(value) for value in expected]


@given(
    st.integers(0, 10**12),
    st.integers(0, 6),
    st.sampled_from([",", "\u00a0", "\u2009", "\u202f", "'", "\u2019", ""]),
    st.booleans(),
)
def test_a_number_reads_back_in_every_grouping(
    whole: int, decimals: int, separator: str, negative: bool
) -> None:
    figures = f"{whole:,}".replace(",", separator)
    figures += f".{whole % 10**decimals:0{decimals}d}" if decimals else ""
    expected = Fraction(whole) + (Fraction(whole % 10**decimals, 10**decimals) if decimals else 0)
    (number,) = numbers(f"about {'-' if negative else ''}{figures} % of people")
    assert number.value == (-expected if negative else expected)
    assert (number.decimals, number.token, number.start, number.percent) == (decimals, 1, 6, True)


@given(st.text(max_size=60) | st.text("0123456789.,-/:% $½٣st\u00a0'年月xM", max_size=40))
def test_no_text_is_too_odd(text: str) -> None:
    found = numbers(text)
    tokens = [match.span() for match in TOKEN.finditer(text)]
    for number in found:
        start, end = tokens[number.token]
        assert start <= number.start < end
    assert [number.start for number in found] == sorted(number.start for number in found)


ODD = [10**9 + 7 * 10**7 * n + n**5 for n in range(90)]
"""None of them computes; in a text every number within the window counts."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 3 and 5", True), ("723 by 252 is 2.87", True), ("723 by 252 is 2.88", False),
        ("10 by 3 is 3.33", True), ("-10 by 3 is -3.33", True), ("2.005 and 1 make 3.01", True),
        ("20% of 50 is 10", True), ("10 of 50 are 20%", True), ("7, 7 and 1", True), ("6, 6 and 36", True),
        ("0, 5 and 0", True), (" ".join(map(str, ODD)), False), (" ".join(map(str, [*ODD, ODD[0] + ODD[89]])), True),
    ],
)  # fmt: skip
def test_what_computes(text: str, expected: bool) -> None:
    assert compute(numbers(text)) == expected


@given(st.integers(2, 10**6), st.integers(2, 10**6), st.permutations([0, 1, 2]), st.integers(0, 96))
def test_three_numbers_stand_in_any_order_within_the_window(
    a: int, b: int, order: list[int], gap: int
) -> None:
    three = [a, b, a + b]
    first, second, third = (str(three[n]) for n in order)
    assert compute(numbers(f"{first} and {second} {'word ' * gap}{third}"))
    assert not compute(numbers(f"{first} and {second} {'word ' * (97 + gap)}{third}"))


def test_numbers_beyond_the_most_are_not_looked_at() -> None:
    far = "word " * 100 + "2 and 3 are 5"
    assert compute(numbers("5 " * (MOST_NUMBERS - 3) + far))
    assert not compute(numbers("5 " * (MOST_NUMBERS - 2) + far))


TODAY = datetime.date(2024, 6, 1)


@pytest.mark.parametrize(
    ("url", "date"),
    [
        ("https://example.org/news/2020.08.14", (2020, 8, 14)),
        ("https://example.org/?a=1&date=2020-08-14&b=20190101", (2020, 8, 14)),
        ("https://example.org/?date=2020%2F08%2F14", (2020, 8, 14)),
        ("https://example.org/2020/August/14/story", (2020, 8, 14)),
        ("https://example.org/14-aug-2020/story", (2020, 8, 14)),
        ("https://example.org/id/99999999/2019/01/02", (2019, 1, 2)),
        ("https://example.org/2013/2014/05/06/", (2014, 5, 6)),
        ("https://example.org/2031/01/01/2019/01/02/", (2019, 1, 2)),
        ("https://web.archive.org/web/20200814101500/http://example.org/2019/01/02/", (2019, 1, 2)),
        # An archive's day is not the page's.
        ("https://web.archive.org/web/20130102/https://b.example/x", None),
        ("https://archive.today/2013.01.02-030405/https://b.example/x", None),
        ("https://archive.ph/20130102/b.example/x", None),
        ("https://webarchive.nationalarchives.gov.uk/20130102/https://b.example/x", None),
        ("https://arquivo.pt/wayback/20130102/http://b.example/2012/03/04/x", (2012, 3, 4)),
        ("https://wayback.example/7/20130102030405/http%3A%2F%2Fb.example/2012/03/04/x", (2012, 3, 4)),
        ("https://archive.example.org/2020/08/14/story", (2020, 8, 14)),
        ("https://example.org/2020/08/14/?from=https://b.example/", (2020, 8, 14)),
        ("https://example.org/2020/13/14/story", None), ("https://example.org/2021/02/29/story", None),
        ("https://example.org/1850/01/01/story", None), ("https://example.org/item/120200814", None),
        ("https://example.org/2020/08-14/", None), ("https://example.org/14/08/2020/", None),
        ("https://example.org/2020/08/story", None), ("https://example.org/2020/mayor/14/", None), ("", None),
        (None, None),
    ],
)  # fmt: skip
def test_the_date_in_a_url(url: str | None, date: tuple[int, int, int] | None) -> None:
    assert date_from_url(url, TODAY) == (datetime.date(*date) if date else None)


FORMS = ["/%Y/%m/%d/", "/%Y-%m-%d-title", "?date=%Y%m%d", "/%Y%m%d/", "/%Y/%b/%d/", "/%Y/%-m/%-d/"]


@given(date=st.dates(datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)), form=st.sampled_from(FORMS))
def test_every_day_but_those_to_come_is_read_in_every_form(date: datetime.date, form: str) -> None:
    url = f"https://example.org{date.strftime(form).lower()}"
    assert date_from_url(url, date) == date
    assert date_from_url(url, TODAY) == (date if date <= TODAY else None)
