"""Translation: which texts are translated, how the model is asked, and what counts as a translation."""

import math
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from tests.tools.recorders import ELSEWHERE
from toolformer.tools.translation import LONGEST_INPUT, FewShotTranslator, Translation

ENGLISH = {"guten Morgen": "good morning", "Oslo": "Oslo", "mudo": ""}
LANGUAGES = {"guten Morgen": "de", "Oslo": "no", "mudo": "pt", "nuqneH": "tlh", "x? y": "de"}


def test_texts_are_translated_in_order_and_once_and_others_have_a_reason() -> None:
    asked: list[str] = []

    def dictionary(prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()) -> list[str]:
        """Continues a prompt by looking its last line but one up."""
        for text in prompts:
            text.encode("utf-8")  # as strict as a tokenizer
        assert tuple(stop) == ("\n",)
        asked.extend(prompts)
        words = [one.removesuffix("\nEnglish:").rpartition("\n")[2].partition(": ")[2] for one in prompts]
        return [f" {ENGLISH.get(one, 'something')} " for one in words]

    languages = SimpleNamespace(identify=lambda text: (LANGUAGES.get(text, "en"), 1.0))
    tool = Translation(FewShotTranslator(dictionary), languages)  # type: ignore[arg-type]
    expected = {
        "guten Morgen": "good morning", "nuqneH": "something", "guten  Morgen\n": "good morning",
        "hello": "already English", "": "nothing to translate", "12,5 %!": "nothing to translate",
        "\x00\n": "nothing to translate", "ä" * (LONGEST_INPUT + 1): "text too long",
    }  # fmt: skip
    results = tool.run(list(expected), [ELSEWHERE] * len(expected))
    assert [one.text or one.reason for one in results] == list(expected.values())
    assert [one.text is not None for one in results] == [True] * 3 + [False] * 5
    german, klingon = asked
    assert german.endswith("\n\nGerman: guten Morgen\nEnglish:") and german.count("\nEnglish: ") >= 3
    assert klingon.endswith("\n\ntlh: nuqneH\nEnglish:")
    echo, silence, odd = tool.run(["Oslo", "mudo", "x\ud800 y"], [ELSEWHERE] * 3)
    assert (echo.reason, silence.reason) == ("left untranslated", "no translation")
    assert odd.text == "something"


@pytest.mark.real
def test_the_embedded_translator() -> None:
    """And that its conversion adds BOS, without which its perplexity is tenfold."""
    from toolformer.data import assets
    from toolformer.lm.text_generator import ModelGenerator, load

    expected = {
        "sûreté nucléaire": "nuclear safety",
        "Ich habe gestern ein Buch gekauft.": "bought a book yesterday",
        "¿Dónde está la estación de tren?": "where is the train station",
    }
    tool = Translation(FewShotTranslator(ModelGenerator("gemma3")))
    *results, english = tool.run([*expected, "The weather is fine today."], [ELSEWHERE] * 4)
    assert english.reason == "already English"
    right = [words in str(one.text).lower() for one, words in zip(results, expected.values(), strict=True)]
    assert sum(right) >= 2, [one.text for one in results]
    model = load("gemma3", "auto", "auto")
    assert model.own_prefix == [model.tokenizer.bos_token_id]
    ((total, count),) = model.rolling_log_likelihoods(["The Eiffel Tower is a tower in Paris, France."])
    assert math.exp(-total / count) < 100  # about 440 without BOS
    assert (assets.ensure("gemma3") / "GEMMA_TERMS.html").is_file()
