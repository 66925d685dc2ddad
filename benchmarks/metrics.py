"""Scoring as in the paper (section 4.2): pure functions from a completion to right or wrong."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction

from toolformer.benchmarks.numerals import DASHES, first_numeral, in_ascii, plain, whole_numeral
from toolformer.data.numbers import GROUPED, ungrouped

_EQUALS = re.compile(r"(?<![<>!=])=(?![=>])")
_ROUNDED_PLACES = 2
"""Decimals the calculator tool gives (paper, appendix A.1)."""
_MOST_PLACES = 6
"""Decimals past which the published answers are noise of floating point numbers."""


def number_in(completion: str) -> Fraction | None:
    """The number that a completion of a math problem answers with, or None (paper, section 4.2.2, note 7).

    The first number; in an equation, the first number after its first "=", or None if none follows. Only digits count, of any
    script. A fraction that divides evenly counts as an unsolved division: the number of 10/2 is 10. A number attached to
    letters (x2, v1.5) does not count; <=, >=, != and == do not make an equation.

    >>> str(number_in(" 5."))
    '5'
    >>> str(number_in(" 5+3=8"))
    '8'
    >>> str(number_in(" x = 1,234.50 dollars"))
    '2469/2'
    >>> number_in(" 5 + 3 = ?") is None
    True
    """
    text = in_ascii(completion)
    equals = _EQUALS.search(text)
    numeral = first_numeral(text[equals.end() :] if equals else text)
    return numeral.value if numeral else None


def as_number(answer: str | int | float | Fraction) -> Fraction:
    """A benchmark's answer as an exact number: 1234, 0.1 (the decimal, not the float), "1,234", "1/2", "10/2" (5).

    ValueError if it is not one number, or a division by zero.
    """
    found = whole_numeral(in_ascii(str(answer)).strip())
    if not found or found[0].divided is None or found[1].strip() not in ("", "%"):
        raise ValueError(f"{answer!r} is not a number")
    return found[0].divided


def as_written(answer: str | float | Fraction) -> str:
    """An answer as people write it: a whole number without decimals, and no number with an exponent.

    >>> as_written("51.0"), as_written(7.5), as_written("Paris 2.0b"), as_written(1e-7)
    ('51', '7.5', 'Paris 2.0b', '0.0000001')
    """
    text = f"{Decimal(str(answer + 0.0)):f}" if isinstance(answer, float) else str(answer)  # -0.0 is 0
    return re.sub(r"(?<=\d)\.0+$", "", text)


def score_math(completion: str, answer: str | int | float | Fraction) -> bool:
    """Whether the number a completion answers with equals the answer (paper, section 4.2.2).

    >>> score_math(" 1,000.0 apples", 1000)
    True
    >>> score_math(" 5.67", 5.666666666666667), score_math(" 5.7", 5.666666666666667)
    (True, False)

    For an answer with more than two decimals (5.666666666666667 in MAWPS) a number correctly rounded to two decimals or more
    also counts, since the calculator gives no more; a number rounded to zero does not. ValueError if `answer` is not one
    number.
    """
    found, right = number_in(completion), as_number(answer)
    if found is None or found == right:
        return found is not None
    places = _places(right)
    if places <= _ROUNDED_PLACES or found == 0:
        return False
    places = max(_ROUNDED_PLACES, min(_places(found), places))
    return abs(found - right) <= Fraction(1, 2 * 10**places)


def _places(number: Fraction) -> int:
    """Decimals that a number needs, at most `_MOST_PLACES`."""
    return next((n for n in range(_MOST_PLACES) if (number * 10**n).denominator == 1), _MOST_PLACES)


_SIGN = "\u2212"
"""The minus of a number, as opposed to hyphens."""
_HYPHENS = dict.fromkeys(map(ord, DASHES), "-")
_HYPHEN = re.compile(r"-[$€£¥]?(?=\.?[0-9])")
"""A possible sign of a number."""
_OPERAND = re.compile(r"[)\].%°\u2032\u2033-]\Z|[0-9][$€£¥'\"]\Z")
"""Text before a hyphen that is not a sign, besides letters and digits: (2)-3, 30%-40%, 5'-6'."""
_NUMBER_WITHIN = re.compile(
    # With thousands or decimals, beside other signs or letters (10,000-year, US$1,000), but no part of 1.2.3 or 12.05.2020.
    rf"{_SIGN}?(?<![0-9])(?<![0-9][.,])(?:{GROUPED}|[0-9]+\.[0-9]+|(?<![\w).])\.[0-9]+)"
    r"(?![0-9])(?![.,][0-9])"
)
_BLANK_IN_NUMBER = re.compile(rf"(?<![\w.,])(?=\d{{1,3}}[\u00a0\u2007\u2009\u202f]){GROUPED}")
"""A number whose groups have blanks between them, which must not separate words."""
_INITIALS = re.compile(r"\b([^\W\d_]\.)\s+(?=[^\W\d_]\.)")
_ABBREVIATION = re.compile(
    # With its last dot, unless a word follows it directly: J.K.Rowling.
    r"\b[^\W\d_](?:\.[^\W\d_])+\b(?:\.(?!\w))?"
)
_POSSESSIVE = re.compile(r"['\u2019]s\b")
_APOSTROPHE = re.compile(r"['\u2019]")
_CHINESE = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003347f]")
"""Characters of a script that puts no blanks between words."""
_STROKES = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ŧ": "t", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th"}
)
"""Latin letters that Unicode does not decompose into a letter and an accent, after casefolding."""
_ARTICLES = frozenset({"a", "an", "the"})


def words_of(text: str) -> list[str]:
    """The words of a text for comparison: without case, accents and punctuation, numbers by value.

    >>> words_of("The Café, in Lincoln's U.S.")
    ['the', 'cafe', 'in', 'lincoln', 'us']
    >>> words_of("$1,000.0 on August 14th; 3.50")
    ['1000', 'on', 'august', '14th', '3.5']

    A possessive 's is dropped, hyphens and slashes separate, initials are one word with or without blanks ("J. K.
    Rowling"). A minus before a number is its sign, unless an operand ends before it: "-5" is not "5", "14-15" is two
    numbers. A Chinese character is a word, as in MLQA's own scoring.
    """
    return [word for chunk in _chunks(text) for word in _words_of_chunk(chunk)]


def _chunks(text: str) -> list[str]:
    """The text split at blanks, except those between initials, and around every Chinese character.

    Without invisible format characters, such as soft hyphens.
    """
    text = "".join(char for char in text if unicodedata.category(char) != "Cf")
    text = _BLANK_IN_NUMBER.sub(lambda number: re.sub(r"\s", ",", number[0]), text)
    return _CHINESE.sub(r" \g<0> ", _INITIALS.sub(r"\1", plain(text))).split()


def _words_of_chunk(chunk: str) -> list[str]:
    chunk = _signed(chunk)
    words, end = [], 0
    for number in _NUMBER_WITHIN.finditer(chunk):
        words += [*_plain_words(chunk[end : number.start()]), _numeral(number[0])]
        end = number.end()
    return words + _plain_words(chunk[end:])


def _signed(chunk: str) -> str:
    """A chunk with `_SIGN` directly before negative numbers, and hyphens for any other minus."""
    chunk = chunk.translate(_HYPHENS)

    def sign(hyphen: re.Match[str]) -> str:
        before = chunk[: hyphen.start()]
        operand = before and (_in_words(before[-1]) or _OPERAND.search(before))
        return hyphen[0] if operand else _SIGN

    return _HYPHEN.sub(sign, chunk)


def _in_words(char: str) -> bool:
    """Whether a character is part of words: a letter, a digit, or a mark on one."""
    return unicodedata.category(char)[0] in "LNM"


def _plain_words(chunk: str) -> list[str]:
    letters = unicodedata.normalize("NFD", chunk).casefold()
    # Only the accents of Latin, Greek and Cyrillic: the vowel signs of other scripts are letters.
    letters = "".join(char for char in letters if not "\u0300" <= char <= "\u036f").translate(_STROKES)
    letters = _ABBREVIATION.sub(lambda found: found[0].replace(".", ""), letters)
    letters = _APOSTROPHE.sub("", _POSSESSIVE.sub("", letters))
    spaced = "".join(char if _in_words(char) or char == _SIGN else " " for char in letters)
    return [_numeral(word) if word.strip(_SIGN).isdecimal() else word for word in spaced.split()]


def _numeral(number: str) -> str:
    """One spelling of a number: "1,000.0" and "01000" are "1000"."""
    whole, _, decimals = ungrouped(number.removeprefix(_SIGN)).partition(".")
    whole, decimals = whole.lstrip("0") or "0", decimals.rstrip("0")
    minus = _SIGN if number.startswith(_SIGN) else ""
    return f"{minus}{whole}.{decimals}" if decimals else f"{minus}{whole}"


def score_first_words(completion: str, answers: Iterable[str], words: int = 5) -> bool:
    """Whether the first `words` words of a completion contain one of `answers` (paper, section 4.2.1).

    >>> score_first_words(" It was the 14th of August.", ["14", "14th"])
    True
    >>> score_first_words(" 2011", ["1"]), score_first_words(" one two three four five Monday", ["Monday"])
    (False, False)
    >>> score_first_words(" Sunday/Monday/Tuesday/Wednesday/Thursday/Friday", ["Friday"])
    False

    Words are those of `words_of`, articles included. All words of an answer must be there, in order, except articles at its
    beginning ("Hague" contains "The Hague").
    """
    window = words_of(completion)[:words]
    return any(_contains(window, _without_articles(words_of(answer))) for answer in answers)


def _without_articles(words: list[str]) -> list[str]:
    first = next((n for n, word in enumerate(words) if word not in _ARTICLES), 0)
    return words[first:]


def _contains(words: Sequence[str], part: Sequence[str]) -> bool:
    size = len(part)
    return size > 0 and any(words[n : n + size] == part for n in range(len(words) - size + 1))
