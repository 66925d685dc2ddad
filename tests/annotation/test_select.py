"""Which texts are tried (appendix A.1), with the reason of each decision."""

from __future__ import annotations

import datetime
from fractions import Fraction

import pytest

from toolformer.annotation import select
from toolformer.documents import Document


def document(text: str, **fields: object) -> Document:
    return Document("d", text, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,234.56 and 3.5% of $12", ["1234.56", "3.5", "12"]),
        ("on 2020-08-14 at 10:30, or 14/08/2020, 7 came", ["7"]),
        ("version 1.2.3 and room4 and 1,23", []),
        ("18 + 12 x 3 = 54.", ["18", "12", "3", "54"]),
        ("none", []),
    ],
)
def test_numbers(text: str, values: list[str]) -> None:
    assert [number.value for number in select.numbers(text)] == [Fraction(value) for value in values]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("723 goals in 252 matches, an average of 2.87 each", "numbers that compute"),
        ("From 1994 to 2011, 17 years.", "numbers that compute"),
        ("The sum is = 5", "a cue before a number"),
        ("A total of 5 came", "a cue before a number"),
        ("a total of five came in 3 cars", "fewer than three numbers"),
        ("5 and 7", "fewer than three numbers"),
    ],
)
def test_calculator(text: str, reason: str) -> None:
    decision = select.calculator(document(text))
    assert decision.reason == reason
    assert bool(decision) == (reason in ("numbers that compute", "a cue before a number"))


def test_numbers_further_apart_than_the_window_do_not_compute() -> None:
    near = "7 " + "word " * 50 + "9 " + "word " * 40 + "16"
    far = "7 " + "word " * 50 + "9 " + "word " * 60 + "16"
    assert select.calculator(document(near))
    assert select.calculator(document(far), share=0.0).reason == "three numbers, not drawn"


def test_one_in_a_hundred_of_the_other_texts_is_drawn() -> None:
    texts = [Document(f"d{n}", "7 then 90 then 1000") for n in range(4000)]
    drawn = [one for one in texts if select.calculator(one)]
    assert 15 <= len(drawn) <= 75
    assert [one.doc_id for one in texts if select.calculator(one)] == [one.doc_id for one in drawn]


def test_calendar_needs_a_date() -> None:
    assert select.calendar(document("x")).reason == "no date in the URL"
    assert select.calendar(document("x", date=datetime.date(2020, 1, 1)))


ENGLISH = "the people of the town came to the market to buy bread and to hear the news"
SPANISH = "los vecinos del pueblo vinieron al mercado para comprar pan y escuchar las noticias de la tarde"


def identify(text: str) -> tuple[str, float]:
    """Spanish as far as its words are; digits are nothing in particular."""
    words = text.split()
    share = sum(word in SPANISH.split() for word in words) / len(words)
    return ("es", share) if share > 0.5 else ("en", 1 - share)


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        (f"{ENGLISH} {SPANISH} {ENGLISH}", True),
        (f"{SPANISH} {ENGLISH}", False),
        (f"{ENGLISH} {SPANISH}", False),
        (f"{ENGLISH}\n\n{SPANISH}\n\n{ENGLISH}", False),
        (f"{ENGLISH} " + "1 2 3 4 5 6 7 8 9 10 11 12 " + ENGLISH, False),
        (ENGLISH, False),
        ("", False),
    ],
)
def test_translation_wants_a_foreign_middle(text: str, selected: bool) -> None:
    decision = select.translation(document(text), identify)
    assert bool(decision) == selected
    if not selected:
        assert decision.reason == "no foreign passage between English"


def test_translation_takes_the_paragraph_only() -> None:
    text = f"First.\n\n{ENGLISH} {SPANISH} {ENGLISH}\n\nLast."
    ((start, end),) = select.translation(document(text), identify).spans
    assert text[start:end] == f"{ENGLISH} {SPANISH} {ENGLISH}"


def test_an_empty_text_is_refused() -> None:
    assert select.whole(document(" \n")).reason == "empty text"
