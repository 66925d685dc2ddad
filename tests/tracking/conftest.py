"""Results whose runs are logged to MLflow, what MLflow then has, and servers."""

import pytest

from tests.tracking.build import logged_to
from toolformer.results import Results


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Results with the local database, of all tests that need no fresh one; each has steps that no other has."""
    return logged_to(None, tmp_path_factory.mktemp("runs with blank é"))
