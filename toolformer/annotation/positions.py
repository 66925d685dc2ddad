"""Which positions of a text may be tried: the rules that `places` chooses from. A new rule is an entry of `POSITIONS`.

The paper tries all of them; the others are for models too small to find the right ones.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from toolformer.annotation.windows import Window
from toolformer.data.numbers import CURRENCY, SIGN, UNSIGNED

NUMBER_AHEAD = 3
"""Tokens within which a number counts as right ahead: a blank and a currency sign may be separate tokens."""
_EQUALS = re.compile(rf"=\s*(?:[{CURRENCY}]\s*)?(?={SIGN}[{CURRENCY}]?{UNSIGNED})")
_CAPITALISED = r"[A-ZÀ-ÖØ-Þ]\w*"
_NAME = re.compile(rf"(?<!\w){_CAPITALISED}(?:[ -]{_CAPITALISED})*|(?<![\w.,]){UNSIGNED}")


def equals_spans(text: str) -> list[tuple[int, int]]:
    """From each equals sign that a number follows to the number: the characters before which a call is after it, ends included."""
    return [(match.start() + 1, match.end()) for match in _EQUALS.finditer(text)]


def name_spans(text: str) -> list[tuple[int, int]]:
    """Likewise before each number and each run of capitalised words: the blank before it, and its first character."""
    return [(max(0, match.start() - 1), match.start()) for match in _NAME.finditer(text)]


def _before_numbers(window: Window) -> list[int | None]:
    """None where no number begins within the next `NUMBER_AHEAD` tokens."""
    starts = [match.start() for match in re.finditer(UNSIGNED, window.document.text)]
    # The latest beginning of each token of the document, from its end on.
    begins = [len(window.document.text)]
    for position in reversed(window.encoding.positions):
        begins.append(begins[-1] if position is None else position)
    begins = begins[:0:-1] + begins[:1] * NUMBER_AHEAD
    return [
        position
        if position is not None
        and bisect_left(starts, position) < bisect_left(starts, begins[i + NUMBER_AHEAD])
        else None
        for i, position in enumerate(window.positions, window.start)
    ]


def _after_equals(window: Window) -> list[int | None]:
    """None except for the first position after each equals sign that a number follows."""
    return _first_of_each(window, equals_spans(window.document.text))


def _before_names(window: Window) -> list[int | None]:
    """None except for the first position before each number and each run of capitalised words."""
    return _first_of_each(window, name_spans(window.document.text))


def _first_of_each(window: Window, spans: Iterable[tuple[int, int]]) -> list[int | None]:
    """None except for the first position in each span, ends included.

    One per span: otherwise a call before a blank and another after it would be adjacent.
    """
    allowed: set[int] = set()
    for start, end in spans:
        within = (p for p in window.positions if p is not None and start <= p <= end)
        allowed.update(itertools.islice(within, 1))
    return [position if position in allowed else None for position in window.positions]


POSITIONS: dict[str, Callable[[Window], Sequence[int | None]]] = {
    "any": lambda window: window.positions,
    "number": _before_numbers,
    "equals": _after_equals,
    "name": _before_names,
}
"""By name, the positions of a window: the character before which a call would go for each token, None where none may go."""
