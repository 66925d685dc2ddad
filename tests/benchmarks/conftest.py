"""Tasks as lm-eval makes them from their files, and a hub that holds what a test puts there."""

import datasets
import pytest

from tests.benchmarks.build import Hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub()
    monkeypatch.delenv("TOOLFORMER_DATA_DIR", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", made.load_dataset)
    return made
