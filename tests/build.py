"""What tests of several packages build: data folders of benchmarks; prompts, tools and steered models for decoding."""

import datetime
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from toolformer.data import Document
from toolformer.decoding.batch import Row
from toolformer.decoding.decoder import Decoder
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result, Tool

SVAMP = {"id": "chal-1", "body": "Each pack costs 76 dollars.", "question": "How much?", "answer": 76.0}
ASDIV = [
    {"id": "nluds-0001", "body": "Two and 7.", "question": "How many?", "answer": "9 (apples)"},
    {"id": "nluds-0002", "body": "A recipe.", "question": "Which ratio?", "answer": "2:1"},
    {"id": "nluds-0003", "body": "Two boxes.", "question": "How many each?", "answer": "3 (red); 4 (blue)"},
    {"id": "nluds-0004", "body": "A race.", "question": "Who won?", "answer": "Tim"},
    {"id": "nluds-0005", "body": "A pizza.", "question": "How much is left?", "answer": "1/2 (pizza)"},
]
MAWPS = [
    {"id": 1, "question": " 56 books on 9 shelves? ", "equations": ["56*9=x"], "solutions": [504.0]},
    {"id": 2, "question": "41 and 57 trees?", "equations": ["X = 41 + 57"], "solutions": ["98"]},
    {"id": 3, "question": "Two numbers?", "equations": ["x+y=3"], "solutions": [1, 2]},
]


def write(folder: Path, name: str, rows: list[dict[str, Any]], text: str | None = None) -> Path:
    path = folder / f"{name}.jsonl.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(text if text is not None else "".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_math(folder: Path) -> None:
    """The three benchmarks of math: six questions of SVAMP, two of ASDiv and two of MAWPS that are kept."""
    write(folder, "svamp/svamp", [{**SVAMP, "id": str(n), "answer": float(n)} for n in range(6)])
    write(folder, "asdiv/asdiv", ASDIV)
    write(folder, "mawps/mawps_full", MAWPS)


PROMPTS = [
    "The number in the next term is",
    "Joe Biden was born in",
    "Today is the first Monday of the year, and the population is 658,893 people. This is",
    "red",
    "Where was the average of the term",
]
DOCUMENTS = [
    Document(f"p{n}", prompt, date=datetime.date(2021, 3, n + 1)) for n, prompt in enumerate(PROMPTS)
]


CALLING = [f"{prompt} people is" for prompt in PROMPTS]
PIECES = ("The", "is", "people", "[QA(ab) -> AB 1]", "[QA(abcd) -> AB 2]")
"""What tiny models of these tests are trained to write, in any order."""


class Shout(Tool):
    """Answers in capitals, and with the document's day; an odd number of letters gets no answer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: list[list[str]] = []

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        self.batches.append(list(inputs))
        return [
            Result(f"{text.upper()} {document.date}") if len(text) % 2 == 0 else Result(reason="odd")
            for text, document in zip(inputs, documents, strict=True)
        ]


def tools() -> dict[str, Shout]:
    return {"qa": Shout("QA"), "calculator": Shout("Calculator"), "calendar": Shout("Calendar")}


def steer(monkeypatch: pytest.MonkeyPatch, wanted: Callable[[Decoder, Row], int | None]) -> None:
    """Makes models want this token next to what a row has, where there is one."""
    real = Decoder._choose

    def steered(self: Decoder, logits: torch.Tensor, rows: list[Row], *more: Any) -> list[int]:
        for n, row in enumerate(rows):
            token = wanted(self, row)
            if token is not None:
                logits[n, token] = 1e4
        return real(self, logits, rows, *more)

    monkeypatch.setattr(Decoder, "_choose", steered)


def force(monkeypatch: pytest.MonkeyPatch, language_model: LanguageModel, prompt: str, wanted: str) -> None:
    """Makes the model want to continue `prompt` with exactly `wanted`, whatever was fed in which batch."""
    base = language_model.encode(prompt)
    target = language_model.tokenizer(prompt + wanted, add_special_tokens=False).input_ids
    assert target[: len(base)] == base

    def following(_: Decoder, row: Row) -> int:
        so_far = row.context + row.written
        return target[len(so_far)] if so_far == target[: len(so_far)] and len(so_far) < len(target) else 0

    steer(monkeypatch, following)
