"""What works here: the doctor on this machine, and on one where things are missing."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from toolformer.cli import doctor, main


def found(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["doctor", "--json", *words]) == code
    return {finding["what"]: finding for finding in json.loads(capsys.readouterr().out)}


def test_a_machine_that_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (f"paths.root={tmp_path / 'runs'}", f"paths.cache={tmp_path / 'cache'}")
    seen = found(capsys, 0, *words)
    assert "torch" in seen["libraries"]["found"] and seen["libraries"]["state"] == "works"
    assert seen["assets"]["state"] == "absent" and "assets" in seen["assets"]["fix"]
    assert seen["runs"]["state"] == "works" and "lm.dtype=auto is" in seen["device"]["found"]
    assert not list(tmp_path.iterdir()), "nothing was made"


def test_what_is_needed_and_does_not_work_is_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(doctor, "NEEDED_GIB", 10**9)
    words = (f"paths.root={tmp_path}", f"tracking.uri=http://me:hunter2@127.0.0.1:{port}")
    seen = found(capsys, 1, *words)
    assert seen["runs"]["state"] == "fault" and "paths.root" in seen["runs"]["fix"]
    assert seen["tracking"]["state"] == "fault" and "hunter2" not in str(seen)
    assert main(["doctor", f"paths.root={tmp_path}"]) == 1
    assert "no  runs" in capsys.readouterr().out


def test_what_to_install_is_printed_in_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "is_there", lambda module: False)
    assert main(["doctor", f"paths.root={tmp_path}"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("--  peft")]
    assert line.rstrip().endswith("pip install 'toolformer[lora]'")


@pytest.mark.parametrize(
    ("status", "state", "said"), [(200, "works", "answers"), (503, "fault", "answers with status 503")]
)
def test_a_server_works_if_it_says_so(
    status: int, state: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        seen = found(capsys, int(state == "fault"), f"paths.root={tmp_path}", f"tracking.uri={address}")
        server.shutdown()
    assert (seen["tracking"]["state"], seen["tracking"]["found"]) == (state, f"{address} {said}")
