"""Cheap tests of executed calls before the exact scoring. Not the paper's, and off unless asked for.

Most calls are sampled where their result helps nobody. A result of which nothing occurs in the next tokens seldom
makes these likelier, and can be told from a look at the text. One that gains nothing with the last few tokens before the
call seldom gains with the whole text, whose pass is longer (`score.first_pass`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from toolformer.annotation.candidates import SCORED, Candidate
from toolformer.data.numbers import CURRENCY, SIGN, UNSIGNED, exact

NOT_AHEAD = "screened: nothing of the result occurs ahead"
NOT_NEW = "screened: the result stands in the input"
NOT_NEARBY = "screened: no gain with a short context"
_TERM = re.compile(rf"(?P<sign>{SIGN})[{CURRENCY}]?(?P<number>{UNSIGNED})|[^\W\d_]{{4,}}")


@dataclass
class Screen:
    """Which tests a call has to pass to be scored."""

    result_ahead: Annotated[int, Field(ge=1)] | None = None
    """A number of the result, or a word of four letters or more, begins within so many tokens behind the call; null:
    no such test."""
    new_result: bool = False
    """Only numbers and words count that the call's input does not hold: a result that repeats its input has none."""
    context: Annotated[int, Field(ge=1)] | None = None
    """Tokens before the call in a first pass of the model; null: no such pass."""
    context_gain: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    """Nats by which the result has to lower the loss in the first pass for the call to be scored with the whole text."""


def screen(candidates: Sequence[Candidate], rules: Screen) -> list[Candidate]:
    """The candidates; those that fail a test carry it as their status and are not scored."""
    return [
        candidate if (reason := _failed(candidate, rules)) is None else replace(candidate, status=reason)
        for candidate in candidates
    ]


def _failed(candidate: Candidate, rules: Screen) -> str | None:
    call = candidate.call
    if candidate.status != SCORED or call is None or call.result is None:
        return None
    result = _terms(call.result)
    if rules.new_result:
        result -= _terms(call.input)
        if not result:
            return NOT_NEW
    if rules.result_ahead is not None and not result & _terms(*_ahead(candidate, rules.result_ahead)):
        return NOT_AHEAD
    return None


def _ahead(candidate: Candidate, tokens: int) -> tuple[str, int]:
    """The text behind the call, and how many characters of it the next tokens take."""
    text, positions = (
        candidate.window.document.text[candidate.position :],
        candidate.window.encoding.positions,
    )
    later = [position for position in positions[candidate.token_position + tokens :] if position is not None]
    return text, (later[0] - candidate.position if later else len(text))


def _terms(text: str, within: int | None = None) -> set[str | Fraction]:
    """What each number is worth, and the words without case, that begin in the first `within` characters."""
    return {
        exact(match["number"]) * (-1 if match["sign"] else 1) if match["number"] else match.group().casefold()
        for match in _TERM.finditer(text)
        if within is None or match.start() < within
    }
