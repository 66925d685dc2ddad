"""Stop texts: where a generated text ends."""

from collections.abc import Callable, Sequence

BYTES = 4
"""Bytes of the longest character in UTF-8: a token has at least one."""


def cut_at(text: str, stop: Sequence[str]) -> str:
    """The text before the first of the stop texts."""
    return text[: min([text.find(end) for end in stop if end in text], default=len(text))]


def has_ended(
    ids: Sequence[int], decode: Callable[[Sequence[int]], str], stop: Sequence[str], before: str = ""
) -> bool:
    """Whether the last token of a text completes a stop text.

    Decodes only as many of the last tokens as a stop text may have.

    Args:
        ids: the tokens of the text.
        before: a text that precedes them, in which a stop text may begin.
    """
    if not stop:
        return False
    longest = max(map(len, stop))
    window = BYTES * longest + BYTES
    text = decode(ids[-window:])
    if len(ids) <= window:
        text = before[-longest:] + text
    return any(end in text for end in stop)
