"""How fast languages are identified, and how that compares with fastText's own `predict`, in one run on one core.

    python -m benchmarks.speed.language_id [chunks=30000] [rounds=5]

The chunks are the ten-token windows that the selection for translation asks about, of the embedded Wikipedia summaries.
Both sides read blocks of them in turn, and the best round of each block counts, in processor time: what other programs
on the machine do meanwhile counts as little as can be. Prints a table, and on the last line one JSON object:
`chunks_per_second` and `ratio_to_bare_predict` (`identify`'s speed over fastText's).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import fasttext

from benchmarks.speed.arguments import given, run
from benchmarks.speed.machine import show
from toolformer.annotation.select import CHUNK
from toolformer.data.numbers import TOKEN
from toolformer.lm.language_id import LanguageIdentifier
from toolformer.tools.retrieval.passages import wikipedia_documents

BLOCK = 500
"""Chunks that are timed together: each block's best round counts."""


def windows(count: int) -> list[str]:
    """The first ten-token windows of the summaries."""
    found: list[str] = []
    for document in wikipedia_documents():
        spans = [match.span() for match in TOKEN.finditer(document.text)]
        found += [
            document.text[spans[n][0] : spans[n + CHUNK - 1][1]].replace("\n", " ")
            for n in range(len(spans) - CHUNK + 1)
        ]
        if len(found) >= count:
            break
    return found[:count]


def main(arguments: Sequence[str]) -> None:
    options = given(arguments, {"chunks": "30000", "rounds": "5"})
    chunks, rounds = windows(int(options["chunks"])), int(options["rounds"])
    identifier = LanguageIdentifier()
    model = fasttext.load_model(str(identifier.path))

    sides = {"fastText's predict": model.predict, "identify": identifier.identify}
    seconds = dict.fromkeys(sides, 0.0)
    for start in range(0, len(chunks), BLOCK):
        block = chunks[start : start + BLOCK]
        best = dict.fromkeys(sides, float("inf"))
        for _ in range(rounds):  # in turn: a slow moment of the machine is everybody's
            for name, side in sides.items():
                started = time.process_time()
                for chunk in block:
                    side(chunk)
                best[name] = min(best[name], time.process_time() - started)
        for name in sides:
            seconds[name] += best[name]

    slow, fast = seconds["identify"], seconds["fastText's predict"]
    show(
        f"{len(chunks)} chunks of {CHUNK} tokens, {identifier.path.name}",
        ("", "chunks/s", "microseconds a chunk"),
        [
            (name, f"{len(chunks) / taken:,.0f}", f"{taken / len(chunks) * 1e6:.1f}")
            for name, taken in seconds.items()
        ],
        {"chunks_per_second": round(len(chunks) / slow), "ratio_to_bare_predict": round(fast / slow, 3)},
    )


if __name__ == "__main__":
    run("language_id", main)
