"""Results in a fresh folder, and runs in them."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from toolformer.results import Beginning, Results
from toolformer.step import Step


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "runs with blank é")


def step(name: str = "evaluate", made_from: Step | None = None, **settings: Any) -> Step:
    return Step(name, 1, settings, {"source": made_from} if made_from else {})


def at_work(
    results: Results, of: Step, config: Any = None, name: str = "", **more: Any
) -> AbstractContextManager[Any]:
    """A run at work, whose configuration is by default the settings of its step."""
    more.setdefault("command", f"toolformer {of.name}")
    beginning = Beginning(name or f"a {of.name}", of.settings if config is None else config, **more)
    return results.open(of, beginning)


def made(results: Results, of: Step, **more: Any) -> str:
    """A finished run; returns its id."""
    with at_work(results, of, **more) as folder:
        return str(folder.id)
