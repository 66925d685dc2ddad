"""The numbers of a text, as the calculator's heuristics count them (paper, appendix A.1).

The paper does not say what a number is. What is read here, and what is not, stands in docs/method.md; in doubt a string
of figures is no number, since the first two heuristics are there to find texts worth the price of sampling.
"""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter

WINDOW = 100
"""Tokens within which three numbers have to stand to be seen as a computation."""

# Scripts written without blanks: Thai, Lao, Myanmar, Khmer, kana, Han. Each of their characters is a token.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
TOKEN = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")
"""A word, or a character of a script without blanks: the heuristics' tokens, which no model's vocabulary decides."""

_WORD = rf"[^\W{_UNSPACED}]"  # a letter, figure or underscore that may not touch a number
_LETTER = rf"[^\W\d_{_UNSPACED}]"
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?|J[AU]N|FEB|MAR|APR|MAY|JUL|AUG|SEP|OCT|NOV|DEC"
    r"|JANUARY|FEBRUARY|MARCH|APRIL|JUNE|JULY|AUGUST|SEPT|SEPTEMBER|OCTOBER|NOVEMBER|DECEMBER)\b\.?"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?(?:\s?[-–]\s?\d{1,2}(?:st|nd|rd|th)?)?"  # or days: 14-16
_NOT_NUMBERS = re.compile(
    "|".join(
        (
            r"\b(?:https?://|www\.)\S+",
            r"(?<!\S)[^\s@]+@[^\s@]+",
            # Dates and times in figures.
            r"(?<!\d)\d{4}([-/.])\d{1,2}\1\d{1,2}(?:T\d{1,2}(?::\d{2})*(?:\.\d+)?Z?)?(?!\d)",
            r"(?<![\d.])\d{1,2}([-/.])\d{1,2}\2(?:\d{4}|\d{2})(?![\d]|\.\d)",
            r"(?<![\d/.,-])(?:0?[1-9]|1[0-2])/(?:19|20)\d{2}(?![\d/])|(?<![\d/.,-])(?:19|20)\d{2}[-/]0[1-9](?![\d/-])",
            r"(?<!\d)\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?!\d)",
            r"(?<![\w.,])\d{1,2}(?:\.\d{2})?\s?[aApP](?:\.[mM]\.|[mM]\b)",
            # Dates in words.
            rf"(?<![\w.,])(?:{_DAY}\.?\s+(?:of\s+)?{_MONTH}(?:,?\s+\d{{4}}\b)?"
            rf"|\b{_MONTH}\s+{_DAY}(?!\d|[.,/:]\d|\w)(?:,?\s+\d{{4}}\b)?|\b{_MONTH},?\s+(?:of\s+)?\d{{4}}\b)",
            r"\d{1,4}年\d{1,2}月(?:\d{1,2}[日号])?|\d{1,2}月\d{1,2}[日号]",
            # Telephones, and anything else in three parts or more: ISBN, cards, scores of sets.
            r"(?<![\w.])\+\d{1,3}[\s().-]{1,2}(?:\d[\s().-]{0,2}){5,13}\d",
            r"\(\d{3}\)\s?\d{3}[-.\s]\d{4}(?!\d)",
            r"(?<![\d.,-])\d{3}\.\d{3}\.\d{4}(?!\d)",
            r"\d+(?:-\d+){2,}",
            # Versions and keycaps.
            r"\b[vV]ersions?\s+\d[\d.]*",
            r"\d\ufe0f?\u20e3",
        )
    )
)
_DOTTED = re.compile(r"(?<![\w.,])\d+(?:\.\d+){2,}")
_UNIT = (
    r"(?:[kcmµ]?m[²³]?|km/h|mph|[kmµ]?g|lbs?|oz|m?l|ft|in|min|hrs?|h|[KMGT]i?B|[kMG]?W|kWh|[kMG]?Hz|°[CF]?)"
    rf"(?!{_WORD})"
)
_VULGAR = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
_BLANK = "\u00a0\u2009\u202f"  # no-break and thin blanks: they stand inside of one number
_BODY = "|".join(
    (
        r"(?P<whole>\d{1,3})[ \u00a0](?P<above>\d{1,2})/(?P<below>\d{1,3})(?![/\d])",
        r"(?P<upper>(?<!/)\d{1,3})/(?P<lower>\d{1,3})(?!/)",
        rf"(?P<integer>\d{{0,9}})(?P<vulgar>[{_VULGAR}])",
        r"(?P<comma>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?)",
        # Ordinary blanks part two numbers (7 120), but for two groups of three and for thousands.
        rf"(?P<blank>\d{{1,3}}(?:(?:[{_BLANK}'’]\d{{3}})+|(?: \d{{3}}){{2,}}|(?: 000)+)(?:[.,]\d+)?)",
        r"(?P<dot>\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?|\d{1,3}\.\d{3},\d+)",
        r"(?P<plain>\d+(?:\.\d+)?|\.\d+)",
    )
)
_NUMBER = re.compile(
    rf"(?<!{_WORD})(?<![.,])(?<!{_LETTER}[-–−])(?:(?<![\d)\]%])(?P<sign>[-−])(?=[$€£¥.\d]))?[$€£¥]?"
    rf"(?<![\d.,])(?:{_BODY})(?![.,]?\d)(?:(?={_UNIT})|(?!{_WORD}))(?P<percent>\s?%)?"
)
_ARABIC = {0x066B: ".", 0x066C: ","}


@dataclass(frozen=True)
class Number:
    """A number as it stands in a text."""

    value: Fraction
    """As written: 3.5 for 3.5 %."""
    decimals: int
    """Figures after the decimal point."""
    token: int
    """Index of the word it stands in."""
    start: int
    """Character offset, sign and currency included."""
    percent: bool = False


def numbers(text: str) -> list[Number]:
    """The numbers of a text in its order; dates, times, versions, addresses and telephones are none."""
    if not any(map(str.isnumeric, text)):
        return []
    masked = _DOTTED.sub(_without_versions, _NOT_NUMBERS.sub(_blot, text.translate(_ARABIC)))
    starts = [match.start() for match in TOKEN.finditer(text)]
    found: list[Number] = []
    for match in _NUMBER.finditer(masked):
        token = max(0, bisect_left(starts, match.start() + 1) - 1)
        for value, decimals in _values(match):
            sign = -1 if match["sign"] else 1
            found.append(Number(sign * value, decimals, token, match.start(), bool(match["percent"])))
    return found


def compute(found: Sequence[Number]) -> bool:
    """Whether, within 100 tokens, one number is two others' sum, difference, product or quotient.

    A number with decimals is met by what rounds to it, a whole number or a fraction only exactly. A percentage is
    taken as written and as hundredths. Of numbers that no blank parts (1;2;3) each counts as a token.
    """
    readings = [_readings(number) for number in found]
    places: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for n, number in enumerate(found):
        for ratio, decimals in readings[n]:
            places.setdefault(_written(ratio, decimals), []).append((number.token, n))
    shown = {decimals for decimals, _, _ in places}
    for a, first in enumerate(found):
        for b in range(a + 1, len(found)):
            second = found[b]
            if second.token - first.token >= WINDOW or b - a >= WINDOW:
                break
            earliest, latest = second.token - WINDOW + 1, first.token + WINDOW - 1
            for (one, _), (other, _) in itertools.product(readings[a], readings[b]):
                for ratio in _results(one, other):
                    for decimals in shown:
                        near = places.get(_written(ratio, decimals), ())
                        begin = bisect_left(near, (earliest, -1))
                        begin = bisect_left(near, b - WINDOW + 1, begin, key=itemgetter(1))
                        for token, c in (near[place] for place in range(begin, len(near))):
                            if token > latest or c >= a + WINDOW:
                                break
                            if c not in (a, b):
                                return True
    return False


def _blot(match: re.Match[str]) -> str:
    return "x" * len(match.group())


def _without_versions(match: re.Match[str]) -> str:
    """1.234.567 is a number with its thousands parted; 1.2.3 and 192.168.100.200 are none."""
    first, *others = match.group().split(".")
    thousands = len(first) <= 3 and all(len(part) == 3 for part in others)
    address = len(others) == 3 and all(int(part) < 256 for part in (first, *others))
    return match.group() if thousands and not address else _blot(match)


def _values(match: re.Match[str]) -> list[tuple[Fraction, int]]:
    """(value, decimals) of a match: two where the slash divides, none where the figures are a code."""
    if match["below"]:
        below = int(match["below"])
        return [(int(match["whole"]) + Fraction(int(match["above"]), below), 0)] if below else []
    if match["upper"]:
        upper, lower = int(match["upper"]), int(match["lower"])
        # 1/2 is a fraction, 6/3 a division of two numbers.
        return (
            [(Fraction(upper, lower), 0)] if upper < lower else [(Fraction(upper), 0), (Fraction(lower), 0)]
        )
    if match["vulgar"]:
        upper, lower = map(int, unicodedata.normalize("NFKC", match["vulgar"]).split("⁄"))
        return [(int(match["integer"] or 0) + Fraction(upper, lower), 0)]
    if match["comma"]:
        figures = match["comma"].replace(",", "")
    elif match["blank"]:
        figures = re.sub(rf"[ {_BLANK}'’]", "", match["blank"]).replace(",", ".")
    elif match["dot"]:
        figures = match["dot"].replace(".", "").replace(",", ".")
    else:
        figures = match["plain"]
    whole, _, decimals = figures.partition(".")
    code = len(whole) > 1 and unicodedata.digit(whole[0]) == 0  # 007, 0301234
    return [] if code or len(figures) > 30 else [(Fraction(f"{whole or 0}.{decimals or 0}"), len(decimals))]


Ratio = tuple[int, int]
"""An exact value as numerator and denominator, the latter above 0; not in lowest terms, which would cost most of the time."""


def _readings(number: Number) -> list[tuple[Ratio, int]]:
    above, below = number.value.as_integer_ratio()
    readings = [((above, below), number.decimals)]
    return [*readings, ((above, 100 * below), number.decimals + 2)] if number.percent else readings


def _results(one: Ratio, other: Ratio) -> list[Ratio]:
    (a, b), (c, d) = one, other
    left, right, below = a * d, c * b, b * d
    results = [(left + right, below), (left - right, below), (right - left, below), (a * c, below)]
    if right:
        results.append((left, right) if right > 0 else (-left, -right))
    if left:
        results.append((right, left) if left > 0 else (-right, -left))
    return results


def _written(ratio: Ratio, decimals: int) -> tuple[int, int, int]:
    """As a text would write it: half away from zero, to the decimals that it shows, if it shows any; else exactly."""
    above, below = ratio
    if not decimals:
        common = math.gcd(above, below)
        return 0, above // common, below // common
    size = (2 * abs(above) * 10**decimals + below) // (2 * below)
    return decimals, size if above >= 0 else -size, 1
