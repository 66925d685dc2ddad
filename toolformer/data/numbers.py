"""The numbers of a text: where they stand and what they are worth exactly.

The calculator's heuristics (paper, appendix A.1) look for texts worth the price of sampling, and the paper does not say
what a number is: in doubt a string of figures is none. docs/method.md has the rules.
"""

import itertools
import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from operator import itemgetter

from toolformer.data.url_date import MONTH

WINDOW = 100
"""Tokens within which three numbers have to stand to be seen as a computation."""

MOST_NUMBERS = 300
"""Of a text that are looked at for a computation: one of ordinary texts is found far earlier, and each costs milliseconds."""

# Scripts written without blanks: Thai, Lao, Myanmar, Khmer, kana, Han. Each of their characters is a token.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
TOKEN = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")
"""A word, or a character of a script without blanks: the heuristics' tokens, which no model's vocabulary decides."""

UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
"""A number without a sign, as a pattern: 1234, 1,234.5, .5; `exact` says what it is worth."""

CURRENCY = "$€£¥"
"""Signs that may stand before a number, or after it."""

SIGN = rf"(?:(?<![\w)\]%])[-−](?=[{CURRENCY}.\d]))?"
"""The sign of a number, as a pattern to stand before it and its currency: the minus of -3, and of $-3, not that of 4-3."""

_WORD = rf"[^\W{_UNSPACED}]"  # a letter, figure or underscore that may not touch a number
_LETTER = rf"[^\W\d_{_UNSPACED}]"
_MONTH = rf"(?=[A-Z])(?i:{MONTH})\b\.?"  # capitalised, since people march
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
            # Telephones, and whatever has three parts or more: cards, versions, addresses.
            r"\+\d[\d\s().-]{6,18}\d",
            r"\(\d{3}\)\s?\d{3}[-.\s]\d{4}(?!\d)",
            r"(?<!\d)\d+(?:-\d+){2,}",
            r"(?<![\w.,])\d+(?:\.\d+){2,}",
            r"\b[vV]ersions?\s+\d[\d.]*",
        )
    )
)
_UNIT = (
    r"(?:[kcmµ]?m[²³]?|km/h|mph|[kmµ]?g|lbs?|oz|m?l|ft|in|min|hrs?|h|[KMGT]i?B|[kMG]?W|kWh|[kMG]?Hz|°[CF]?)"
    rf"(?!{_WORD})"
)
_BODY = (
    r"(?P<whole>\d{1,3})[ \u00a0](?P<above>\d{1,2})/(?P<below>\d{1,3})(?![/\d])"
    r"|(?P<upper>(?<!/)\d{1,3})/(?P<lower>\d{1,3})(?!/)"
    # No-break and thin blanks part the thousands of one number; ordinary ones (7 120) do not.
    r"|(?P<grouped>\d{1,3}(?:[\u00a0\u2009\u202f]\d{3})+(?:\.\d+)?)"
    rf"|(?P<figures>{UNSIGNED})"
)
_NUMBER = re.compile(
    rf"(?<!{_WORD})(?<![.,])(?<!{_LETTER}[-–−])(?:(?<![\d)\]%])(?P<sign>[-−])(?=[{CURRENCY}.\d]))?[{CURRENCY}]?"
    rf"(?<![\d.,])(?:{_BODY})(?![.,]?\d)(?:(?={_UNIT})|(?!{_WORD}))(?P<percent>\s?%)?"
)
MOST_FIGURES = 30
"""Longer ones are codes."""


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


def exact(figures: str) -> Fraction:
    """What a match of `UNSIGNED` is worth."""
    # By way of Decimal: int() refuses texts of more than 4,300 digits.
    return Fraction(Decimal(figures.replace(",", "")))


def numbers(text: str) -> list[Number]:
    """The numbers of a text in its order; dates, times, versions, addresses and telephones are none."""
    if not any(map(str.isdecimal, text)):
        return []
    masked = _NOT_NUMBERS.sub(lambda match: "x" * len(match.group()), text)
    starts = [match.start() for match in TOKEN.finditer(text)]
    result: list[Number] = []
    for match in _NUMBER.finditer(masked):
        token = max(0, bisect_left(starts, match.start() + 1) - 1)
        sign = -1 if match["sign"] else 1
        for value, decimals in _values(match):
            result.append(Number(sign * value, decimals, token, match.start(), bool(match["percent"])))
    return result


def compute(found: Sequence[Number]) -> bool:
    """Whether, within 100 tokens, one number is two others' sum, difference, product or quotient.

    A number with decimals is met by what rounds to it, a whole number or a fraction only exactly. A percentage is
    taken as written and as hundredths. Numbers that no blank parts (1;2;3) count as a token each. Only the first
    `MOST_NUMBERS` are looked at.
    """
    found = found[:MOST_NUMBERS]
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
            for (left, _), (right, _) in itertools.product(readings[a], readings[b]):
                for ratio in _results(left, right):
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
    figures = match["figures"] or re.sub(r"\s", "", match["grouped"])
    whole, _, decimals = figures.partition(".")
    is_code = len(whole) > 1 and int(whole[0]) == 0  # 007, 0301234
    return [] if is_code or len(figures) > MOST_FIGURES else [(exact(figures), len(decimals))]


Ratio = tuple[int, int]
"""An exact value as numerator and denominator, the latter above 0; not in lowest terms, which would cost most of the time."""


def _readings(number: Number) -> list[tuple[Ratio, int]]:
    above, below = number.value.as_integer_ratio()
    readings = [((above, below), number.decimals)]
    return [*readings, ((above, 100 * below), number.decimals + 2)] if number.percent else readings


def _results(first: Ratio, second: Ratio) -> list[Ratio]:
    """Sum, differences, product and quotients."""
    (a, b), (c, d) = first, second
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
