"""Which texts are tried (appendix A.1), with the reason of each decision."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolformer.annotation import select
from toolformer.data import Document
from toolformer.data.numbers import TOKEN
from toolformer.lm.language_id import LanguageIdentifier


def document(text: str, **fields: object) -> Document:
    return Document("d", text, **fields)  # type: ignore[arg-type]


@pytest.mark.real
def test_english_in_capitals_is_english() -> None:
    paragraph = (
        "The town office has a small notice on its door this week and people stop to read it on their way home. ALL "
        "ORDERS PLACED BEFORE NOON ARE SHIPPED ON THE SAME DAY SUBJECT TO STOCK AND TERMS AND CONDITIONS. After that the "
        "people go home and talk about it over dinner with their families and friends."
    )
    identify = LanguageIdentifier().identify
    assert not select.translation(document(paragraph), identify)
    foreign = "LES GENS DU VILLAGE SONT VENUS AU MARCHÉ POUR ACHETER DU PAIN"
    assert select.translation(document(re.sub("ALL ORDERS.*CONDITIONS", foreign, paragraph)), identify)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("723 goals in 252 matches, an average of 2.87 each", "numbers that compute"),
        ("The sum is = 5", "a cue before a number"), ("It equals -5 degrees", "a cue before a number"),
        ("equal  to $1,000", "a cue before a number"), ("an average\nof 3.5%", "a cue before a number"),
        ("x=٥", "a cue before a number"), ("a total of five came in 3 cars", "fewer than three numbers"),
        ("see https://example.org/?page=5", "fewer than three numbers"),
        ("It was 1/2 of 1,234,567 or 617,283.5", "numbers that compute"),
        ("10 by 3 is about 3", "three numbers, not drawn"),
        ("From 3 May 1994 to 2 May 2011 it was 17 years", "fewer than three numbers"),
    ],
)  # fmt: skip
def test_calculator(text: str, reason: str) -> None:
    decision = select.calculator(document(text), share=0.0)
    assert decision.reason == reason
    assert bool(decision) == (reason in ("numbers that compute", "a cue before a number"))


def test_one_in_a_hundred_of_the_other_texts_is_drawn() -> None:
    texts = [Document(f"d{n}", "7 then 90 then 1000") for n in range(4000)]
    drawn = [one for one in texts if select.calculator(one)]
    assert 15 <= len(drawn) <= 75
    assert [one.doc_id for one in texts if select.calculator(one)] == [one.doc_id for one in drawn]


ENGLISH = "the people of the town came to the market to buy bread and to hear the news"
SPANISH = "los vecinos del pueblo vinieron al mercado para comprar pan y escuchar las noticias de la tarde"


def identify(text: str) -> tuple[str, float]:
    """Spanish as far as its words are; digits are nothing in particular."""
    words = text.split()
    share = sum(word in SPANISH.split() for word in words) / len(words)
    return ("es", share) if share > 0.5 else ("en", 1 - share)


def test_translation_wants_a_foreign_middle() -> None:
    assert select.translation(document(f"{ENGLISH} {SPANISH} {ENGLISH}"), identify)
    for text in ("", f"{ENGLISH} 9 10 11 12 13 km 14 15 16 17 18 {ENGLISH}"):
        assert select.translation(document(text), identify).reason == "no foreign passage between English"


PARAGRAPHS = re.compile(r"[^\n]+(?:\n(?!\s*\n)[^\n]+)*")


def as_defined(text: str, identify: select.Identify) -> tuple[tuple[int, int], ...]:
    """Every chunk against every chunk before and after it: the literal definition, in quadratic time."""

    def english(paragraph: str, tokens: list[tuple[int, int]]) -> bool:
        if len(tokens) < 2:
            return False
        if len(tokens) < select.CHUNK:
            return identify(paragraph[tokens[0][0] : tokens[-1][1]])[0] == "en"
        chunks = [tokens[n : n + select.CHUNK] for n in range(len(tokens) - select.CHUNK + 1)]
        return any(label(paragraph, chunk) == "en" for chunk in chunks)

    def label(paragraph: str, chunk: list[tuple[int, int]]) -> str | None:
        text = paragraph[chunk[0][0] : chunk[-1][1]]
        if sum(map(str.isalpha, text)) < select.CHUNK // 2:
            return None
        language, confidence = identify(text)
        return language if language == "en" or confidence > 0.8 else None

    def foreign(paragraph: str) -> bool:
        tokens = [match.span() for match in TOKEN.finditer(paragraph)]
        return any(
            label(paragraph, tokens[n : n + select.CHUNK]) not in (None, "en")
            and english(paragraph, tokens[:n])
            and english(paragraph, tokens[n + select.CHUNK :])
            for n in range(len(tokens) - select.CHUNK + 1)
        )

    return tuple(match.span() for match in PARAGRAPHS.finditer(text) if foreign(match.group()))


def majority(text: str) -> tuple[str, float]:
    """Spanish where most words are "el", English where they are "the", both without much confidence otherwise."""
    words = text.split()
    spanish, english = (sum(word == one for word in words) / len(words) for one in ("el", "the"))
    return ("es", spanish) if spanish > english else ("en", english)


RUNS = st.lists(
    st.tuples(st.sampled_from(["the", "el", "el", "7", "und", "\n", "\n \n", "\r\n"]), st.integers(1, 14)),
    max_size=12,
)


@given(RUNS)
@example([("the", 2), ("el", 10), ("the", 2)])
@example([("the", 9), ("el", 10), ("the", 10)])
@example([("the", 10), ("el", 20), ("the", 1)])
@example([("the", 5), ("el", 30), ("the", 5)])
@example([("7", 10), ("el", 10), ("the", 10)])
def test_translation_selects_paragraphs_by_the_definition(runs: list[tuple[str, int]]) -> None:
    text = " ".join(word for word, count in runs for _ in range(count))
    expected = as_defined(text, majority)
    assert select.translation(document(text), majority).spans == expected


def test_a_line_can_be_a_paragraph() -> None:
    text = f"{ENGLISH}\n{SPANISH}\n{ENGLISH}\n{ENGLISH} {SPANISH} {ENGLISH}"
    assert select.translation(document(text), identify).spans == ((0, len(text)),)
    ((start, end),) = select.translation(document(text), identify, "line").spans
    assert text[start:end] == f"{ENGLISH} {SPANISH} {ENGLISH}"


@pytest.mark.parametrize("pieces", [["el"] * 20_000, [" \n"] * 20_000, ["the"] * 9 + ["el"] * 20_000])
def test_a_long_text_is_asked_about_once_a_chunk(pieces: list[str]) -> None:
    asked: list[int] = []

    def counted(text: str) -> tuple[str, float]:
        asked.append(len(text))
        return ("es", 1.0) if "el" in text else ("en", 1.0)

    assert not select.translation(document(" ".join(pieces)), counted)
    assert len(asked) <= len(pieces) + 2 * select.CHUNK


def test_a_foreign_chunk_has_ten_tokens_and_confidence() -> None:
    def select_with(words: int, confidence: float) -> bool:
        known = SPANISH.split()[:words]

        def sure(chunk: str) -> tuple[str, float]:
            return ("es", confidence) if set(chunk.split()) <= set(known) else ("en", 1.0)

        return bool(select.translation(document(f"{ENGLISH} {' '.join(known)} {ENGLISH}"), sure))

    assert [select_with(words, 1.0) for words in (9, 10)] == [False, True]
    assert [select_with(17, confidence) for confidence in (0.8, 0.81)] == [False, True]

    def either(chunk: str) -> tuple[str, float]:  # where words have no blanks characters are tokens
        return ("zh", 1.0) if sum(letter > "\u3000" for letter in chunk) > 6 else ("en", 1.0)

    text = f"{ENGLISH} 南京高淳县，住房和城乡建设局。 {ENGLISH}"
    assert select.translation(document(text), either).spans == ((0, len(text)),)


@pytest.mark.parametrize(
    ("text", "call_input", "position", "ahead"),
    [
        ("He wrote O homem in 1967.", "O homem", 9, True),
        ("He wrote O homem in 1967.", "O homem", 17, False),
        ("He wrote O homem in 1967.", "O homem", 12, False),  # it begins before the call and ends after it
        ("He wrote O\n homem in 1967.", "O  homem", 9, True),
        ("O homem: he wrote O homem.", "O homem", 18, False),
    ],
)
def test_an_input_that_stands_only_after_the_call(
    text: str, call_input: str, position: int, ahead: bool
) -> None:
    assert select.looks_ahead(text, position, call_input) == ahead
