"""The calendar: `Today is Monday, January 30, 2023.` (paper, section 3).

The date is the document's: that of its URL while annotating, that of the example in a benchmark.
"""

import datetime
from collections.abc import Sequence

from toolformer.data import Document
from toolformer.data.dates import DAYS, MONTHS
from toolformer.tools.base import Result, Tool


def sentence(date: datetime.date) -> str:
    """The calendar's answer for a day."""
    return f"Today is {DAYS[date.weekday()]}, {MONTHS[date.month - 1]} {date.day}, {date.year}."


class Calendar(Tool):
    """The calendar as a tool. With `use_clock`, a document without a date gets today's."""

    name = "Calendar"
    VERSION = 1
    benchmarks = ("dateset",)
    is_exact = True
    is_quick = True
    examples = (
        "The newsletter begins with the date of the day: [Calendar() -> Today is Tuesday, March 9, 2021.] Tuesday, March 9, 2021.",
        "The shop is open late because today is [Calendar() -> Today is Saturday, October 12, 2019.] Saturday.",
        "Which day of the week was it two days ago? Today is [Calendar() -> Today is Friday, June 5, 2015.] Friday, so it was Wednesday.",
        "The number of days until New Year's Eve is [Calendar() -> Today is Wednesday, December 20, 2017.] 11.",
    )

    def __init__(self, use_clock: bool = False) -> None:
        self.use_clock = use_clock

    def depends_on(self, document: Document) -> str:
        """The day of the answer."""
        return str(self._date(document))

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """The day of each document; the calendar takes no input."""
        return [self._answer(text, document) for text, document in zip(inputs, documents, strict=True)]

    def _answer(self, text: str, document: Document) -> Result:
        if text.strip():
            return Result(reason="takes no input")
        date = self._date(document)
        return Result(sentence(date)) if date else Result(reason="no date")

    def _date(self, document: Document) -> datetime.date | None:
        return document.date or (datetime.date.today() if self.use_clock else None)
