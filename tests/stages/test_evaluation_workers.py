"""An evaluation by several workers gives the samples and scores of one, also where a worker dies."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from tests.conftest import smoke_words
from tests.processes import PATIENCE
from toolformer.cli import main
from toolformer.tracking import Tracker

pytestmark = pytest.mark.chaos
TASKS = ("dateset", "arithmetic", "heldout_perplexity")
TWO = ["engine.workers=2", "engine.threads=1"]


def words(root: Path, *more: str) -> list[str]:
    asked = [f"benchmarks=[{','.join(TASKS)}]", "evaluation.limit=10", "system=toolformer"]
    return ["evaluate", *smoke_words(root), *asked, *more]


def outcome(root: Path) -> dict[str, Any]:
    """The samples of each task and the metrics, without what they took."""
    metrics = {
        name: value
        for name, value in Tracker(None, root).runs("evaluate")[0].metrics.items()
        if "second" not in name and not name.startswith("tool")
    }
    samples = {}
    for task in TASKS:
        (path,) = [
            path for path in root.glob(f"evaluate/*/*/{task}.parquet") if pq.read_metadata(path).num_rows > 4
        ] or [max(root.glob(f"evaluate/*/*/{task}.parquet"), key=lambda path: path.stat().st_mtime)]
        samples[task] = pq.read_table(path).drop_columns(["seconds"]).to_pylist()
    return {"metrics": metrics, **samples}


@pytest.fixture(scope="module")
def alone(pipeline: Path) -> dict[str, Any]:
    root = pipeline.parent / "alone"
    shutil.copytree(pipeline, root)
    assert main(words(root, "engine.threads=1")) == 0
    return outcome(root)


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_two_workers_give_the_same(
    pipeline: Path, alone: dict[str, Any], tmp_path: Path, engine: str
) -> None:
    if engine == "ray" and not importlib.util.find_spec("ray"):
        pytest.skip("ray is not installed")
    shutil.copytree(pipeline, tmp_path / "runs")
    assert main(words(tmp_path / "runs", *TWO, f"engine={engine}")) == 0
    assert outcome(tmp_path / "runs") == alone
    assert not list(tmp_path.glob("runs/evaluate/*/answers-*"))


def test_a_worker_that_is_killed_costs_nothing(pipeline: Path, alone: dict[str, Any], tmp_path: Path) -> None:
    root = tmp_path / "runs"
    shutil.copytree(pipeline, root)
    command = [sys.executable, "-m", "toolformer.cli", *words(root, *TWO)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        limit = time.monotonic() + PATIENCE
        while not (shares := list(root.glob("evaluate/*/answers-1-of-2.jsonl.lock"))):
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.02)
        workers = [
            child
            for child in psutil.Process(process.pid).children()
            if "spawn_main" in " ".join(child.cmdline())
        ]
        assert len(workers) == 2 and shares
        workers[-1].kill()
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert "ended with code -9; this process answers the rest" in errors
    assert outcome(root) == alone
