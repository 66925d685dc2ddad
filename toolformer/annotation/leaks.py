"""Leaks: what a call holds although the text has it only after the call's position.

The prompt shows the model the whole text (paper, appendix A.2), so a sampled call may name what comes later:
"It will take her [Calculator(120 / 24) -> 5] 120/24 = 5 hours". At inference the model has not read that yet. The paper
has a rule for translation alone (`select.looks_ahead`).
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from toolformer.data.numbers import CURRENCY, SIGN, UNSIGNED, exact

_NUMBER = re.compile(rf"(?<![\w.,]){UNSIGNED}(?!\w)")
_WORD = re.compile(r"[^\W\d_]{2,}")
_TERM = re.compile(rf"(?P<sign>{SIGN})[{CURRENCY}]?(?P<number>{UNSIGNED})|[^\W\d_]{{4,}}")
_SENTENCE_START = re.compile(r"(?:^|[.!?:…]|\n)[\s\"'“”‘’()\[\]*_-]*\Z")
_FUNCTION_WORDS = frozenset(
    "a about after all also although an and any are as at be because been before both but by can could did do does during "
    "each every few for from had has have he her here his how however i if in into is it its just many may more most much "
    "my no not now of on once one only or other our over she should since so some such than that the their them then there "
    "these they this those through to under until up was we were what when where which while who whose why will with would "
    "you your".split()
)
"""Words that begin sentences and titles with a capital letter and name nothing."""


@dataclass(frozen=True)
class Terms:
    """The numbers and words of a text, found once, whatever the calls in it."""

    text: str

    def leaked(self, position: int, call_input: str) -> tuple[str, ...]:
        """The numbers and names of a call's input that occur in the text, but not completely before character `position`.

        Numbers are compared by value. A name is a word that the text writes with a capital letter; at the start of a sentence
        only if the input does so too.
        """
        numbers = {match.group(): exact(match.group()) for match in _NUMBER.finditer(call_input)}
        words = {word: word.casefold() for word in _WORD.findall(call_input)}
        capitalised = {folded for word, folded in words.items() if word[0].isupper()}

        def is_name(word: str) -> bool:
            return word in self._names or word in capitalised and word in self._sentence_starts

        return (
            *(number for number, value in numbers.items() if self._numbers.get(value, position) > position),
            *(
                w
                for w, folded in words.items()
                if self._words.get(folded, position) > position and is_name(folded)
            ),
        )

    @cached_property
    def _numbers(self) -> dict[Fraction, int]:
        """Where each number ends for the first time."""
        ends: dict[Fraction, int] = {}
        for match in _NUMBER.finditer(self.text):
            ends.setdefault(exact(match.group()), match.end())
        return ends

    @cached_property
    def _words(self) -> dict[str, int]:
        """Where each casefolded word ends for the first time."""
        ends: dict[str, int] = {}
        for match in _WORD.finditer(self.text):
            ends.setdefault(match.group().casefold(), match.end())
        return ends

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(word for word, starts_sentence in self._capitalised if not starts_sentence)

    @cached_property
    def _sentence_starts(self) -> frozenset[str]:
        return frozenset(word for word, starts_sentence in self._capitalised if starts_sentence)

    @cached_property
    def _capitalised(self) -> list[tuple[str, bool]]:
        """The casefolded words with a capital letter that may be names, each with whether it begins a sentence."""
        found = (
            (match.group().casefold(), match)
            for match in _WORD.finditer(self.text)
            if match.group()[0].isupper()
        )
        return [
            (word, bool(_SENTENCE_START.search(self.text[max(0, match.start() - 10) : match.start()])))
            for word, match in found
            if word not in _FUNCTION_WORDS
        ]


def terms(text: str, within: int | None = None) -> set[str | Fraction]:
    """The values of the numbers and the casefolded words that begin in the first `within` characters."""
    return {
        exact(match["number"]) * (-1 if match["sign"] else 1) if match["number"] else match.group().casefold()
        for match in _TERM.finditer(text)
        if within is None or match.start() < within
    }
