"""Step 0: which texts are tried for which tool (paper, appendix A.1).

A decision is the spans of the text to annotate, or a reason; reasons are counted by the caller. "Tokens" of the
heuristics are words, and single characters in scripts without blanks: they do not depend on a model.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from toolformer.documents import Document

Identify = Callable[[str], tuple[str, float]]

_TOKEN = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\u0e00-\u0e7f]|[^\s\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\u0e00-\u0e7f]+"
)
_DATE = re.compile(r"\b\d{1,4}([/.\-])\d{1,2}\1\d{1,4}\b|\b\d{1,2}:\d{2}\b")
_NUMBER = re.compile(r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w]|[.,]\d)")
_CUE = re.compile(
    r"(?:=|\bequals\b|\bequal to\b|\btotal of\b|\baverage of\b)\s*(?:about |around |only |exactly )?[$€£]?\s*-?\d",
    re.I,
)
_LETTER = re.compile(r"[^\W\d_]")

WINDOW = 100
CHUNK = 10
CONFIDENCE = 0.8


@dataclass(frozen=True)
class Decision:
    """The character spans to annotate; none and a reason when the text is not tried."""

    spans: tuple[tuple[int, int], ...] = ()
    reason: str = "selected"

    def __bool__(self) -> bool:
        return bool(self.spans)


@dataclass(frozen=True)
class Number:
    """A number as it stands in a text."""

    value: Fraction
    decimals: int
    token: int
    """Index of the word it stands in."""


def whole(document: Document) -> Decision:
    """The whole text; only an empty one is refused."""
    if not document.text.strip():
        return Decision(reason="empty text")
    return Decision(((0, len(document.text)),))


def calculator(document: Document, seed: int = 0, share: float = 0.01) -> Decision:
    """Texts with numbers that compute, with a cue for one, or a random 1 % of those with three numbers."""
    found = numbers(document.text)
    if len(found) >= 3 and _computes(found):
        return Decision(((0, len(document.text)),), "numbers that compute")
    if _CUE.search(document.text):
        return Decision(((0, len(document.text)),), "a cue before a number")
    if len(found) < 3:
        return Decision(reason="fewer than three numbers")
    digest = hashlib.sha256(f"{seed}|{document.doc_id}|three numbers".encode()).digest()
    if int.from_bytes(digest[:8], "big") / 2**64 < share:
        return Decision(((0, len(document.text)),), "three numbers, drawn")
    return Decision(reason="three numbers, not drawn")


def calendar(document: Document) -> Decision:
    """Texts whose date is known."""
    return whole(document) if document.date else Decision(reason="no date in the URL")


def translation(document: Document, identify: Identify) -> Decision:
    """Paragraphs with a chunk of ten tokens in another language, English before and after it."""
    spans = [
        (match.start(), match.end())
        for match in re.finditer(r"[^\n]+(?:\n(?!\s*\n)[^\n]+)*", document.text)
        if _has_foreign_middle(match.group(), identify)
    ]
    return Decision(tuple(spans)) if spans else Decision(reason="no foreign passage between English")


def numbers(text: str) -> list[Number]:
    """The numbers of a text with the word each stands in; dates and times of day are none."""
    masked = _DATE.sub(lambda match: "x" * len(match.group()), text)
    starts = [match.start() for match in _TOKEN.finditer(text)]
    found: list[Number] = []
    token = 0
    for match in _NUMBER.finditer(masked):
        while token + 1 < len(starts) and starts[token + 1] <= match.start():
            token += 1
        digits = match.group().replace(",", "")
        if len(digits) <= 30:
            found.append(Number(Fraction(digits), len(digits.partition(".")[2]), token))
    return found


def _computes(found: list[Number]) -> bool:
    """Whether, within 100 tokens, one number is another two's sum, difference, product or quotient."""
    for first in range(len(found)):
        near = [number for number in found[first:] if number.token - found[first].token < WINDOW][:40]
        for a, b in itertools.combinations(range(len(near)), 2):
            wanted = _results(near[a].value, near[b].value)
            for c, number in enumerate(near):
                if c not in (a, b) and any(
                    _rounded(value, number.decimals) == number.value for value in wanted
                ):
                    return True
    return False


def _results(a: Fraction, b: Fraction) -> list[Fraction]:
    results = [a + b, a - b, b - a, a * b]
    return results + ([a / b] if b else []) + ([b / a] if a else [])


def _rounded(value: Fraction, decimals: int) -> Fraction:
    """As a text would write it: rounded to the decimals that it shows, if it shows any."""
    if not decimals:
        return value
    scale = 10**decimals
    return Fraction((value * scale * 2 + 1) // 2, scale)


def _has_foreign_middle(paragraph: str, identify: Identify) -> bool:
    tokens = [(match.start(), match.end()) for match in _TOKEN.finditer(paragraph)]
    if len(tokens) < CHUNK + 2:
        return False
    labels = [
        _label(paragraph[tokens[n][0] : tokens[n + CHUNK - 1][1]], identify)
        for n in range(len(tokens) - CHUNK + 1)
    ]
    for n, label in enumerate(labels):
        if label not in (None, "en") and _english(paragraph, tokens, labels, 0, n, identify):
            if _english(paragraph, tokens, labels, n + CHUNK, len(tokens), identify):
                return True
    return False


def _english(
    paragraph: str,
    tokens: list[tuple[int, int]],
    labels: list[str | None],
    start: int,
    end: int,
    identify: Identify,
) -> bool:
    """Whether tokens [start, end) hold an English chunk; at a paragraph's edge a shorter one will do."""
    if end - start >= CHUNK:
        return any(label == "en" for label in labels[start : end - CHUNK + 1])
    if end - start < 2:
        return False
    return identify(paragraph[tokens[start][0] : tokens[end - 1][1]])[0] == "en"


def _label(chunk: str, identify: Identify) -> str | None:
    """The chunk's language; None for digits and symbols, and for a foreign language without confidence."""
    if len(_LETTER.findall(chunk)) < CHUNK:
        return None
    language, confidence = identify(chunk)
    return language if language == "en" or confidence > CONFIDENCE else None


def looks_ahead(text: str, position: int, call_input: str) -> bool:
    """Whether a translation's input stands after the call but not before it: at inference it could not be known."""
    return call_input in text[position:] and call_input not in text[:position]
