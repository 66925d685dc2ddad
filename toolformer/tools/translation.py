"""Translation into English (paper, section 3): fastText identifies the source language, a `Translator` translates.

The default translator is a multilingual language model with worked examples; the paper's is NLLB (`nllb.py`).
English is not translated.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from toolformer.data import Document
from toolformer.lm.language_id import LanguageIdentifier
from toolformer.tools.base import ClosedTool, Part, Result, TextGenerator, at_least_one, encodable

EXAMPLES = (
    ("Spanish", "La casa está cerca del río.", "The house is near the river."),
    ("German", "Wir fahren morgen nach Berlin.", "We are going to Berlin tomorrow."),
    ("French", "Où est la bibliothèque ?", "Where is the library?"),
    ("Chinese", "我喜欢喝茶。", "I like to drink tea."),
)
LANGUAGES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German",
    "el": "Greek", "es": "Spanish", "et": "Estonian", "fa": "Persian", "fi": "Finnish", "fr": "French", "he": "Hebrew",
    "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese",
    "ko": "Korean", "la": "Latin", "lt": "Lithuanian", "lv": "Latvian", "nl": "Dutch", "no": "Norwegian", "pl": "Polish",
    "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sr": "Serbian",
    "sv": "Swedish", "ta": "Tamil", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese",
    "zh": "Chinese",
}  # fmt: skip
"""fastText's label -> the language's English name; for other languages the label is used."""
LONGEST_INPUT = 500
"""Characters; bounds a translator's memory. A longer text has no result."""


class Translator(Part, ABC):
    """Translates texts of known languages into English."""

    @abstractmethod
    def translate(self, texts: Sequence[str], languages: Sequence[str]) -> Sequence[str | Result]:
        """One English text per text, or a `Result` with the reason why there is none.

        Texts are single lines of valid Unicode, `languages` their codes as fastText gives them ("fr", "ceb", "zh").
        """


class FewShotTranslator(Translator):
    """A causal LM, prompted with a few translations."""

    VERSION = 1

    def __init__(self, generate: TextGenerator, max_new_tokens: int = 48) -> None:
        at_least_one("translation", max_new_tokens=max_new_tokens)
        self.generate = generate
        self.max_new_tokens = max_new_tokens
        self.is_remote = generate.is_remote

    def check(self) -> None:
        """UserError if the model is missing."""
        self.generate.check()

    def translate(self, texts: Sequence[str], languages: Sequence[str]) -> Sequence[str | Result]:
        """See `Translator`."""
        worked = "".join(
            f"{language}: {text}\nEnglish: {english}\n\n" for language, text, english in EXAMPLES
        )
        prompts = [
            f"{worked}{LANGUAGES.get(code, code)}: {text}\nEnglish:"
            for text, code in zip(texts, languages, strict=True)
        ]
        written = self.generate(prompts, self.max_new_tokens, ("\n",))
        return [text if isinstance(text, Result) else text.strip() for text in written]


class Translation(ClosedTool):
    """Translation as a tool."""

    name = "MT"
    VERSION = 1
    benchmarks = ("mlqa", "xquad")
    examples = (
        'Her first album was called Entre dos mares [MT(Entre dos mares) -> Between two seas] ("Between Two Seas").',
        "On the door of the reading room stands Ruhe bitte, [MT(Ruhe bitte) -> Quiet please] which asks visitors to be quiet.",
        "What does the French word bibliothèque mean in English? It means [MT(bibliothèque) -> library] library.",
        "The letter begins with the words Il fait froid ce matin. [MT(Il fait froid ce matin.) -> It is cold this morning.] It is cold this morning.",
    )

    def __init__(self, translator: Translator, identifier: LanguageIdentifier | None = None) -> None:
        self.translator = translator
        self.identifier = identifier
        self.is_remote = translator.is_remote

    def check(self) -> None:
        """UserError if the translator is missing."""
        self.translator.check()

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """The English of each text; equal texts are translated once."""
        texts = [_clean(text) for text in inputs]
        answers: dict[str, Result] = {}
        languages: dict[str, str] = {}
        for text in dict.fromkeys(texts):
            if len(text) > LONGEST_INPUT:
                answers[text] = Result(reason="text too long")
            elif not any(character.isalpha() for character in text):
                answers[text] = Result(reason="nothing to translate")
            elif (language := self._language(text)) == "en":
                answers[text] = Result(reason="already English")
            else:
                languages[text] = language
        if languages:
            english = self.translator.translate(list(languages), list(languages.values()))
            for text, answer in zip(languages, english, strict=True):
                answers[text] = answer if isinstance(answer, Result) else _result(text, answer)
        return [answers[text] for text in texts]

    def _language(self, text: str) -> str:
        self.identifier = self.identifier or LanguageIdentifier()
        return self.identifier.identify(text)[0]


def _clean(text: str) -> str:
    """One line that can be encoded: NULs and runs of blanks become a blank, lone surrogates question marks."""
    return " ".join(encodable(text.replace("\0", " ")).split())


def _result(text: str, english: str) -> Result:
    english = " ".join(english.split())
    if not english:
        return Result(reason="no translation")
    return Result(reason="left untranslated") if english.lower() == text.lower() else Result(english)
