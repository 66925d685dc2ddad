"""Question answering and translation: what the model is shown, and what counts as an answer."""

import math
from types import SimpleNamespace

import pytest

from tests.build import OTHER_DOCUMENT, Writer
from toolformer.data import Document
from toolformer.tools.question_answering import QuestionAnswering, short_answer
from toolformer.tools.retrieval.bm25 import BM25
from toolformer.tools.retrieval.passages import Passage
from toolformer.tools.translation import LONGEST_INPUT, FewShotTranslator, Translation


def test_it_reads_the_passages_found_and_equal_questions_once(retriever: BM25) -> None:
    """The best passage stands next to the question; a document's own article is not read."""
    best = Writer(lambda prompt: f" {prompt.rsplit('Question:', 1)[0].rsplit(' > ', 1)[0].split()[-1]}.")
    tool = QuestionAnswering(retriever, best)
    refused = {
        "": "empty question", " ?! ": "empty question", "w" * 301: "question too long", "Zzyzx?": "no passage found",
    }  # fmt: skip
    results = tool.run(list(refused), [OTHER_DOCUMENT] * 4)
    assert [one.reason for one in results] == list(refused.values()) and best.batches == []
    questions = [
        "Who takes wax from hives?",
        "What shows\nnorth?",
        "What  shows north?",
        "What is a lighthouse?",
    ]
    documents = [*[OTHER_DOCUMENT] * 3, Document("d", "", source_id="Lighthouse")]
    answers = [one.text for one in tool.run(questions, documents)]
    assert answers == ["Beekeeping", "Compass", "Compass", "Harbour"]
    (batch,) = best.batches
    assert len(batch) == 3 and any("Question: What shows north?" in text for text in batch)
    passages = [Passage("a", "Best", "one two three four"), Passage("b", "Second", "five six seven")]
    text = QuestionAnswering(retriever, best, passage_words=2).prompt("Why?", passages)
    assert text.endswith("\n\nText: Second > five six Best > one two\nQuestion: Why?\nAnswer:")


def test_the_answer_is_one_line_without_its_full_stop() -> None:
    written = [" Accra.", "Accra\nQuestion: x", "\n\n Accra . ", "the U.S.", "3.5", "nobody knows."]
    answers = ["Accra", "Accra", "Accra", "the U.S.", "3.5", "nobody knows"]
    assert [short_answer(text).text for text in written] == answers
    for text in ("", " \n", ".", "unknown", "Unknown.", "I don't know.", "I don’t know", "None", "N/A"):
        assert short_answer(text).reason == "no answer"


@pytest.mark.real
def test_the_embedded_reader_knows_what_stands_in_its_passages() -> None:
    from toolformer.lm.text_generator import ModelGenerator

    asked = {
        "Who painted the Mona Lisa?": "Leonardo",
        "In which country is Mount Kilimanjaro?": "Tanzania",
        "What is the currency of Japan?": "yen",
    }
    results = QuestionAnswering(BM25(), ModelGenerator("smollm2")).run(
        list(asked), [OTHER_DOCUMENT] * len(asked)
    )
    right = [word in str(one.text) for one, word in zip(results, asked.values(), strict=True)]
    assert sum(right) >= 2, [one.text for one in results]


ENGLISH = {"guten Morgen": "good morning", "Oslo": "Oslo", "mudo": ""}
LANGUAGES = {"guten Morgen": "de", "Oslo": "no", "mudo": "pt", "nuqneH": "tlh", "x? y": "de"}


def test_texts_are_translated_once_and_in_order() -> None:
    def translated(prompt: str) -> str:
        """The last line but one of a prompt, looked up."""
        word = prompt.removesuffix("\nEnglish:").rpartition("\n")[2].partition(": ")[2]
        return f" {ENGLISH.get(word, 'something')} "

    dictionary = Writer(translated)
    languages = SimpleNamespace(identify=lambda text: (LANGUAGES.get(text, "en"), 1.0))
    tool = Translation(FewShotTranslator(dictionary), languages)  # type: ignore[arg-type]
    expected = {
        "guten Morgen": "good morning", "nuqneH": "something", "guten  Morgen\n": "good morning",
        "hello": "already English", "": "nothing to translate", "12,5 %!": "nothing to translate",
        "\x00\n": "nothing to translate", "ä" * (LONGEST_INPUT + 1): "text too long",
    }  # fmt: skip
    results = tool.run(list(expected), [OTHER_DOCUMENT] * len(expected))
    assert [one.text or one.reason for one in results] == list(expected.values())
    assert [one.text is not None for one in results] == [True] * 3 + [False] * 5
    ((german, klingon),) = dictionary.batches
    assert german.endswith("\n\nGerman: guten Morgen\nEnglish:") and german.count("\nEnglish: ") >= 3
    assert klingon.endswith("\n\ntlh: nuqneH\nEnglish:")
    echo, silence, odd = tool.run(["Oslo", "mudo", "x\ud800 y"], [OTHER_DOCUMENT] * 3)
    assert (echo.reason, silence.reason) == ("left untranslated", "no translation")
    assert odd.text == "something"


@pytest.mark.real
def test_the_embedded_translator() -> None:
    """And that its conversion adds BOS, without which its perplexity is tenfold."""
    from toolformer.data import assets
    from toolformer.lm.text_generator import ModelGenerator, load_model

    expected = {
        "sûreté nucléaire": "nuclear safety",
        "Ich habe gestern ein Buch gekauft.": "bought a book yesterday",
        "¿Dónde está la estación de tren?": "where is the train station",
    }
    tool = Translation(FewShotTranslator(ModelGenerator("gemma3")))
    *results, english = tool.run([*expected, "The weather is fine today."], [OTHER_DOCUMENT] * 4)
    assert english.reason == "already English"
    right = [words in str(one.text).lower() for one, words in zip(results, expected.values(), strict=True)]
    assert sum(right) >= 2, [one.text for one in results]
    model = load_model("gemma3", "auto", "auto")
    assert model.bos_ids == [model.tokenizer.bos_token_id]
    ((total, count),) = model.rolling_log_likelihoods(["The Eiffel Tower is a tower in Paris, France."])
    assert math.exp(-total / count) < 100  # about 440 without BOS
    assert (assets.ensure("gemma3") / "GEMMA_TERMS.html").is_file()
