"""Splits texts of any script into words, for search and for overlaps. Knows no index.

Scripts without blanks have no words to split at: a search compares their pairs of neighbouring characters, as Lucene's CJK
analyzer does, and elsewhere each character counts as a word. A character here is a letter with its combining marks.
"""

import unicodedata
from itertools import pairwise
from typing import Any

import regex

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_INSIDE = r"\p{M}[\p{Cf}--\u200b]"
"""Marks, and characters without width, such as joiners and soft hyphens; a zero-width space parts words."""


def _character(scripts: str) -> str:
    return rf"[[\p{{L}}\p{{N}}]&&[{scripts}]][{_INSIDE}]*"


def _spaced(scripts: str) -> tuple[str, str]:
    """The first character of a word in scripts other than these, and any further one."""
    letters = r"\p{L}\p{N}_"
    return f"[[{letters}]--[{scripts}]]", f"[[{letters}{_INSIDE}]--[{scripts}]]"


def _search_pattern() -> Any:
    scripts = rf"{_UNSPACED}\p{{Hangul}}"
    first, further = _spaced(scripts)
    # Words of one character count (Vitamin C), but not the s of a possessive.
    return regex.compile(
        rf"(?P<run>(?:{_character(scripts)})+)|(?<!['’]){first}{further}*|{first}{further}+", regex.V1
    )


_SEARCH = _search_pattern()
_CHARACTER = regex.compile(r"[\p{L}\p{N}]\P{L}*", regex.V1)
_FIRST, _FURTHER = _spaced(_UNSPACED)
_WORD = regex.compile(rf"{_character(_UNSPACED)}|{_FIRST}{_FURTHER}*", regex.V1)
_UNIT = regex.compile(
    rf"{_character(_UNSPACED)}[[\S]--[\p{{L}}\p{{N}}]]*|[[\S]--[{_UNSPACED}]]+|\S", regex.V1
)
_BETWEEN_BLANKS = regex.compile(r"\S+")
_UNSPACED_CHARACTER = regex.compile(_character(_UNSPACED), regex.V1)
_WIDE = regex.compile(r"[\uff00-\uffef]+")
_WITHOUT_WIDTH = regex.compile(r"[[\p{Cf}\ufe00-\ufe0f]--\u200b]+", regex.V1)


def search_words(text: str, is_query: bool) -> list[str]:
    """The words of a text that a search compares, without case, in order.

    In scripts without blanks and in Korean they are pairs of characters. A text has its single characters too, which a query
    has only where one is alone.
    """
    words: list[str] = []
    for match in _SEARCH.finditer(_normal(text)):
        if not match["run"]:
            words.append(match[0])
            continue
        characters = _CHARACTER.findall(match[0])
        pairs = ["".join(pair) for pair in pairwise(characters)]
        words += pairs or characters if is_query else characters + pairs
    return words


def overlap_words(text: str) -> list[str]:
    """The words of a text in lower case, in order; in scripts without blanks its characters."""
    return [match[0] for match in _WORD.finditer(_normal(text))]


def word_ends(text: str) -> list[int]:
    """The end of each word and punctuation mark in a text: `It's 3 km.` has six."""
    return [match.end() for match in _TOKEN.finditer(text)]


def word_starts(text: str) -> list[int]:
    """The start of each word in a text, between blanks; in scripts without blanks of each character with what follows it."""
    return [match.start() for match in (_UNIT if not text.isascii() else _BETWEEN_BLANKS).finditer(text)]


def may_end(text: str, end: int) -> bool:
    """Whether a text may be cut at a position: next to a blank or, in scripts without blanks, after any character."""
    return text[end].isspace() or any(
        _UNSPACED_CHARACTER.match(text, position) for position in (end - 1, end)
    )


def unsplit_by_lucene(text: str) -> bool:
    """Whether a text has clauses that Lucene's standard tokenizer leaves whole; it splits Chinese and Japanese."""
    return _UNSPLIT_BY_LUCENE.search(text) is not None


_UNSPLIT_BY_LUCENE = regex.compile(r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]{2}")
_TOKEN = regex.compile(rf"{_WORD.pattern}|[^\w\s]", regex.V1)


def _normal(text: str) -> str:
    """One form for what is written in several: full and half width, composed and decomposed, upper and lower case."""
    if text.isascii():
        return text.lower()
    text = _WIDE.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
    return _WITHOUT_WIDTH.sub("", unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold()))
