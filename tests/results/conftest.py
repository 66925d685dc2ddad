"""Results in a fresh folder, and runs in them."""

from pathlib import Path

import pytest

from toolformer.results import Results


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "runs with blank é")
