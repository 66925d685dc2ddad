"""Translation: which texts are translated, how the model is asked, and what counts as a translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from toolformer.data import Document
from toolformer.lm.language_id import LanguageIdentifier
from toolformer.tools.translation import LONGEST_INPUT, FewShotTranslator, Translation

HERE = Document("d", "")
ENGLISH = {"guten Morgen": "good morning", "buenas noches": "good night", "Oslo": "Oslo", "mudo": ""}


class Languages:
    """Knows the language of a few texts; everything else is English."""

    known: Mapping[str, str] = {
        "guten Morgen": "de", "buenas noches": "es", "Oslo": "no", "mudo": "pt", "nuqneH": "tlh", "x? y": "de",
    }  # fmt: skip

    def identify(self, text: str) -> tuple[str, float]:
        return self.known.get(text, "en"), 1.0


class Dictionary:
    """Continues a prompt by looking its last line but one up, and remembers what it was asked."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.settings: tuple[int, tuple[str, ...]] | None = None

    def __call__(self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()) -> list[str]:
        for text in prompts:
            text.encode("utf-8")  # as strict as a tokenizer
        self.prompts += prompts
        self.settings = (max_new_tokens, tuple(stop))
        asked = [one.removesuffix("\nEnglish:").rpartition("\n")[2].partition(": ")[2] for one in prompts]
        return [f" {ENGLISH.get(one, 'something')} " for one in asked]


def translation(dictionary: Dictionary) -> Translation:
    return Translation(FewShotTranslator(dictionary), cast(LanguageIdentifier, cast(Any, Languages())))


def test_texts_are_translated_in_order_and_once() -> None:
    dictionary = Dictionary()
    inputs = ["guten Morgen", "nuqneH", "guten  Morgen\n", "hello"]
    results = translation(dictionary).run(inputs, [HERE] * 4)
    assert [one.text for one in results] == ["good morning", "something", "good morning", None]
    assert len(dictionary.prompts) == 2
    assert dictionary.prompts[0].endswith("\n\nGerman: guten Morgen\nEnglish:")
    assert dictionary.prompts[1].endswith("\n\ntlh: nuqneH\nEnglish:")
    assert dictionary.prompts[0].count("\nEnglish: ") >= 3
    assert dictionary.settings is not None and dictionary.settings[1] == ("\n",)


def test_reasons() -> None:
    dictionary = Dictionary()
    texts = ["good morning", "", "12,5 %!", "\x00\n", "ä" * (LONGEST_INPUT + 1)]
    results = translation(dictionary).run(texts, [HERE] * len(texts))
    assert [one.reason for one in results] == [
        "already English", "nothing to translate", "nothing to translate", "nothing to translate", "text too long",
    ]  # fmt: skip
    assert dictionary.prompts == []


def test_an_echo_and_a_silence_are_no_translation() -> None:
    results = translation(Dictionary()).run(["Oslo", "mudo", "x\ud800 y"], [HERE] * 3)
    assert [one.reason for one in results] == ["left untranslated", "no translation", None]


@pytest.mark.real
def test_the_embedded_translator() -> None:
    from toolformer.lm.text_generator import ModelGenerator

    expected = {
        "sûreté nucléaire": "nuclear safety",
        "Ich habe gestern ein Buch gekauft.": "bought a book yesterday",
        "¿Dónde está la estación de tren?": "where is the train station",
        "Thủ đô của Việt Nam là gì?": "capital of vietnam",
        "أين المستشفى؟": "where is the hospital",
    }
    tool = Translation(FewShotTranslator(ModelGenerator("gemma3")))
    results = tool.run([*expected, "The weather is fine today."], [HERE] * (len(expected) + 1))
    assert results[-1].reason == "already English"
    right = [
        words in str(one.text).lower() for one, words in zip(results[:-1], expected.values(), strict=True)
    ]
    assert sum(right) >= 4, [one.text for one in results]
