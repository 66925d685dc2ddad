"""The calendar's sentence, and whose date it is."""

from __future__ import annotations

import datetime

import pytest

from toolformer.data import Document
from toolformer.tools.calendar import Calendar, sentence


def test_the_sentence_is_the_papers() -> None:
    days = [(2023, 1, 30), (2020, 2, 29), (2000, 12, 31)]
    assert [sentence(datetime.date(*day)) for day in days] == [
        "Today is Monday, January 30, 2023.", "Today is Saturday, February 29, 2020.", "Today is Sunday, December 31, 2000.",
    ]  # fmt: skip


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


@pytest.mark.parametrize("text", ["today", "\x00", "x" * 100_000])
def test_it_takes_no_input(text: str) -> None:
    document = Document("d", "", date=datetime.date(2021, 5, 3))
    assert Calendar(use_clock=True).run([text], [document])[0].reason == "takes no input"
