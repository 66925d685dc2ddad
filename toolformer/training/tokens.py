"""Texts as training tokens: the text's tokens are those without calls, a call's tokens those of decoding.

A text of C* is tokenised without its calls, and each call's tokens are inserted: up to the arrow as the model writes them
after its start token, after the arrow as decoding inserts a result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from toolformer.calls import ARROW, END, ApiCall, linearise
from toolformer.errors import UserError
from toolformer.lm.loading import (
    bos_ids,
    encode,
    encode_continuation,
    first_token,
    token_positions,
    tokens_of,
)

TEXT, CALL, RESULT = 0, 1, 2
"""Kinds of tokens: of the text, of a call up to its arrow, and after the arrow, bracket included."""

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


@dataclass(frozen=True)
class TokenizedTexts:
    """Documents as token ids: BOS (if the tokenizer adds one), the text, EOS; of held-out texts see `tokenize`."""

    ids: np.ndarray
    """All documents one after another, int32 [tokens]."""
    starts: np.ndarray
    """The start of each document and the end of the last one, int64 [documents + 1]."""
    kinds: np.ndarray
    """TEXT, CALL or RESULT of each token, int8 [tokens]."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> list[int]:
        """Tokens of each document."""
        return list(np.diff(self.starts).tolist())


def tokenize(texts: Sequence[str | AnnotatedText], tokenizer: Any, heldout: bool = False) -> TokenizedTexts:
    """Texts as tokens, without empty ones. UserError without any token, or without an EOS token.

    Args:
        heldout: as perplexity benchmarks read a text: the first token is predicted too, after the token that precedes a text,
            and no EOS follows.
    """
    if tokenizer.eos_token_id is None:
        raise UserError("model: its tokenizer has no EOS token to end a document with; choose another model")
    before = [first_token(tokenizer)] if heldout else []
    head = [(token, TEXT) for token in (*before, *bos_ids(tokenizer))]
    tail = [] if heldout else [(tokenizer.eos_token_id, TEXT)]
    documents: list[np.ndarray] = []
    for first in range(0, len(texts), _TEXTS_PER_CALL):
        batch = [
            AnnotatedText(text) if isinstance(text, str) else text
            for text in texts[first : first + _TEXTS_PER_CALL]
        ]
        encoded = tokens_of(tokenizer, [text.plain for text in batch], offsets=True)
        for text, ids, offsets in zip(batch, encoded.input_ids, encoded.offset_mapping, strict=True):
            if tokens := _with_calls(tokenizer, text, ids, offsets):
                documents.append(np.array(head + tokens + tail, dtype=np.int32))
    if not documents:
        raise UserError("training: there is no text to train or evaluate on (no rows, or empty texts only)")
    starts = np.cumsum([0] + [len(document) for document in documents], dtype=np.int64)
    ids_and_kinds = np.concatenate(documents)
    return TokenizedTexts(ids_and_kinds[:, 0].copy(), starts, ids_and_kinds[:, 1].astype(np.int8))


def tokenizers_agree(first: Any, second: Any) -> bool:
    """Whether two tokenizers split texts and calls equally, tried on texts of many kinds."""
    return all(encode(first, text) == encode(second, text) for text in _PROBES)


def call_tokens(tokenizer: Any, call: ApiCall) -> list[tuple[int, int]]:
    """(token, kind) of a call with its result: the start token first."""
    written = linearise(replace(call, result=None))[: -len(END)] + f" {ARROW}"
    inserted = f" {call.result}{END}" if call.result else END
    return [
        (token, kind)
        for text, kind in ((written, CALL), (inserted, RESULT))
        for token in encode_continuation(tokenizer, text)
    ]


def _with_calls(
    tokenizer: Any, text: AnnotatedText, ids: list[int], offsets: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """(token, kind) of a text with its calls; `ids` and `offsets` are the plain text's."""
    # By character position: the index of the first token there.
    before: dict[int | None, int] = {}
    for index, position in enumerate([*token_positions(text.plain, offsets), len(text.plain)]):
        before.setdefault(position, index)
    positions = [position for position, _ in text.calls]
    if all(position in before for position in positions):
        bounds = [0, *(before[position] for position in positions), len(ids)]
        parts = [ids[start:end] for start, end in pairwise(bounds)]
    else:  # another tokenizer split the text, and a call is inside a token: tokenise each part
        bounds = [0, *positions, len(text.plain)]
        parts = [
            (encode_continuation if start else encode)(tokenizer, text.plain[start:end])
            for start, end in pairwise(bounds)
        ]
    calls = [call_tokens(tokenizer, call) for _, call in text.calls]
    tokens: list[tuple[int, int]] = []
    for part, call in zip(parts, [*calls, []], strict=True):
        tokens += [(token, TEXT) for token in part] + call
    return tokens
