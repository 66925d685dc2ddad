"""The calendar's sentence, and whose date it is."""

from __future__ import annotations

import ast
import datetime
import inspect
import locale
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolformer.documents import Document
from toolformer.tools import calendar
from toolformer.tools.calendar import Calendar, sentence


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ((2023, 1, 30), "Today is Monday, January 30, 2023."),
        ((2020, 2, 29), "Today is Saturday, February 29, 2020."),
        ((2019, 3, 1), "Today is Friday, March 1, 2019."),
        ((2000, 12, 31), "Today is Sunday, December 31, 2000."),
        ((2024, 7, 4), "Today is Thursday, July 4, 2024."),
        ((2021, 9, 14), "Today is Tuesday, September 14, 2021."),
        ((2022, 11, 9), "Today is Wednesday, November 9, 2022."),
    ],
)
def test_the_sentence_is_the_papers(date: tuple[int, int, int], expected: str) -> None:
    assert sentence(datetime.date(*date)) == expected


def test_every_day_of_a_leap_year() -> None:
    """`ctime` is English under every locale, but cuts names to three letters."""
    for n in range(366):
        day = datetime.date(2024, 1, 1) + datetime.timedelta(n)
        weekday, month, number, _, year = day.ctime().split()
        words = sentence(day).split()
        assert words[:2] == ["Today", "is"] and words[4:] == [f"{number},", f"{year}."]
        assert (words[2][:3], words[3][:3]) == (weekday, month)
        assert words[2].endswith("day,")


def test_each_document_has_its_own_date() -> None:
    dates = [datetime.date(2021, 5, 3), datetime.date(1999, 8, 20)]
    results = Calendar(use_clock=True).run(["", " "], [Document("d", "", date=date) for date in dates])
    assert [one.text for one in results] == [sentence(date) for date in dates]


def test_without_a_date_there_is_no_result_but_by_the_clock() -> None:
    undated = [Document("d", "written on 2020-01-01")]
    assert Calendar().run([""], undated)[0].reason == "no date"
    before = datetime.date.today()
    text = Calendar(use_clock=True).run([""], undated)[0].text
    assert text in (sentence(before), sentence(datetime.date.today()))


@pytest.mark.parametrize("text", ["today", "2020-01-01", "\x00", "x" * 100_000, "\ud800"])
def test_it_takes_no_input(text: str) -> None:
    document = Document("d", "", date=datetime.date(2021, 5, 3))
    assert Calendar(use_clock=True).run([text], [document])[0].reason == "takes no input"


@pytest.fixture(params=["de_DE", "ja_JP"])
def elsewhere(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A country's locale, in force: the installed one, or one compiled from the C library's own description."""
    name = f"{request.param}.UTF-8"
    before = locale.setlocale(locale.LC_ALL)
    try:
        try:
            locale.setlocale(locale.LC_ALL, name)
        except locale.Error:
            if not shutil.which("localedef"):
                pytest.skip(f"no locale {name}, and no localedef to make one")
            made = subprocess.run(
                ["localedef", "--no-archive", "-i", request.param, "-f", "UTF-8", str(tmp_path / name)],
                capture_output=True,
            )
            if made.returncode > 1:  # 1 is warnings
                pytest.skip(f"no locale {name}, and no description to make one of")
            monkeypatch.setenv("LOCPATH", str(tmp_path))
            locale.setlocale(locale.LC_ALL, name)
        yield name
    finally:
        locale.setlocale(locale.LC_ALL, before)


def test_no_locale_changes_the_sentence(elsewhere: str) -> None:
    day = datetime.date(2023, 1, 30)
    assert "Monday" not in day.strftime("%A %B"), "the locale is not in force"
    assert sentence(day) == "Today is Monday, January 30, 2023."
    (result,) = Calendar().run([""], [Document("d", "", date=datetime.date(2024, 12, 25))])
    assert result.text == "Today is Wednesday, December 25, 2024."


def test_no_name_comes_from_the_c_library() -> None:
    called = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(calendar)))
        if isinstance(node, ast.Attribute)
    }
    assert not called & {"strftime", "ctime", "day_name", "month_name", "__format__"}
