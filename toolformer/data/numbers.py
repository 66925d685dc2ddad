"""The numbers in a text: their positions and exact values.

`UNSIGNED` is how a number is written, wherever one is read: in texts, in answers and in the calculator's input. `numbers` and
`compute` are the calculator's heuristics (paper, appendix A.1), which choose texts to sample calls for. The paper does not
define numbers: when in doubt, digits are not one. docs/method.md has the rules.
"""

import itertools
import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from toolformer.data.url_date import MONTH

WINDOW = 100
"""Tokens within which three numbers count as a computation."""

MOST_NUMBERS = 300
"""Numbers of a text that are searched for a computation: each costs milliseconds, and ordinary texts need fewer."""

# Scripts written without blanks: Thai, Lao, Myanmar, Khmer, kana, Han. Each character is a token.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
TOKEN = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")
"""The heuristics' tokens, independent of any model: words, or characters of a script without blanks."""

_SEPARATORS = ",\u00a0\u2007\u2009\u202f'\u2019"
"""Between groups of thousands: a comma, blanks that do not break a line (an ordinary one does not group: 7 120), apostrophes."""
_GROUPS = "|".join(rf"(?!0)\d{{1,3}}(?:{separator}\d{{3}})+" for separator in _SEPARATORS)
GROUPED = rf"(?:(?:{_GROUPS}|(?!0)\d{{1,2}}(?:,\d{{2}})+,\d{{3}})(?!\d)(?:\.\d+)?)"
"""Pattern of a number in groups, without a sign: 1,234.5, 1'234, and India's 1,00,000."""
UNSIGNED = rf"(?:{GROUPED}|\d+(?:\.\d+)?|\.\d+)"
"""Pattern of a number without a sign: 1234, 1,234.5, .5; `exact` has its value."""

CURRENCY = "$€£¥"
"""Signs that may come before or after a number."""

SIGN = rf"(?:(?<![\w)\]%])[-−](?=[{CURRENCY}.\d]))?"
"""Pattern of a sign, before number and currency: the minus of -3 and -$3, not that of 4-3."""

_WORD = rf"[^\W{_UNSPACED}]"  # a letter, digit or underscore that must not touch a number
_LETTER = rf"[^\W\d_{_UNSPACED}]"
_MONTH = rf"(?=[A-Z])(?i:{MONTH})\b\.?"  # capitalised, since people march
_DAY = r"\d{1,2}(?:st|nd|rd|th)?(?:\s?[-–]\s?\d{1,2}(?:st|nd|rd|th)?)?"  # or days: 14-16
_NOT_NUMBERS = re.compile(
    "|".join(
        (
            r"\b(?:https?://|www\.)\S+",
            r"(?<!\S)[^\s@]+@[^\s@]+",
            # Dates and times in digits.
            r"(?<!\d)\d{4}([-/.])\d{1,2}\1\d{1,2}(?:T\d{1,2}(?::\d{2})*(?:\.\d+)?Z?)?(?!\d)",
            r"(?<![\d.])\d{1,2}([-/.])\d{1,2}\2(?:\d{4}|\d{2})(?![\d]|\.\d)",
            r"(?<![\d/.,-])(?:0?[1-9]|1[0-2])/(?:19|20)\d{2}(?![\d/])|(?<![\d/.,-])(?:19|20)\d{2}[-/]0[1-9](?![\d/-])",
            r"(?<!\d)\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?!\d)",
            r"(?<![\w.,])\d{1,2}(?:\.\d{2})?\s?[aApP](?:\.[mM]\.|[mM]\b)",
            # Dates in words.
            rf"(?<![\w.,])(?:{_DAY}\.?\s+(?:of\s+)?{_MONTH}(?:,?\s+\d{{4}}\b)?"
            rf"|\b{_MONTH}\s+{_DAY}(?!\d|[.,/:]\d|\w)(?:,?\s+\d{{4}}\b)?|\b{_MONTH},?\s+(?:of\s+)?\d{{4}}\b)",
            # Telephone numbers, and codes of three or more parts: cards, versions, addresses.
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
    rf"|(?P<digits>{UNSIGNED})"
)
_NUMBER = re.compile(
    rf"(?<!{_WORD})(?<![.,])(?<!{_LETTER}[-–−])(?:(?<![\d)\]%])(?P<sign>[-−])(?=[{CURRENCY}.\d]))?[{CURRENCY}]?"
    rf"(?<![\d.,])(?:{_BODY})(?![.,]?\d)(?:(?={_UNIT})|(?!{_WORD}))(?P<percent>\s?%)?"
)
_UNGROUPED = str.maketrans("", "", _SEPARATORS)
MOST_DIGITS = 30
"""Digits; longer ones are codes."""


@dataclass(frozen=True)
class Number:
    """A number in a text."""

    value: Fraction
    """As written: 3.5 for 3.5 %."""
    decimals: int
    """Digits after the decimal point."""
    token: int
    """Index of its word."""
    start: int
    """Character offset, sign and currency included."""
    percent: bool = False


def exact(digits: str) -> Fraction:
    """The value of a match of `UNSIGNED`."""
    # Via Decimal: int() refuses texts of more than 4,300 digits.
    return Fraction(Decimal(ungrouped(digits)))


def ungrouped(digits: str) -> str:
    """A match of `UNSIGNED` without the separators of its groups: digits and at most one point."""
    return digits.translate(_UNGROUPED)


def numbers(text: str) -> list[Number]:
    """The numbers of a text in order, without dates, times, versions, addresses and telephone numbers."""
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
    taken as written and as hundredths. Numbers without blanks between them (1;2;3) count as a token each. Only the first
    `MOST_NUMBERS` are looked at.
    """
    found = found[:MOST_NUMBERS]
    readings = [_readings(number) for number in found]
    by_value: dict[tuple[int, int, int], list[int]] = {}
    for n, number_readings in enumerate(readings):
        for ratio, decimals in number_readings:
            by_value.setdefault(_written(ratio, decimals), []).append(n)
    all_decimals = {decimals for decimals, _, _ in by_value}
    return any(
        _has_third(found, a, b, equal)
        for a, b in _pairs(found)
        for (left, _), (right, _) in itertools.product(readings[a], readings[b])
        for ratio in _results(left, right)
        for decimals in all_decimals
        if (equal := by_value.get(_written(ratio, decimals)))
    )


def _pairs(found: Sequence[Number]) -> Iterator[tuple[int, int]]:
    """The indices of two numbers within a window, the first one first."""
    for a, first in enumerate(found):
        for b in range(a + 1, min(a + WINDOW, len(found))):
            if found[b].token - first.token >= WINDOW:
                break
            yield a, b


def _has_third(found: Sequence[Number], a: int, b: int, equal: Sequence[int]) -> bool:
    """Whether one of the numbers `equal`, in order, is neither a nor b, and in one window with both."""
    begin = bisect_left(equal, b - WINDOW + 1)
    begin = bisect_left(equal, found[b].token - WINDOW + 1, begin, key=lambda c: found[c].token)
    for c in itertools.islice(equal, begin, None):
        if found[c].token - found[a].token >= WINDOW or c - a >= WINDOW:
            return False
        if c not in (a, b):
            return True
    return False


def _values(match: re.Match[str]) -> list[tuple[Fraction, int]]:
    """(value, decimals) of a match: two if the slash divides, none for a code."""
    if match["below"]:
        below = int(match["below"])
        return [(int(match["whole"]) + Fraction(int(match["above"]), below), 0)] if below else []
    if match["upper"]:
        upper, lower = int(match["upper"]), int(match["lower"])
        # 1/2 is a fraction, 6/3 a division of two numbers.
        return (
            [(Fraction(upper, lower), 0)] if upper < lower else [(Fraction(upper), 0), (Fraction(lower), 0)]
        )
    digits = ungrouped(match["digits"])
    whole, _, decimals = digits.partition(".")
    is_code = len(whole) > 1 and int(whole[0]) == 0  # 007, 0301234
    return [] if is_code or len(digits) > MOST_DIGITS else [(exact(digits), len(decimals))]


Ratio = tuple[int, int]
"""Numerator and denominator, the latter above 0; not in lowest terms, which would take most of the time."""


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
    """A ratio rounded to the decimals, halves away from zero; without decimals the exact value."""
    above, below = ratio
    if not decimals:
        common = math.gcd(above, below)
        return 0, above // common, below // common
    size = (2 * abs(above) * 10**decimals + below) // (2 * below)
    return decimals, size if above >= 0 else -size, 1
