"""Language identification with fastText's lid.176 model: a text in, a language code and a probability out.

Knows nothing of tools or documents. The model is the asset `lid`, fetched at first use, unless a path is given.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from toolformer import assets
from toolformer.errors import UserError

UNDETERMINED = "und"
"""ISO 639's code for no language; the answer for a text without any letter."""

_LABEL = "__label__"


class LanguageIdentifier:
    """A loaded fastText classifier over 176 languages (1 MB; about 100,000 short texts a second on one core).

    One object may be used from several threads.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        """Load `path` (`lid.176.ftz` or `lid.176.bin`), or the embedded model. Raises UserError if it is none."""
        import fasttext

        self.path = Path(path).expanduser() if path is not None else assets.ensure("lid")
        try:
            self._model = fasttext.load_model(str(self.path))
        except ValueError as error:
            raise UserError(
                f"language identification: {error} Name a fastText model such as lid.176.ftz"
            ) from error
        self._lock = threading.Lock()

    def identify(self, text: str) -> tuple[str, float]:
        """The likeliest language ("en", "fr", "zh", ...) and its probability in 0..1.

        Lines are joined, since fastText reads one line at a time. A text without letters gets ("und", 0.0):
        fastText itself calls it English, with a probability of 0.12.
        """
        line = " ".join(text.split())
        if not any(character.isalpha() for character in line):
            return UNDETERMINED, 0.0
        # A lone surrogate cannot be encoded for fastText.
        line = line.encode("utf-8", errors="replace").decode("utf-8")
        with self._lock:
            labels, probabilities = self._model.predict(line, k=1)
        if not labels:
            return UNDETERMINED, 0.0
        # Rounding inside fastText lets a probability end a little above one.
        return labels[0].removeprefix(_LABEL), min(1.0, float(probabilities[0]))

    def identify_batch(self, texts: Sequence[str]) -> list[tuple[str, float]]:
        """`identify` for each text, in order."""
        return [self.identify(text) for text in texts]
