"""A tiny model that writes calls."""

import pytest

from tests.build import PIECES, taught_model
from toolformer.lm.language_model import LanguageModel


@pytest.fixture(scope="session")
def calling_model() -> LanguageModel:
    """A tiny model that writes calls up to their arrow."""
    return taught_model("llama", *PIECES)
