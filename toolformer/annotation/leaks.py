"""Leaks: what a call holds although it appears only after the call's place.

The prompt shows the model the whole text (paper, appendix A.2), so a sampled call may name what comes later:
"It will take her [Calculator(120 / 24) -> 5] 120/24 = 5 hours". At inference the model has not read that yet. The paper
has a rule for translation alone (`select.looks_ahead`).
"""

import re
from collections.abc import Iterator
from fractions import Fraction

from toolformer.data.numbers import UNSIGNED, exact

_NUMBER = re.compile(rf"(?<![\w.,]){UNSIGNED}(?!\w)")
_WORD = re.compile(r"[^\W\d_]{2,}")
_SENTENCE_START = re.compile(r"(?:^|[.!?:…]|\n)[\s\"'“”‘’()\[\]*_-]*\Z")
_FUNCTION_WORDS = frozenset(
    "a about after all also although an and any are as at be because been before both but by can could did do does during "
    "each every few for from had has have he her here his how however i if in into is it its just many may more most much "
    "my no not now of on once one only or other our over she should since so some such than that the their them then there "
    "these they this those through to under until up was we were what when where which while who whose why will with would "
    "you your".split()
)
"""Words that begin sentences and titles with a capital letter and name nothing."""


def leaked(text: str, position: int, call_input: str) -> tuple[str, ...]:
    """The numbers and names of a call's input that occur in `text` only from character `position` on.

    Numbers are compared by value. A name is a word that the text after the call writes with a capital letter; at the start
    of a sentence only if the input does so too.
    """
    before, after = text[:position], text[position:]
    written = {match.group(): _value(match) for match in _NUMBER.finditer(call_input)}
    words = {word: word.casefold() for word in _WORD.findall(call_input)}
    later = {_value(match) for match in _NUMBER.finditer(after)} if written else set()
    later -= {_value(match) for match in _NUMBER.finditer(before)} if later else set()
    names = set(_names(text, position, words)) if words else set()
    names -= {word.casefold() for word in _WORD.findall(before)} if names else set()
    found = [number for number, value in written.items() if value in later]
    return (*found, *(word for word, folded in words.items() if folded in names))


def _names(text: str, position: int, words: dict[str, str]) -> Iterator[str]:
    """The casefolded `words` that the text has as names from `position` on."""
    folded = set(words.values())
    capitalised = {folded for word, folded in words.items() if word[0].isupper()}
    for match in _WORD.finditer(text, position):
        word = match.group().casefold()
        if match.group()[0].isupper() and word in folded and word not in _FUNCTION_WORDS:
            starts_sentence = _SENTENCE_START.search(text[max(0, match.start() - 10) : match.start()])
            if not starts_sentence or word in capitalised:
                yield word


def _value(match: re.Match[str]) -> Fraction:
    return exact(match.group())
