"""A tiny model that writes calls of QA."""

import pytest

from tests.build import QA_PIECES, taught_model
from toolformer.lm.language_model import LanguageModel


@pytest.fixture(scope="session")
def calling_model() -> LanguageModel:
    return taught_model("gpt2", *QA_PIECES)
