"""Step 0: which texts are tried for which tool (paper, appendix A.1). A new rule is an entry of `SELECTORS`.

A decision is the spans of the text to annotate, or a reason not to; the caller counts the reasons. The heuristics'
"tokens" are words, or single characters in scripts without blanks, and independent of a model.
"""

import functools
import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from toolformer.data import Document
from toolformer.data.numbers import TOKEN, compute, numbers

Identify = Callable[[str], tuple[str, float]]

_CUE = re.compile(r"(?:=|\bequals\b|\bequal\s+to\b|\btotal\s+of\b|\baverage\s+of\b)\s*", re.IGNORECASE)
_LETTER = re.compile(r"[^\W\d_]")
_PARAGRAPHS = {
    # A single line break may occur inside a paragraph.
    "blank_line": re.compile(r"[^\n]+(?:\n(?![^\S\n]*\n)[^\n]+)*"),
    "line": re.compile(r"[^\n]+"),
}
"""Pattern of a paragraph, by the corpus's separator."""

CHUNK = 10
CONFIDENCE = 0.8


@dataclass(frozen=True)
class Decision:
    """The character spans to annotate, or none if the text is not tried; and the reason."""

    spans: tuple[tuple[int, int], ...] = ()
    reason: str = "selected"

    def __bool__(self) -> bool:
        return bool(self.spans)


@dataclass(frozen=True)
class Corpus:
    """Facts about the corpus that a selector may use, besides a document."""

    seed: int
    paragraphs: str
    """How paragraphs are separated, `blank_line` or `line`."""
    identify: Identify
    """The language of a text, with confidence."""


def whole_text(document: Document) -> Decision:
    """Selects the whole text unless it is empty."""
    if not document.text.strip():
        return Decision(reason="empty text")
    return Decision(((0, len(document.text)),))


def calculator(document: Document, seed: int = 0, share: float = 0.01) -> Decision:
    """Selects texts with a computation, with a cue before a number, and 1 % of others with three numbers at random."""
    written = numbers(document.text)
    if len(written) >= 3 and compute(written):
        return Decision(((0, len(document.text)),), "numbers that compute")
    starts = {number.start for number in written}
    if any(match.end() in starts for match in _CUE.finditer(document.text)):
        return Decision(((0, len(document.text)),), "a cue before a number")
    if len(written) < 3:
        return Decision(reason="fewer than three numbers")
    digest = hashlib.sha256(f"{seed}|{document.doc_id}|three numbers".encode()).digest()
    if int.from_bytes(digest[:8], "big") / 2**64 < share:
        return Decision(((0, len(document.text)),), "three numbers, drawn")
    return Decision(reason="three numbers, not drawn")


def calendar(document: Document) -> Decision:
    """Selects texts whose date is known."""
    return whole_text(document) if document.date else Decision(reason="no date")


def article(document: Document) -> Decision:
    """Selects articles of an encyclopedia: search never returns a text itself."""
    return whole_text(document) if document.source_id else Decision(reason="no article")


def translation(document: Document, identify: Identify, paragraphs: str = "blank_line") -> Decision:
    """Selects paragraphs with a chunk of ten tokens in another language, and English before and after it.

    `paragraphs` are separated by a `blank_line`, or each is a `line` (cc_net).
    """
    spans = [
        (match.start(), match.end())
        for match in _PARAGRAPHS[paragraphs].finditer(document.text)
        if _has_foreign_middle(match.group(), identify)
    ]
    return Decision(tuple(spans)) if spans else Decision(reason="no foreign passage between English")


def _has_foreign_middle(paragraph: str, identify: Identify) -> bool:
    tokens = [(match.start(), match.end()) for match in TOKEN.finditer(paragraph)]
    if len(tokens) < CHUNK + 2:
        return False
    labels = [
        _label(paragraph[tokens[n][0] : tokens[n + CHUNK - 1][1]], identify)
        for n in range(len(tokens) - CHUNK + 1)
    ]
    english = [n for n, label in enumerate(labels) if label == "en"]

    @functools.cache
    def is_english(start: int, end: int) -> bool:
        """Whether any chunk of the tokens [start, end) is English, or all of them if they are fewer than a chunk."""
        if end - start < CHUNK:
            return end - start >= 2 and identify(paragraph[tokens[start][0] : tokens[end - 1][1]])[0] == "en"
        n = bisect_left(english, start)
        return n < len(english) and english[n] + CHUNK <= end

    return any(
        label not in (None, "en") and is_english(0, n) and is_english(n + CHUNK, len(tokens))
        for n, label in enumerate(labels)
    )


def _label(chunk: str, identify: Identify) -> str | None:
    """The chunk's language; None for digits and symbols, and for a foreign language without confidence.

    With fewer letters than half the chunk's tokens it is a number with its unit, which has no language.
    """
    if len(_LETTER.findall(chunk)) < CHUNK // 2:
        return None
    language, confidence = identify(chunk)
    return language if language == "en" or confidence > CONFIDENCE else None


def looks_ahead(text: str, position: int, call_input: str) -> bool:
    """Whether a translation's input occurs after the call but not before it: at inference it would be unknown.

    Line breaks and runs of blanks count as one blank, since a call is written on one line.
    """
    needle = " ".join(call_input.split())
    before, after = (" ".join(part.split()) for part in (text[:position], text[position:]))
    return needle in after and needle not in before


SELECTORS: dict[str, Callable[[Document, Corpus], Decision]] = {
    "any": lambda document, corpus: whole_text(document),
    "calculator": lambda document, corpus: calculator(document, corpus.seed),
    "calendar": lambda document, corpus: calendar(document),
    "translation": lambda document, corpus: translation(document, corpus.identify, corpus.paragraphs),
    "article": lambda document, corpus: article(document),
}
"""By name, the spans of a document that are tried, or why it is not tried."""
