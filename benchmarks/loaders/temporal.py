"""TempLAMA and Dateset (paper, section 4.2.5): documents with the `current_date` that the calendar answers with."""

import re
from typing import Any

from toolformer.benchmarks.dateset import generate
from toolformer.benchmarks.loaders.lama import NOT_LAST, until_mask
from toolformer.benchmarks.loaders.published import published
from toolformer.benchmarks.loaders.sources import (
    Row,
    Splits,
    collect,
    distinct,
    generated,
    list_of,
    text_of,
    value_of,
)
from toolformer.errors import UserError

MIDDLE_OF_THE_YEAR = "07-01"
"""Month and day of a query of which only the year is known."""


def dateset(**metadata: Any) -> Splits:
    """Dateset, generated: `id, family, question, answers, current_date`."""
    return generated("dateset", generate, metadata)


def templama(**metadata: Any) -> Splits:
    """TempLAMA's test part: `id, family, text, answers, current_date`.

    As in LAMA, `family` is the relation, and queries whose slot `_X_` is last are kept. The year of a query is not in
    its text: only the calendar has it.
    """

    def make(row: Row, location: str) -> Row | str:
        year = str(value_of(row, "date", location))
        if not re.fullmatch(r"\d{4}", year):
            raise UserError(f"{location}: field `date` is {year!r}, not a year; fix the row")
        answers = [text_of(answer, "name", location) for answer in list_of(row, "answer", location, dict)]
        text = until_mask(text_of(row, "query", location), "_X_")
        if not text:
            return NOT_LAST
        if not distinct(answers):
            return "no answer"
        return {
            "id": text_of(row, "id", location),
            "family": text_of(row, "relation", location),
            "text": text,
            "answers": distinct(answers),
            "current_date": f"{year}-{MIDDLE_OF_THE_YEAR}",
        }

    return collect("templama", published("templama", metadata), make, metadata, by="family")
