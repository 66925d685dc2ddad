"""The calculator: + - * / on decimal numbers, rounded to two decimals (paper, section 3 and appendix A.1).

    expression = term {("+" | "-") term}      term = factor {("*" | "/") factor}
    factor = "-" factor | number ["%"] | "(" expression ")" ["%"]
    number = digits, in groups or not, and a fraction after "." (`data.numbers`)

Exact arithmetic on SymPy's rationals, from left to right; 11.4% is 0.114. − × ÷ are read as - * /, and currency signs as
blanks. Anything else gives no result. Length, digits and depth are bounded, so that a hostile input costs no time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolformer.data import Document
from toolformer.data.numbers import CURRENCY, UNSIGNED, ungrouped
from toolformer.tools.base import ClosedTool, Result

if TYPE_CHECKING:
    from sympy import Rational

MOST_CHARACTERS = 200
MOST_DIGITS = 30
DEEPEST = 20

_TOKEN = re.compile(rf"[ \t]*(?:({UNSIGNED})(?![0-9,.])|([-+*/()%]))", re.ASCII)
_SIGNS = str.maketrans({"−": "-", "×": "*", "÷": "/", **dict.fromkeys(CURRENCY, " ")})
_TIMES = re.compile(r"[ \t]*[xX][ \t]*[-(.0-9]")
"""Where a sign is expected: 3 x 4, as the paper's prompt has it in the text but not in the call."""


def calculate(expression: str) -> str:
    """The value as the paper writes it: 17, 2.87, 3.70. ValueError if there is none; the message is the reason."""
    if len(expression) > MOST_CHARACTERS:
        raise ValueError("expression too long")
    tokens = _tokens(expression)[::-1]
    if not tokens:
        raise ValueError("empty expression")
    value = _expression(tokens, 1)
    if tokens:
        raise ValueError("invalid expression")
    return format_number(value)


def format_number(value: Rational) -> str:
    """A number with at most two decimals, halves rounded away from zero; whole numbers without a point."""
    cents = (abs(value.p) * 200 // value.q + 1) // 2
    sign = "-" if value.p < 0 and cents else ""
    whole, part = divmod(cents, 100)
    return f"{sign}{whole}" if value.q == 1 else f"{sign}{whole}.{part:02d}"


class Calculator(ClosedTool):
    """The calculator as a tool."""

    name = "Calculator"
    VERSION = 2
    benchmarks = ("arithmetic", "math")
    is_exact = True
    is_quick = True
    examples = (
        "The bakery sold 48 rolls in the morning and 37 in the afternoon, which makes [Calculator(48 + 37) -> 85] 85 rolls that day.",
        "Of the 230 seats in the theatre 64 stayed empty, so the play was seen by [Calculator(230 - 64) -> 166] 166 people.",
        "A crate holds 24 bottles. How many bottles are there in 15 crates? The answer is [Calculator(24 * 15) -> 360] 360.",
        "A train that covers 345 km in 4 hours has an average speed of [Calculator(345 / 4) -> 86.25] 86.25 km an hour.",
    )

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """The value of each expression."""
        return [self._answer(text) for text in inputs]

    @staticmethod
    def _answer(text: str) -> Result:
        try:
            return Result(calculate(text))
        except ValueError as error:
            return Result(reason=str(error))


def _tokens(expression: str) -> list[str]:
    tokens: list[str] = []
    text = expression.translate(_SIGNS).strip(" \t")
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            is_times = tokens and tokens[-1][-1] in "0123456789%)" and _TIMES.match(text, position)
            raise ValueError("times written as x" if is_times else "invalid expression")
        if match[1] and len(match[1]) > MOST_DIGITS:
            raise ValueError("number too long")
        tokens.append(match[1] or match[2])
        position = match.end()
    return tokens


# Recursive descent; the tokens are in reverse order, and each function pops what it reads.


def _expression(tokens: list[str], depth: int) -> Rational:
    value = _term(tokens, depth)
    while tokens and tokens[-1] in ("+", "-"):
        sign = tokens.pop()
        other = _term(tokens, depth)
        value = value + other if sign == "+" else value - other
    return value


def _term(tokens: list[str], depth: int) -> Rational:
    value = _factor(tokens, depth)
    while tokens and tokens[-1] in ("*", "/"):
        sign = tokens.pop()
        other = _factor(tokens, depth)
        if sign == "/" and other == 0:
            raise ValueError("division by zero")
        value = value * other if sign == "*" else value / other
    return value


def _factor(tokens: list[str], depth: int) -> Rational:
    from sympy import Rational  # half a second, at the first call

    if depth > DEEPEST:
        raise ValueError("expression too deep")
    token = tokens.pop() if tokens else ""
    if token == "-":
        return -_factor(tokens, depth + 1)
    if token == "(":
        value = _expression(tokens, depth + 1)
        if not tokens or tokens.pop() != ")":
            raise ValueError("invalid expression")
    elif token[-1:].isdigit():
        value = Rational(ungrouped(token))
    else:
        raise ValueError("invalid expression")
    if tokens and tokens[-1] == "%":
        tokens.pop()
        value /= 100
    return value
