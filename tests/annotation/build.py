"""Builders of the tests of the annotation: documents, windows, candidates and a tool."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from tests.build import Recorder
from toolformer.annotation.candidates import (
    Candidate,
    Filtering,
    ToolSettings,
    longest_window,
)
from toolformer.annotation.merge import KeptCall, decide, kept_calls
from toolformer.annotation.score import PAPER
from toolformer.annotation.windows import Window, windows
from toolformer.calls import ApiCall
from toolformer.data import Document
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result
from toolformer.tools.prompt_sets import Prompt

BORN = (
    "Joe Biden was born in Scranton.",
    'Joe Biden was born in [QA("Where was Joe Biden born?")] Scranton.',
)


PROMPT = Prompt(
    'Add calls. You can call the API by writing "[QA(question)]". Here are some examples of API calls:',
    (BORN,),
)


QA = ToolSettings("qa", "QA", PROMPT, start_threshold=0.0, max_positions=4, samples=3, max_call_tokens=12)


TEXTS = [
    "The population is 658,893 people.",
    "red is for the blood of martyrs, the first Monday of the year 北京 is 11.4% of the national average. Today",
    "x",
]


DOCUMENTS = [Document(f"d{n}", text, date=datetime.date(2020, 5, n + 1)) for n, text in enumerate(TEXTS)]


def whole_window(language_model: LanguageModel, document: Document) -> Window:
    encoding = language_model.encode_text(document.text)
    return Window(document, encoding, 0, len(encoding.ids))


def whole_windows(language_model: LanguageModel, documents: list[Document] = DOCUMENTS) -> list[Window]:
    return [whole_window(language_model, document) for document in documents]


def windows_of(
    model: LanguageModel, text: str, settings: ToolSettings, *spans: tuple[int, int]
) -> list[Window]:
    """The windows of a text, or of spans of it."""
    encoding = model.encode_text(text)
    spans = spans or ((0, len(text)),)
    longest, overlap = longest_window(model, settings), settings.window_overlap
    return windows(Document("d", text), encoding, spans, longest, overlap)


def candidate(window: Window, i: int, call: ApiCall | None, **fields: Any) -> Candidate:
    values = {"tool": "qa", "token_position": i, "start_probability": 0.5, "sample": 0, "text": "", **fields}
    return Candidate(window=window, call=call, **values)


class Recording(Recorder):
    """Answers in capitals."""

    def __init__(self) -> None:
        super().__init__(lambda text: Result(text.upper()) if text else Result(reason="nothing asked"), "QA")


def keep(
    rows: Sequence[Mapping[str, Any]], thresholds: Mapping[str, float], baseline: str = PAPER
) -> dict[str, list[KeptCall]]:
    """The kept calls of each document."""
    return kept_calls(rows, decide(rows, thresholds, Filtering(baseline)))
