"""MLflow's interface and server on the runs."""

from __future__ import annotations

import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.tracking.conftest import run, start, wait_for
from toolformer.errors import UserError
from toolformer.tracking import Tracker
from toolformer.ui import serve


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


UI = "import sys; from pathlib import Path; from toolformer.ui import serve; serve(Path(sys.argv[1]), port=int(sys.argv[2]))"


@pytest.mark.parametrize("sign", [signal.SIGINT])
def test_the_interface_serves_the_runs_and_ends_cleanly(
    store: Tracker, port: int, sign: signal.Signals
) -> None:
    with run(store, "shown") as active:
        pass
    process = start(UI, str(store.root), str(port))
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None
        try:
            return bool(urllib.request.urlopen(f"{address}/health", timeout=1).status == 200)
        except OSError:
            return False

    try:
        wait_for(answers, 90)
        # The same server, as a tracking server.
        served = Tracker(address, store.root / "elsewhere")
        assert served.get(active.run_id).stage == "shown"
        with run(served, "served", config={"a": ""}) as remote:
            remote.metrics({"x": 1})
        assert store.get(remote.run_id).metrics["x"] == 1
        assert served.artifact_path(served.get(remote.run_id), "config.yaml").read_text() == "a: ''\n"
    finally:
        process.send_signal(sign)
        output, error = process.communicate(timeout=30)
    assert process.returncode == 0
    assert output.splitlines()[0].startswith(f"MLflow UI: {address} ") and "Traceback" not in error
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))  # nobody holds it any more


def test_the_interface_names_a_taken_port(store: Tracker) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match=f"port {taken.getsockname()[1]} of 127.0.0.1 cannot be used"):
            serve(store.root, port=taken.getsockname()[1])


@pytest.mark.parametrize("uri", ["https://tracking.example.org", "databricks://mine"])
def test_a_store_that_is_a_server_has_pages_of_its_own(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(tmp_path, uri)
    assert capsys.readouterr().out == f"MLflow UI: {uri}\n"


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_one_line(port: int, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"--port is {port}; it must be 0"):
        serve(tmp_path, port=port)
