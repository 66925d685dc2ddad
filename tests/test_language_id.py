"""Language identification: what is done around fastText, and real sentences with the real model."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.speed import language_id as speed
from toolformer.errors import UserError
from toolformer.language_id import UNDETERMINED, LanguageIdentifier

SENTENCES = {
    "en": "The committee will meet again next Thursday to discuss the budget.",
    "fr": "Le chat dort tranquillement sur la table de la cuisine.",
    "de": "Der Zug nach Hamburg hat heute leider zwanzig Minuten Verspätung.",
    "es": "Mañana por la tarde iremos al mercado a comprar verduras frescas.",
    "vi": "Hà Nội là thủ đô của nước Cộng hòa xã hội chủ nghĩa Việt Nam.",
    "hi": "भारत की राजधानी नई दिल्ली है और यह एक बड़ा शहर है।",
    "zh": "北京大学是中国最著名的大学之一。",
    "ar": "القاهرة هي عاصمة جمهورية مصر العربية وأكبر مدنها.",
}


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lid.bin"
    path.write_text("not a model")
    with pytest.raises(UserError, match=r"lid\.bin"):
        LanguageIdentifier(path)
    with pytest.raises(UserError, match="absent"):
        LanguageIdentifier(tmp_path / "absent.ftz")


@pytest.fixture(scope="module")
def identifier() -> LanguageIdentifier:
    return LanguageIdentifier()


@pytest.mark.real
@pytest.mark.parametrize("language", SENTENCES)
def test_real_sentences(identifier: LanguageIdentifier, language: str) -> None:
    code, probability = identifier.identify(SENTENCES[language])
    assert code == language
    assert 0.7 < probability <= 1.0


@pytest.mark.real
def test_newlines_and_lone_surrogates_do_not_disturb(identifier: LanguageIdentifier) -> None:
    text = SENTENCES["fr"]
    assert identifier.identify(text.replace(" ", "\n")) == identifier.identify(text)
    assert identifier.identify(text.replace(" ", "\r\n\t ")) == identifier.identify(text)
    assert identifier.identify("\ud800 " + text)[0] == "fr"


@pytest.mark.real
@pytest.mark.parametrize("head", ["\0", "Le\0", "</s> ", "Le </s> </s> "])
def test_what_ends_a_line_for_fasttext_does_not_hide_the_rest(
    identifier: LanguageIdentifier, head: str
) -> None:
    code, probability = identifier.identify(head + SENTENCES["fr"])
    assert (code, probability > 0.7) == ("fr", True)


@pytest.mark.real
@pytest.mark.parametrize("text", ["", "  \n", "123 456", "$ 4.50 -> ?"])
def test_a_text_without_letters_has_no_language(identifier: LanguageIdentifier, text: str) -> None:
    assert identifier.identify(text) == (UNDETERMINED, 0.0)


@pytest.mark.real
def test_a_batch_is_the_single_answers_in_order_from_any_thread(identifier: LanguageIdentifier) -> None:
    texts = [*SENTENCES.values(), "", "12 5", "\ud800 mundo", "caf\u00e9\nnoir"] * 40
    expected = [identifier.identify(text) for text in texts]
    assert identifier.identify_batch(texts) == expected
    with ThreadPoolExecutor(8) as pool:
        assert all(answers == expected for answers in pool.map(identifier.identify_batch, [texts] * 16))


@pytest.mark.real
def test_loading_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    LanguageIdentifier()
    assert capfd.readouterr() == ("", "")


@pytest.mark.real
def test_the_speed_script_prints_its_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    speed.main(["chunks=500", "rounds=1"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])
