"""A tiny model that writes calls of QA."""

import pytest

from tests.conftest import taught_model
from toolformer.lm.language_model import LanguageModel

CALLING = ("The", "is", "people", "red", "[QA(x)]", "[QA(Joe)]")


@pytest.fixture(scope="session")
def calling_model() -> LanguageModel:
    return taught_model("gpt2", *CALLING)
