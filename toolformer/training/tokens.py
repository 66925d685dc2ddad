"""Texts as training tokens: a text keeps the tokens it has without its calls, a call those that decoding works with.

A text of C* is tokenised as it was before its calls were put in, and each call's tokens go between them: up to the
arrow as the model is to write them after its start token, behind the arrow as decoding inserts a result. Knows
tokenizers, no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from toolformer.calls import ARROW, END, START, ApiCall, CallSyntaxError, call_end, insert, linearise, parse
from toolformer.errors import UserError
from toolformer.loading import tokens_of

TEXT, CALL, RESULT = 0, 1, 2
"""Kinds of tokens: the text's own, a call's up to its arrow, and what stands behind the arrow, bracket included."""

_TEXTS_PER_CALL = 1000
_PROBES = (
    'It costs $1,234.50 (or 3.5 %): "so" said O\'Neill. [Calculator(400 / 1400) -> 0.29]\n\n\tNext  line\u2026',
    "Straße, naïve, ¿dónde?, Việt Nam, नमस्ते, 北京大学, مرحبا, 😀",
)


@dataclass(frozen=True)
class AnnotatedText:
    """A text of C*: the plain text, and the calls with their results by character position."""

    plain: str
    calls: tuple[tuple[int, ApiCall], ...] = ()

    @property
    def written(self) -> str:
        """The text with its calls."""
        return insert(self.plain, self.calls)


@dataclass(frozen=True)
class TokenizedTexts:
    """Documents as token ids: BOS (if the tokenizer adds one), the text, EOS."""

    ids: np.ndarray
    """All documents one after another, int32 [tokens]."""
    starts: np.ndarray
    """Where each document begins, and where the last one ends, int64 [documents + 1]."""
    kinds: np.ndarray
    """TEXT, CALL or RESULT of each token, int8 [tokens]."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> list[int]:
        """Tokens of each document."""
        return list(np.diff(self.starts).tolist())


def annotated(plain: str, written: str, positions: Sequence[int]) -> AnnotatedText:
    """A row of C* taken apart: `written` is `plain` with a call at each character position of `positions`.

    Raises:
        UserError: `written` is something else.
    """
    calls: list[tuple[int, ApiCall]] = []
    call: ApiCall | None
    shift = 0
    for position in sorted(positions):
        start = position + shift
        end = call_end(written[start + len(START) :])
        try:
            call = parse(written[start : start + len(START) + (end or 0)])
        except CallSyntaxError:
            call = None
        if call is None or call.result is None:
            raise UserError(
                f"dataset: no call with a result is at character {position} of the text {plain[:40]!r};"
                " generate it again"
            )
        calls.append((position, call))
        shift += len(linearise(call))
    text = AnnotatedText(plain, tuple(calls))
    if text.written != written:
        raise UserError(
            f"dataset: the text {plain[:40]!r} of C* is not that of C with calls; generate it again"
        )
    return text


def tokenize(texts: Sequence[str | AnnotatedText], tokenizer: Any) -> TokenizedTexts:
    """Every text as tokens; a text without tokens is left out.

    Raises:
        UserError: the tokenizer has no EOS token, or no text has a token.
    """
    if tokenizer.eos_token_id is None:
        raise UserError("model: its tokenizer has no EOS token to end a document with; choose another model")
    head, tail = own_bos(tokenizer), [tokenizer.eos_token_id]
    documents: list[np.ndarray] = []
    kinds: list[np.ndarray] = []
    for first in range(0, len(texts), _TEXTS_PER_CALL):
        batch = [
            AnnotatedText(text) if isinstance(text, str) else text
            for text in texts[first : first + _TEXTS_PER_CALL]
        ]
        encoded = tokens_of(tokenizer, [text.plain for text in batch], offsets=True)
        for text, ids, offsets in zip(batch, encoded.input_ids, encoded.offset_mapping, strict=True):
            of_text = _with_calls(tokenizer, text, ids, offsets)
            if of_text:
                whole = [(token, TEXT) for token in head] + of_text + [(token, TEXT) for token in tail]
                documents.append(np.array([token for token, _ in whole], dtype=np.int32))
                kinds.append(np.array([kind for _, kind in whole], dtype=np.int8))
    if not documents:
        raise UserError("training: there is no text to train or evaluate on (no rows, or empty texts only)")
    starts = np.cumsum([0] + [len(document) for document in documents], dtype=np.int64)
    return TokenizedTexts(np.concatenate(documents), starts, np.concatenate(kinds))


def own_bos(tokenizer: Any) -> list[int]:
    """The BOS that the tokenizer itself puts before a text (Llama, OPT), or nothing (GPT-2)."""
    bos = tokenizer.bos_token_id
    return [bos] if bos is not None and tokenizer("a").input_ids[:1] == [bos] else []


def cut_alike(first: Any, second: Any) -> bool:
    """Whether two tokenizers cut texts and calls into the same tokens, tried on texts of many kinds."""
    return all(_encode(first, text) == _encode(second, text) for text in _PROBES)


def call_tokens(tokenizer: Any, call: ApiCall) -> list[tuple[int, int]]:
    """(token, kind) of a call with its result: the start token first."""
    written = linearise(replace(call, result=None))[: -len(END)] + f" {ARROW}"
    inserted = f" {call.result}{END}" if call.result else END
    return [
        (token, kind)
        for text, kind in ((written, CALL), (inserted, RESULT))
        for token in _encode_behind(tokenizer, text)
    ]


def _with_calls(
    tokenizer: Any, text: AnnotatedText, ids: list[int], offsets: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    before = _boundaries(text.plain, offsets)
    found: list[tuple[int, int]] = []
    done = 0
    if any(position not in before for position, _ in text.calls):
        # A call inside a token, as another tokenizer cuts the text: each part is tokenised for itself.
        places = [0, *(position for position, _ in text.calls), len(text.plain)]
        parts = [text.plain[start:end] for start, end in pairwise(places)]
        calls = [call_tokens(tokenizer, call) for _, call in text.calls]
        for start, part, call_behind in zip(places, parts, [*calls, []], strict=False):
            of_part = _encode_behind(tokenizer, part) if start else _encode(tokenizer, part)
            found += [(token, TEXT) for token in of_part] + call_behind
        return found
    for position, call in text.calls:
        found += [(token, TEXT) for token in ids[done : before[position]]]
        found += call_tokens(tokenizer, call)
        done = before[position]
    return found + [(token, TEXT) for token in ids[done:]]


def _boundaries(text: str, offsets: list[tuple[int, int]]) -> dict[int, int]:
    """By character position: the index of the token that begins there."""
    found: dict[int, int] = {}
    previous = 0
    for index, (start, end) in enumerate(offsets):
        # Some tokenizers leave the blank before a word out of the offsets: the call goes before it.
        if start >= previous and not text[previous:start].strip():
            found.setdefault(previous, index)
        previous = max(previous, end)
    found.setdefault(len(text), len(offsets))
    return found


def _encode_behind(tokenizer: Any, text: str) -> list[int]:
    """A text's tokens where it begins no text: there a tokenizer adds nothing of its own (a blank)."""
    for sign in ("a", "]", "\n", "0"):
        alone, both = _encode(tokenizer, sign), _encode(tokenizer, sign + text)
        if both[: len(alone)] == alone:  # else the sign has melted into the text
            return both[len(alone) :]
    return _encode(tokenizer, text)


def _encode(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokens_of(tokenizer, text).input_ids
    return ids
