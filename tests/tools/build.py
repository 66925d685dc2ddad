"""Builders of the tests of tools."""

import os
from pathlib import Path
from typing import Any

from tests.build import OTHER_DOCUMENT
from toolformer.data import Document
from toolformer.tools.retrieval.passages import Retriever


class Hostile:
    """What an attacker puts into a pickle."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.target),))


def titles(retriever: Retriever, query: str, k: int = 1, document: Document = OTHER_DOCUMENT) -> list[str]:
    (found,) = retriever.retrieve([query], k, [document])
    return [passage.title for passage in found]
