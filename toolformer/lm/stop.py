"""Stop texts: where a generated text ends."""

from collections.abc import Sequence


def cut_at(text: str, stop: Sequence[str]) -> str:
    """The text before the first of the stop texts."""
    return text[: min([text.find(end) for end in stop if end in text], default=len(text))]
