"""Language identification."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from toolformer.lm.language_id import UNDETERMINED, LanguageIdentifier

SENTENCES = {
    "en": "The committee will meet again next Thursday to discuss the budget.",
    "fr": "Le chat dort tranquillement sur la table de la cuisine.",
    "de": "Der Zug nach Hamburg hat heute leider zwanzig Minuten Verspätung.",
    "vi": "Hà Nội là thủ đô của nước Cộng hòa xã hội chủ nghĩa Việt Nam.",
    "hi": "भारत की राजधानी नई दिल्ली है और यह एक बड़ा शहर है।",
    "zh": "北京大学是中国最著名的大学之一。",
}


@pytest.mark.real
def test_real_sentences_whatever_disturbs_fasttext() -> None:
    identifier = LanguageIdentifier()
    for language, text in SENTENCES.items():
        code, probability = identifier.identify(text)
        assert code == language and 0.7 < probability <= 1.0
    text = SENTENCES["fr"]
    assert identifier.identify(text.replace(" ", "\r\n\t ")) == identifier.identify(text)
    for head in ("\ud800 ", "\0", "Le\0", "</s> ", "Le </s> </s> "):  # some end a line for fastText
        code, probability = identifier.identify(head + text)
        assert (code, probability > 0.7) == ("fr", True)
    for without_letters in ("", "  \n", "123 456", "$ 4.50 -> ?"):
        assert identifier.identify(without_letters) == (UNDETERMINED, 0.0)
    for language, text in SENTENCES.items():
        assert identifier.identify(text.upper())[0] == language, "capitals"
    texts = [*SENTENCES.values(), "", "12 5", "\ud800 mundo", "caf\u00e9\nnoir"] * 40
    expected = [identifier.identify(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(identifier.identify, texts * 16)) == expected * 16
