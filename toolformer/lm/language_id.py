"""Language identification with fastText's lid.176 model: a text in, a language code and a probability out."""

from toolformer.data import assets
from toolformer.errors import UserError

UNDETERMINED = "und"
"""ISO 639 code for an undetermined language; returned for a text without letters."""
_END = "</s>"
"""fastText's end of line: it ignores all words after it."""


class LanguageIdentifier:
    """A loaded fastText classifier over 176 languages (1 MB); threads may share it. UserError if its file is damaged."""

    def __init__(self) -> None:
        import fasttext

        path = assets.ensure("lid")
        try:
            model = fasttext.load_model(str(path))
        except ValueError as error:
            raise UserError(f"language identification: {error} Delete {path.parent} and run again") from error
        # Called by `model.predict` for a line; without that function's checks it takes a tenth of the time.
        self._predict = model.f.predict

    def identify(self, text: str) -> tuple[str, float]:
        """The most likely language ("en", "fr", "zh", ...) and its probability in 0..1; ("und", 0.0) without letters.

        Lines are joined, since fastText reads one line at a time. A text mostly in capitals is lowercased: fastText
        takes capitalised English for other languages.
        """
        line = _line(text)
        prediction = self._predict(line + "\n", 1, 0.0, "strict") if line else []
        if not prediction:
            return UNDETERMINED, 0.0
        probability, label = prediction[0]
        # Rounding in fastText can make a probability slightly larger than one.
        return label.removeprefix("__label__"), min(1.0, probability)


def _line(text: str) -> str:
    """The text as one line for fastText, lowercased if mostly in capitals; empty for a text without letters."""
    if not (text.isascii() and text.isprintable() and _END not in text):  # most texts need no cleaning
        words = text.replace("\0", " ").split()  # a NUL would end the text
        line = " ".join(word for word in words if word != _END)
        # A lone surrogate cannot be encoded for fastText.
        text = line.encode("utf-8", errors="replace").decode("utf-8")
    if not any(map(str.isalpha, text)):
        return ""
    return text.lower() if sum(map(str.isupper, text)) > sum(map(str.islower, text)) else text
