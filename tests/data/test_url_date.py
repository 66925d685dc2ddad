"""The date in a URL."""

import datetime
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer.data import date_from_url

TODAY = datetime.date(2024, 6, 1)


@pytest.mark.parametrize(
    ("url", "date"),
    [
        ("https://example.org/news/2020.08.14", (2020, 8, 14)),
        ("https://example.org/?a=1&date=2020-08-14&b=20190101", (2020, 8, 14)),
        ("https://example.org/?date=2020%2F08%2F14", (2020, 8, 14)),
        ("https://example.org/20200814T101500", (2020, 8, 14)),
        ("https://example.org/2020/August/14/story", (2020, 8, 14)),
        ("https://example.org/14-aug-2020/story", (2020, 8, 14)),
        ("https://example.org/september/4/2020/", (2020, 9, 4)),
        ("https://example.org/id/99999999/2019/01/02", (2019, 1, 2)),
        ("https://example.org/2013/2014/05/06/", (2014, 5, 6)),
        ("https://example.org/2031/01/01/2019/01/02/", (2019, 1, 2)),
        ("https://web.archive.org/web/20200814101500/http://example.org/2019/01/02/", (2019, 1, 2)),
        ("https://web.archive.org/web/20200814/http://example.org/", None),
        ("https://example.org/2020/13/14/story", None), ("https://example.org/2021/02/29/story", None),
        ("https://example.org/1850/01/01/story", None), ("https://example.org/item/120200814", None),
        ("https://example.org/2020/08-14/", None), ("https://example.org/14/08/2020/", None),
        ("https://example.org/2020/08/story", None), ("https://example.org/2020/mayor/14/", None), ("", None),
        (None, None),
    ],
)  # fmt: skip
def test_the_date_in_a_url(url: str | None, date: tuple[int, int, int] | None) -> None:
    assert date_from_url(url, TODAY) == (datetime.date(*date) if date else None)


FORMS: list[Callable[[datetime.date], str]] = [
    lambda date: f"/{date:%Y/%m/%d}/",
    lambda date: f"/{date:%Y-%m-%d}-title",
    lambda date: f"?date={date:%Y%m%d}",
    lambda date: f"/{date:%Y%m%d}/",
    lambda date: f"/{date:%Y/%b/%d}/".lower(),
    lambda date: f"/{date.year}/{date.month}/{date.day}/",
]


@given(date=st.dates(datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)), form=st.sampled_from(FORMS))
def test_every_day_but_those_to_come_is_read_in_every_form(
    date: datetime.date, form: Callable[[datetime.date], str]
) -> None:
    url = f"https://example.org{form(date)}"
    assert date_from_url(url, date) == date
    assert date_from_url(url, TODAY) == (date if date <= TODAY else None)
