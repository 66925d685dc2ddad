"""The model as Transformers has it, for the sides that the product is held to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from toolformer import products
from toolformer.language_model import FORCE_GQA, LanguageModel


@contextmanager
def stock(language_model: LanguageModel) -> Iterator[None]:
    """Takes back for a while what the product changes in the model's forward pass."""
    before = os.environ.pop(FORCE_GQA, None)
    try:
        with products.as_it_was(language_model.model):
            yield
    finally:
        if before is not None:
            os.environ[FORCE_GQA] = before
