"""What tests of the stages share: a finished pipeline that may be added to, and a place to annotate in."""

import shutil
from pathlib import Path

import pytest

from tests.processes import Place, save_calling_model


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, calling_model: Path) -> Place:
    return Place(tmp_path_factory.mktemp("place"), calling_model)


@pytest.fixture(scope="session")
def answering_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that has learnt to write the calendar's call with a result."""
    folder = tmp_path_factory.mktemp("answering") / "model"
    save_calling_model(folder, "yes")
    return folder


@pytest.fixture
def root(tmp_path: Path, smoke_runs: Path) -> Path:
    """A copy of the runs of the smallest experiment, of the test's own."""
    return Path(shutil.copytree(smoke_runs, tmp_path / "runs"))


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory, smoke_runs: Path) -> Path:
    """A copy of the runs of the smallest experiment, to add to."""
    root = tmp_path_factory.mktemp("pipeline") / "runs"
    shutil.copytree(smoke_runs, root)
    return root
