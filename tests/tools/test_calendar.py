"""The calendar's sentence, and whose date it is."""

import datetime

from toolformer.data import Document
from toolformer.tools.calendar import Calendar, sentence


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
