"""A store, and what starts processes on it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
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


def wait_for(condition: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def run(tracker: Tracker, stage: str, fingerprint: str = "f", **more: Any) -> Any:
    more.setdefault("config", {})
    return tracker.run(stage=stage, name=f"a {stage}", fingerprint=fingerprint, **more)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """MLflow's own tracking server, to be killed and started again."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port, self.address = port, f"http://127.0.0.1:{port}"
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--workers", "1"]
        command += ["--artifacts-destination", (self.folder / "files").as_uri()]
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        wait_for(self._answers, 180)

    def _answers(self) -> bool:
        assert self._process and self._process.poll() is None
        try:
            return bool(urllib.request.urlopen(f"{self.address}/health", timeout=1).status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, 9)
            self._process.wait()

    def hang(self) -> None:
        """From now on it takes connections and answers none of them, until `go_on`."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests of a module: to start it takes many seconds."""
    server = Server(tmp_path_factory.mktemp("server"), free_port())
    try:
        server.start()
        yield server
    finally:
        server.kill()
