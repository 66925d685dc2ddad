"""The calculator: + - * / on decimal numbers, rounded to two decimals (paper, section 3 and appendix A.1).

    expression = term {("+" | "-") term}      term = factor {("*" | "/") factor}
    factor = "-" factor | number ["%"] | "(" expression ")" ["%"]
    number = digits with "," between thousands, and a fraction behind "."

Exact arithmetic on SymPy's rationals, from left to right; 11.4% is 0.114. Anything else gives no result. Length, digits and
depth are bounded, so that a hostile input costs no time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolformer.data import Document
from toolformer.tools.base import Result

if TYPE_CHECKING:
    from sympy import Rational

MOST_CHARACTERS = 200
MOST_DIGITS = 30
DEEPEST = 20

_TOKEN = re.compile(
    r"[ \t]*(?:((?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)(?![0-9,.])|([-+*/()%]))"
)


def calculate(expression: str) -> str:
    """The value as the paper writes it: 17, 2.87, 3.70.

    Raises:
        ValueError: there is none; the message is the reason.
    """
    if len(expression) > MOST_CHARACTERS:
        raise ValueError("expression too long")
    return show(_Parser(_tokens(expression)).value())


def show(value: Rational) -> str:
    """A number with at most two decimals, halves rounded away from zero; whole numbers without a point."""
    cents = (abs(value.p) * 200 // value.q + 1) // 2
    sign = "-" if value.p < 0 and cents else ""
    whole, part = divmod(cents, 100)
    return f"{sign}{whole}" if value.q == 1 else f"{sign}{whole}.{part:02d}"


class Calculator:
    """The calculator as a tool."""

    name = "Calculator"

    def depends_on(self, document: Document) -> str:
        """Nothing."""
        return ""

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """The value of each expression."""
        return [self._answer(text) for text in inputs]

    @staticmethod
    def _answer(text: str) -> Result:
        try:
            return Result(calculate(text))
        except ValueError as error:
            return Result(reason=str(error))


def _tokens(expression: str) -> list[str | Rational]:
    from sympy import Rational  # half a second, at the first call

    tokens: list[str | Rational] = []
    text = expression.strip(" \t")
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            raise ValueError("invalid expression")
        number, sign = match.groups()
        if number and len(number) > MOST_DIGITS:
            raise ValueError("number too long")
        tokens.append(sign if sign else Rational(number.replace(",", "")))
        position = match.end()
    if not tokens:
        raise ValueError("empty expression")
    return tokens


class _Parser:
    """Recursive descent over tokens; its depth is bounded by `DEEPEST`."""

    def __init__(self, tokens: Sequence[str | Rational]) -> None:
        self.tokens = tokens
        self.position = 0
        self.depth = 0

    def value(self) -> Rational:
        value = self._expression()
        if self.position < len(self.tokens):
            raise ValueError("invalid expression")
        return value

    def _expression(self) -> Rational:
        value = self._term()
        while (sign := self._take("+", "-")) is not None:
            other = self._term()
            value = value + other if sign == "+" else value - other
        return value

    def _term(self) -> Rational:
        value = self._factor()
        while (sign := self._take("*", "/")) is not None:
            other = self._factor()
            if sign == "/" and other == 0:
                raise ValueError("division by zero")
            value = value * other if sign == "*" else value / other
        return value

    def _factor(self) -> Rational:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError("expression too deep")
        if self._take("-") is not None:
            value = -self._factor()
        elif self._take("(") is not None:
            value = self._expression()
            if self._take(")") is None:
                raise ValueError("invalid expression")
            value = self._percent(value)
        elif self.position < len(self.tokens) and not isinstance(number := self.tokens[self.position], str):
            self.position += 1
            value = self._percent(number)
        else:
            raise ValueError("invalid expression")
        self.depth -= 1
        return value

    def _percent(self, value: Rational) -> Rational:
        return value / 100 if self._take("%") is not None else value

    def _take(self, *signs: str) -> str | None:
        if self.position < len(self.tokens):
            token = self.tokens[self.position]
            if isinstance(token, str) and token in signs:
                self.position += 1
                return token
        return None
