"""The small corpus written for this project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources

from toolformer.documents.document import Document, document_from_row


def demo_corpus(split: str = "train") -> Iterator[Document]:
    """The documents of a split, `train` or `heldout`."""
    path = resources.files("toolformer") / "corpora" / "demo.jsonl"
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["split"] == split:
                yield document_from_row(row)
