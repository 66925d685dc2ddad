"""The first number of an answer, as people and models write one: 5, -1/2, 1,234.50, 1.2 million, 3 \\times 10^4, \\frac{3}{4}.

A number is read whole or not at all. Its sign, separators, fraction, power of ten and words such as "million" belong to it. Digits
without one value (a time, a ratio, a date, a range, a version, 1,2345) are not a number, and no part of them is one.
"""

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

from toolformer.data.numbers import CURRENCY, UNSIGNED, exact

_DIGIT = re.compile(r"[^\D0-9]")
"""A digit of another script than ASCII's."""
_FORMS = {0xFF01 + n: 0x21 + n for n in range(94)} | {0x3000: " ", 0x66A: "%", 0x66B: ".", 0x66C: ","}
"""Full-width letters, digits and signs of East Asian texts, and their blank; the signs in Arabic numbers."""
DASHES = "\u02d7\u2010\u2011\u2012\u2013\u207b\u2212\u2796\ufe63"
"""Hyphens and dashes that are written for a minus; an em dash separates words."""
_SIGNS = str.maketrans({**dict.fromkeys(DASHES, "-"), "\u2044": "/", "\u2215": "/"})
_RAISED = re.compile(r"(?<=[0-9])[\u207a\u207b]?[\u00b2\u00b3\u00b9\u2070-\u2079]+")
"""An exponent in superscript digits."""
_PART = re.compile("[\u00bc-\u00be\u2150-\u215e]")
"""A fraction that is one character, such as ½."""
_MARKUP = (
    (r"(?<=[0-9])(?:\*\*|\s+\*\*\s+)(?=[-+]?[0-9])", "^"),  # Python's power
    (r"\\(?:left|right)\b\s*", ""),
    (r"\*\*|(?<![^\W_])_+(?=[-$.0-9])|\\[()\[\]]|\\(?=[$%])", ""),  # **7**, _7_, \(7\), \$7
    (r"(?<=[0-9])(?:\{,\}|\\[,;:! ])(?=[0-9]{3})", ","),  # 1{,}234 and 1\,234
    (r"\\[cdt]?frac\s*([0-9])([0-9])(?![0-9])", r"\\frac{\1}{\2}"),
    (r"(?<=[0-9])\s*\\[cdt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r" \1/\2"),
    (r"\\[cdt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"\1/\2"),
    (r"\{\s*([^{}]*?)\s*\\over\b\s*([^{}]*?)\s*\}", r"\1/\2"),
    (r"\\(?:boxed|fbox|underline|emph|text|text(?:bf|it|rm)|math(?:bf|it|rm))\s*\{([^{}]*)\}", r"\1"),
    (r"\\(?:times|cdot)\b", "×"),
)
_EN_DASH = re.compile(r"(?<=[0-9])\s*\u2013\s*(?=[0-9])")
_BULLET = re.compile(r"^[ \t]*-[ \t]+", re.MULTILINE)

_START = re.compile(
    # Not inside a word or another number (x2, B12, v1.5, COVID-19); of "...5" only the 5.
    r"(?<!\w)(?<![0-9][.,])(?<![^\W\d_][-/])(?:[0-9]|(?<!\.)\.[0-9])"
)
_SEEN = 40
"""Characters before a number in which its sign is looked for."""
_CURRENCY = re.compile(rf"(?:(?:\b[A-Z]{{1,3}})?[{CURRENCY}₹]|\b(?:Rs\.?|USD|EUR|GBP))\s?\Z")
_MONEY = re.compile(rf"[{CURRENCY}₹]\s?-?\Z")
_SIGN = re.compile(r"(?P<touching>-)\Z|(?P<apart>-\s+)\Z|(?<!\w)(?i:minus|negative)\s+\Z")
_TWO_SIGNS = re.compile(r"(?:±|∓|\+/-|-\s*\(?)\s*\Z")
_OPERAND = re.compile(r"[\w).%\]]\Z")
_ARGUMENT = re.compile(r"\\[A-Za-z]+\s*(?:\[[^\]]*\])?\s*[\[{]\s*\Z")
"""The beginning of the argument of another command of LaTeX, such as a root."""
_BLANK_BEFORE_WORD = re.compile(r"[\u00a0\u2007\u2009\u202f](?=[^\W\d_])")
_SIGN_IS_NEXT = re.compile(r"(?:\A|[:=(\[{\"'\u201c*~≈,;\n]|\b(?:is|are|was|were|be|equals?|to|of))\s*\Z")
"""The text before a minus that is a sign even with a space after it: not that of `x - 5` and `Total - 5 apples`."""

_DIGITS = re.compile(
    r"(?P<dots>(?!0)[0-9]{1,3}(?:(?:\.[0-9]{3}){2,}(?:,[0-9]+)?|(?:\.[0-9]{3})+,[0-9]+)(?![0-9]))"  # 1.234.567,5
    rf"|(?P<underscores>(?!0)[0-9]{{1,3}}(?:_[0-9]{{3}})+(?!\w))|{UNSIGNED}"
)
_FRACTION = re.compile(r"(?: (?:and )?(?P<mixed>[0-9]+))?/(?P<below>[0-9]+)(?!\.?[0-9]|/[0-9])")
_AND_A_PART = re.compile(r" and an? (half|third|quarter)\b")
_PARTS = re.compile(r"[ -](halves|thirds|fourths|fifths|sixths|sevenths|eighths|ninths|tenths)\b")
_SIZES = {
    "half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "fourths": 4, "fifths": 5, "sixths": 6, "sevenths": 7,
    "eighths": 8, "ninths": 9, "tenths": 10,
}  # fmt: skip
_POWER = re.compile(
    r"(?:[eE]|\s*(?:[×·⋅*xX]|times)\s*10\s*\^\s*\{?\s*|(?P<bare>(?<=\b10)(?<![.,]10)\s*\^\s*\{?\s*))(?P<exponent>[-+]?[0-9]+)\s*\}?(?!\w|\.[0-9])"
)
_MOST_EXPONENT = 300
"""Larger powers of ten, which would fill the memory, are not read."""
_WORDS = {"hundred": 2, "thousand": 3, "lakh": 5, "million": 6, "crore": 7, "billion": 9, "trillion": 12}
_WORD = re.compile(rf"[ -]?({'|'.join(_WORDS)})s?\b", re.IGNORECASE)
_LETTERS = {"k": 3, "K": 3, "M": 6, "mn": 6, "B": 9, "bn": 9}
_LETTER = re.compile(rf"({'|'.join(_LETTERS)})(?![^\W_])")
_MILLIONS_OF_MONEY = re.compile(r" ?m(?![^\W_])")
_UNITS = "one|two|three|four|five|six|seven|eight|nine"
_ANOTHER = re.compile(
    r"(?:(?: and)? [0-9]|,? (?:and )?[0-9]+ (?:hundred|thousand|million)\b"
    rf"|,?[ -](?:and )?(?:{_UNITS}|ten|eleven|twelve|\w+teen|\w+ty)\b)"
)
"""Words that continue a number: 2 million 500 thousand, 2 thousand five hundred."""
_UNREAD = re.compile(
    # What goes on as 1,2345 and 3,5; a date or a division; a time or ratio; 5'6; 5^2 and 5±1; a date; 1_00; 4c2; 10 k.
    r"[.,][0-9]|/-?[0-9]|:[0-9]| : [0-9]|['`\u00b4\u2018\u2019\u2032][0-9]|\s*(?:\^|±|\+/-)|-[0-9]+[-/][0-9]|_[0-9]|[eE][-+][0-9]"
    r"|(?![xX])[^\W\d_]+[0-9]| [kK](?!\w)| E ?[0-9]|E [0-9]"
    # 10..12 and 10 ~ 12; 5 squared; 5 and three quarters; 5 point 3.
    r"|(?:\.{2,3}|\u2026)[0-9]|\s?[~\u301c]\s?[0-9]|\s+(?:squared|cubed|to the (?:\w+ )?power)\b"
    rf"|[ -]and[ -](?:(?:an?|{_UNITS})[ -](?:half|thirds?|quarters?|fourths?|{'|'.join(_SIZES)})\b|half\b(?! of| the))"
    rf"| point (?:[0-9]|oh\b|zero\b|(?:{_UNITS})\b)"
    # A root, a function or a constant of LaTeX; sizes that are not read; thousandths.
    r"|\s?\\(?:sqrt|pi|log|ln|exp|sin|cos|tan|binom)\b| ?(?:[Mm]io|[Mm]rd|mil)\b| ?[a-z]+(?:dred|sand|llion)ths?\b"
)
_BLANK_GROUP = re.compile(r" [0-9]{3}(?![0-9])")
_RANGE = re.compile(rf"(?: ?(?:%|[^\W\d_]{{1,3}}))?(?P<join>-|\s+to\s+|-to-)[{CURRENCY}₹]?(?=\.?[0-9])")
_BETWEEN = re.compile(rf"\s+and\s+[{CURRENCY}₹]?[0-9]")


@dataclass(frozen=True)
class Numeral:
    """A number in a text."""

    value: Fraction
    """A fraction that divides evenly, or by zero, counts as an unsolved division: the value of 10/2 is 10."""
    divided: Fraction | None
    """The value with its fraction divided: that of 10/2 is 5; None for a division by zero."""
    start: int
    end: int

    def __neg__(self) -> "Numeral":
        return Numeral(-self.value, None if self.divided is None else -self.divided, self.start, self.end)


def plain(text: str) -> str:
    """A text with ASCII's digits for those of any script, and with plain forms for full-width ones."""
    return _DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text.translate(_FORMS))


def in_ascii(text: str) -> str:
    """A text whose numbers are written in ASCII: ½ is 1/2, 10⁴ is 10^4, \\frac{1}{2} is 1/2, without marks of Markdown and bullets."""
    text = "".join(char for char in text if unicodedata.category(char) != "Cf")
    text = _BLANK_BEFORE_WORD.sub(" ", text)
    text = _RAISED.sub(lambda power: f"^{unicodedata.normalize('NFKC', power[0])}", plain(text))
    text = _EN_DASH.sub("-", text)  # of a range; a hyphen between spaces subtracts
    text = re.sub(rf"(?<=[0-9])(?={_PART.pattern})", " ", text)
    text = _PART.sub(lambda part: unicodedata.normalize("NFKC", part[0]), text).translate(_SIGNS)
    for form, replacement in _MARKUP:
        text = re.sub(form, replacement, text)
    return _BULLET.sub("", text) if len(_BULLET.findall(text)) > 1 else text


def first_numeral(text: str) -> Numeral | None:
    """The first number in a text of `in_ascii`; None if there is none, or if its first digits have no one value."""
    found = _START.search(text)
    if found is None:
        return None
    before = text[max(0, found.start() - _SEEN) : found.start()]
    if _ARGUMENT.search(before.removesuffix("-")):
        return None
    sign, numeral = _sign(before), _unsigned(text, found.start(), is_money=bool(_MONEY.search(before)))
    if numeral is None or sign is None:
        return None
    if re.search(r"\bbetween\s+\Z", _CURRENCY.sub("", before)) and _BETWEEN.match(text, numeral.end):
        return None
    return -numeral if sign < 0 else numeral


def whole_numeral(text: str) -> tuple[Numeral, str] | None:
    """The number that a text of `in_ascii` begins with, a currency or sign before it included, and the rest of the text."""
    numeral = first_numeral(text)
    if numeral is None:
        return None
    before = _CURRENCY.sub("", _SIGN.sub("", _CURRENCY.sub("", text[: numeral.start])))
    return None if before.strip() else (numeral, text[numeral.end :])


def _sign(before: str) -> int | None:
    """1 or -1 of a number after this text, or None where that is uncertain."""
    rest = _CURRENCY.sub("", before)
    sign = _SIGN.search(rest)
    if sign is None:
        return None if _TWO_SIGNS.search(rest) else 1
    rest = _CURRENCY.sub("", rest[: sign.start()])
    if _TWO_SIGNS.search(rest):
        return None
    if sign["touching"]:
        return 1 if _OPERAND.search(rest) else -1
    return None if sign["apart"] and not _SIGN_IS_NEXT.search(rest) else -1


def _unsigned(text: str, start: int, is_money: bool) -> Numeral | None:
    """The number without a sign at a position; None if the digits there have no one value."""
    digits = _DIGITS.match(text, start)
    if digits is None or (digits[0] == "0" and re.match(r"[xX]\w", text[digits.end() :])):
        return None
    value, end = _value(digits), digits.end()
    divided: Fraction | None = value
    if part := _FRACTION.match(text, end):
        value, divided = _with_fraction(value, part["mixed"], int(part["below"]))
    elif part := _AND_A_PART.match(text, end):
        value = divided = value + Fraction(1, _SIZES[part[1]])
    elif part := _PARTS.match(text, end):
        value = divided = value / _SIZES[part[1]]
    elif part := _POWER.match(text, end):
        exponent = int(part["exponent"])
        if abs(exponent) > _MOST_EXPONENT:
            return None
        value = divided = (1 if part["bare"] else value) * Fraction(10) ** exponent
    elif re.fullmatch("[1-9][0-9]{0,2}", digits[0]) and _BLANK_GROUP.match(text, end):
        return None
    exponent, end = _words(text, part.end() if part else end, is_money)
    if (exponent and _ANOTHER.match(text, end)) or _UNREAD.match(text, end) or _is_range(text, value, end):
        return None
    scale = 10**exponent
    return Numeral(value * scale, None if divided is None else divided * scale, start, end)


def _value(digits: re.Match[str]) -> Fraction:
    if digits["dots"]:
        return exact(digits[0].replace(".", "").replace(",", "."))
    return exact(digits[0].replace("_", ""))


def _with_fraction(value: Fraction, mixed: str | None, below: int) -> tuple[Fraction, Fraction | None]:
    """The value of a number with its fraction, which counts if it does not divide evenly; and with the fraction in any case."""
    if not below:
        return value, None
    fraction = Fraction(int(mixed) if mixed else value) / below
    divided = value + fraction if mixed else fraction
    return divided if fraction.denominator > 1 else value, divided


def _words(text: str, end: int, is_money: bool) -> tuple[int, int]:
    """The power of ten that words or a letter after a number stand for, and where they end."""
    exponent = 0
    while word := _WORD.match(text, end):
        exponent, end = exponent + _WORDS[word[1].lower()], word.end()
    if exponent:
        return exponent, end
    if letter := _LETTER.match(text, end):
        return _LETTERS[letter[1]], letter.end()
    if is_money and (letter := _MILLIONS_OF_MONEY.match(text, end)):
        return 6, letter.end()
    return 0, end


def _is_range(text: str, value: Fraction, end: int) -> bool:
    """Whether a number is the first of a range: 3-5 and 3 to 5, but not the subtraction 5-3."""
    if (join := _RANGE.match(text, end)) is None or (digits := _DIGITS.match(text, join.end())) is None:
        return False
    last = _unsigned(text, join.end(), is_money=False)
    return "to" in join["join"] or (last.value if last else _value(digits)) > value
