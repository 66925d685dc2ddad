"""Which positions each rule allows."""

from dataclasses import replace

import pytest

from tests.annotation.build import QA, windows_of
from toolformer.annotation.propose import propose
from toolformer.lm.language_model import LanguageModel


@pytest.mark.parametrize("window_tokens", [None, 16])
def test_places_before_numbers(tiny_gpt2: LanguageModel, window_tokens: int | None) -> None:
    """Only where a number begins within three tokens, in whichever window."""
    text = "She has 48 clips and sold 1,536 of them in the four weeks of May, for $2 each."
    encoding = tiny_gpt2.encode_text(text)
    numbered = replace(
        QA, places="number", max_positions=1000, samples=1, max_call_tokens=1, window_tokens=window_tokens
    )
    parts = windows_of(tiny_gpt2, text, numbered)
    tried = {c.token_position for made in propose(tiny_gpt2, numbered, parts) for c in made.candidates}
    starts = [text.index(number) for number in ("48", "1,536", "2 each")]
    ends = [*encoding.positions, *[len(text)] * 3]
    assert tried == {
        i for i, position in enumerate(encoding.positions)
        if any(position is not None and position <= start < ends[i + 3] for start in starts)
    }  # fmt: skip
    assert tried


@pytest.mark.parametrize(
    ("places", "marked"),
    [
        ("equals", "4 =| 2 + 2. She has 48/2 =| $24 left, which =is half, and 7 x 6=| 42. 14 - 23 =| -9."),
        ("name", "|He met| Ada Lovelace in| London-Soho,| 1,536 times, and| Éva at a| 2.5 km run; x2 is none."),
    ],
)  # fmt: skip
def test_places(places: str, marked: str, tiny_gpt2: LanguageModel) -> None:
    """After an equals sign; before names and numbers."""
    parts = marked.split("|")
    text, expected = "".join(parts), {len("".join(parts[:n])) for n in range(1, len(parts))}
    settings = replace(QA, places=places, max_positions=1000, samples=1, max_call_tokens=1)
    (proposal,) = propose(tiny_gpt2, settings, windows_of(tiny_gpt2, text, settings))
    assert {c.position for c in proposal.candidates} == expected
