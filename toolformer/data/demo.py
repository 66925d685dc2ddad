"""The small corpus written for this project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources

from toolformer.data.document import Document, document_from_row

SPLITS = ("train", "heldout", "sums")
"""Texts of all kinds, others of the same kinds, and short ones with a worked sum or two."""


def demo_corpus(split: str = "train") -> Iterator[Document]:
    """The documents of one of the `SPLITS`."""
    path = resources.files("toolformer") / "data" / "corpora" / "demo.jsonl"
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["split"] == split:
                yield document_from_row(row)
