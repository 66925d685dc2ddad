"""What works here: the doctor on this machine, and on one where things are missing."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from toolformer.cli import main


def found(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["doctor", "--json", *words]) == code
    return {one["what"]: one for one in json.loads(capsys.readouterr().out)}


def test_a_machine_that_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # where there is none
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
