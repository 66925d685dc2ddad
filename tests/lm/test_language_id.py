"""Language identification: what is done around fastText, and real sentences with the real model."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from toolformer.errors import UserError
from toolformer.lm.language_id import UNDETERMINED, LanguageIdentifier

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


@pytest.mark.real
def test_real_sentences_whatever_disturbs_fasttext() -> None:
    identifier = LanguageIdentifier()
    for language, text in SENTENCES.items():
        code, probability = identifier.identify(text)
        assert code == language and 0.7 < probability <= 1.0
    text = SENTENCES["fr"]
    for blank in ("\n", "\r\n\t "):
        assert identifier.identify(text.replace(" ", blank)) == identifier.identify(text)
    for head in ("\ud800 ", "\0", "Le\0", "</s> ", "Le </s> </s> "):  # some end a line for fastText
        code, probability = identifier.identify(head + text)
        assert (code, probability > 0.7) == ("fr", True)
    for without_letters in ("", "  \n", "123 456", "$ 4.50 -> ?"):
        assert identifier.identify(without_letters) == (UNDETERMINED, 0.0)
    texts = [*SENTENCES.values(), "", "12 5", "\ud800 mundo", "caf\u00e9\nnoir"] * 40
    expected = [identifier.identify(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(identifier.identify, texts * 16)) == expected * 16
