"""A store, and what starts processes on it."""

import subprocess
import sys
import textwrap
import urllib.request
from contextlib import suppress
from typing import Any

import pytest

from toolformer.tracking import Tracker


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Tracker:
    """One store for all tests that do not need a fresh one; each uses a stage name of its own."""
    tracker = Tracker(None, tmp_path_factory.mktemp("store with blank é"))
    tracker.store.prepare()
    return tracker


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(tracker: Tracker, stage: str, fingerprint: str = "f", **more: Any) -> Any:
    more.setdefault("config", {})
    return tracker.run(stage=stage, name=f"a {stage}", fingerprint=fingerprint, **more)


def answers(port: int) -> bool:
    """Whether a server of MLflow's answers there."""
    with suppress(OSError):
        return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).status == 200)
    return False
