"""The words that the speed scripts are given."""

from __future__ import annotations

import sys

import pytest

from benchmarks.speed.arguments import given, run
from toolformer.errors import UserError

DEFAULTS = {"documents": "4", "model": "smollm2", "batch_tokens": "2048"}


def test_words_take_the_places_of_defaults() -> None:
    assert given([], DEFAULTS) == DEFAULTS
    words = ["model=a=b", "batch_tokens=256,2048"]
    assert given(words, DEFAULTS, lists=["batch_tokens"]) == {
        "documents": "4",
        "model": "a=b",
        "batch_tokens": "256,2048",
    }


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("document=4", "unknown argument 'document=4'; known are documents=..., model=..., batch_tokens=..."),
        ("documents", "unknown argument 'documents'"),
        ("documents=0", "documents is '0'; it must be a whole number from 1 up"),
        ("documents=4,5", "documents is '4,5'; it must be a whole number"),
        ("batch_tokens=256,", "batch_tokens is '256,'; it must be a whole number"),
    ],
)
def test_a_wrong_word_is_named(
    word: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError) as told:
        given([word], DEFAULTS, lists=["batch_tokens"])
    assert said in str(told.value)
    monkeypatch.setattr(sys, "argv", ["annotate", word])
    with pytest.raises(SystemExit) as ended:
        run("annotate", lambda words: print(given(words, DEFAULTS, lists=["batch_tokens"])))
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"benchmarks.speed.annotate: {told.value}\n"
