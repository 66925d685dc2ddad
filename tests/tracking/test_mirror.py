"""A server's copy of local runs, whole, made once and never in the way of a run; and MLflow's interface on the runs."""

import http.client
import http.server
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from toolformer.tracking.entities import Dataset
from toolformer.tracking.run import now

from tests.conftest import Capture, Log, Patch, Refused, free_port, wait_for
from tests.tracking.conftest import answers, run, start
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.results.provenance import describe
from toolformer.tracking import Tracker, mirror, registry
from toolformer.tracking.ui import serve


@pytest.fixture
def served(tmp_path: Path) -> Tracker:
    """A tracker whose server is another database: what is copied does not hang on how it is reached."""
    return Tracker(f"sqlite:///{tmp_path / 'there' / 'mlflow.db'}", tmp_path / "runs")


def elsewhere(tracker: Tracker) -> Tracker:
    """What another machine finds."""
    assert tracker.server
    return Tracker(tracker.server.uri, tracker.root.parent / "another machine")


def test_a_run_is_whole_on_the_server(served: Tracker, tmp_path: Path) -> None:
    result = tmp_path / "result.txt"
    result.write_text("result")
    parent = served.parent_run("sweep", "a sweep")
    with served.reopened(parent):
        assert served.get(parent).status == "RUNNING"
    with run(served, "train", "first") as first:
        pass
    made_from = describe("", {}, [served.get(first.run_id)])
    with run(served, "train", config={"a": 1}, parent=parent, description=made_from) as active:
        for step in range(3):
            active.metrics({"loss": 3.0 - step, "rate": 0.5}, step=step)
        served.store.log(active.run_id, metrics=[("long", 0.5, now(), step) for step in range(2500)])
        active.artifact(result, "samples")
        active.model("toolformer", tmp_path, {"data": "augmented"})
        active.datasets(Dataset("corpus", "3f2a", "training", "FILE", 3))
        active.tags({"after": 1})
    local, far = served.get(active.run_id), elsewhere(served)
    copy = far.resolve("train", active.run_id[:8])
    assert (copy.run_id, copy.name, copy.params) == (local.run_id, local.name, local.params)
    assert (copy.status, copy.started, copy.ended) == (local.status, local.started, local.ended)
    assert copy.metrics == local.metrics and copy.tags["after"] == "1"
    assert far.server
    with far.server.faults() as client:
        (data,) = client.get_run(copy.stored_as).inputs.dataset_inputs
    source = '{"uri": "FILE"}'
    assert (data.dataset.name, data.dataset.digest, data.dataset.source) == ("corpus", "3f2a", source)
    assert far.history(copy, "loss") == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert far.history(copy, "long") == [(step, 0.5) for step in range(2500)], "more than one request takes"
    assert far.artifact_path(copy, "samples/result.txt").read_text() == "result"
    with pytest.raises(UserError, match="has no absent"):
        far.artifact_path(copy, "absent")
    assert registry.resolve(far, "models:/toolformer/latest").run_id == active.run_id
    # MLflow's own pages follow its own ids.
    assert far.get(copy.stored_as).run_id == far.get(active.run_id).run_id == active.run_id
    assert copy.tags["mlflow.parentRunId"] == far.get(parent).stored_as
    assert f"(#/runs/{far.get(first.run_id).stored_as})" in copy.tags["mlflow.note.content"]
    assert served.pending() == [] and served.push() == (0, [])


def test_runs_made_without_a_server_are_pushed_once(
    served: Tracker, capsys: Capture, refused: Refused
) -> None:
    alone = Tracker(None, served.root)
    for fingerprint in ("a", "b"):
        with run(alone, "pushed", fingerprint) as active:
            active.metrics({"loss": 1.0}, step=1)
    assert len(served.pending()) == 2 and len(served.runs("pushed")) == 2
    assert served.server
    words = [f"paths.root={served.root}", f"tracking.uri={served.server.uri}"]
    for copied in ("2 runs copied to", "0 runs copied to"):
        assert main(["runs", "push", *words]) == 0
        assert copied in capsys.readouterr().out
    assert len(elsewhere(served).runs("pushed")) == 2
    assert len(served.runs("pushed")) == 2, "a local run and its copy are one"
    assert "tracking.uri=" in refused("runs", "push", f"paths.root={served.root}")


def test_what_a_server_refuses_holds_nothing_else_back(served: Tracker, tmp_path: Path, caplog: Log) -> None:
    assert served.server
    with served.server.faults() as client:
        place = tmp_path / "a folder of somebody's"
        client.create_experiment("toolformer", artifact_location=place.as_uri())
    with run(served, "refused") as active:
        active.metrics({"loss": 1.0}, step=1)
    assert not place.exists() and "neither behind its address" in caplog.text
    copy = elsewhere(served).get(active.run_id)
    assert copy.status == "FINISHED" and copy.metrics["loss"] == 1.0
    assert [pending.run_id for pending in served.pending()] == [active.run_id]
    (fault,) = served.push()[1]
    assert "neither behind its address" in str(fault)
    with served.server.faults() as client:  # what is deleted there stays deleted
        client.delete_run(copy.stored_as)
    assert served.pending() == [] == elsewhere(served).runs("refused")
    assert served.get(active.run_id).status == "FINISHED"


def test_a_dead_server_costs_no_run_and_one_warning(tmp_path: Path, monkeypatch: Patch, caplog: Log) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    dead = Tracker(f"http://me:hunter2@127.0.0.1:{free_port()}", tmp_path / "runs")
    for fingerprint in ("a", "b"):
        with run(dead, "dead", fingerprint, config={"a": 1}) as active:
            active.metrics({"loss": 1.0}, step=1)
    newest = dead.latest("dead")
    assert newest is not None and newest.run_id == active.run_id and newest.status == "FINISHED"
    assert dead.history(newest, "loss") == [(1, 1.0)] and dead.artifact_path(newest, "config.yaml").is_file()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "does not answer" in warning and "toolformer runs push" in warning and "hunter2" not in warning
    with pytest.raises(UserError, match="does not answer"):
        dead.get("0" * 32)  # somebody else's, or nobody's


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"<html>log in</html>", r"refuses access \(HTTP 401\): set MLFLOW_TRACKING_USERNAME"),
        (403, b'{"error_code": "PERMISSION_DENIED"}', r"refuses access \(PERMISSION_DENIED"),
        (200, b"<html>log in</html>", "answers, and not as an MLflow server does"),
        (200, b'{"experiments": 5}', "answers, and not as an MLflow server does"),
        (404, b"<html>no</html>", r"answers, and not as an MLflow server does \(HTTP 404\)"),
    ],
)
def test_a_server_that_is_none_is_one_line(
    tmp_path: Path, monkeypatch: Patch, caplog: Log, status: int, body: bytes, said: str
) -> None:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tracker = Tracker(f"http://127.0.0.1:{server.server_port}", tmp_path)
        assert tracker.all_runs() == []
        server.shutdown()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert re.search(said, warning) and "disk" not in warning and "<html>" not in warning


def mlflow_server(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """MLflow's own tracking server, the leader of a group of processes."""
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--artifacts-destination", (folder / "files").as_uri()]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return subprocess.Popen(command, env=environment, start_new_session=True)


@pytest.mark.chaos
def test_a_server_that_hangs_or_dies_under_a_run_gets_the_rest_later(
    tmp_path: Path, monkeypatch: Patch, caplog: Log
) -> None:
    monkeypatch.setattr(mirror, "EVERY", 0.2)
    monkeypatch.setattr(mirror, "CLOSING", 0.5)
    port = free_port()
    server = mlflow_server(tmp_path, port)
    tracker = Tracker(f"http://127.0.0.1:{port}", tmp_path / "runs")
    result = tmp_path / "result.txt"
    result.write_text("result")

    def on_server(key: str, value: float) -> bool:
        copies = elsewhere(tracker).all_runs(stage="hung")
        return bool(copies) and copies[0].metrics.get(key) == value

    try:
        wait_for(lambda: answers(port), 180)
        with run(tracker, "hung", config={"a": 1}) as active:
            active.metrics({"loss": 2.0}, step=0)
            wait_for(lambda: on_server("loss", 2.0), 60)  # it is copied while the run is at work
            os.killpg(server.pid, signal.SIGSTOP)  # it takes connections and answers none of them
            active.metrics({"loss": 1.0}, step=1)
            active.artifact(result, "samples")
        assert tracker.get(active.run_id).status == "FINISHED"
        assert "is slow" in caplog.text, "its end waited for a while only"
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        server = mlflow_server(tmp_path, port)
        wait_for(lambda: answers(port), 180)
        Tracker(f"http://127.0.0.1:{port}", tracker.root).push()
        wait_for(lambda: tracker.pending() == [], 60)
        far = elsewhere(tracker)
        copy = far.get(active.run_id)
        assert copy.status == "FINISHED" and copy.params["a"] == "1"
        assert far.history(copy, "loss") == [(0, 2.0), (1, 1.0)]
        assert far.artifact_path(copy, "samples/result.txt").read_text() == "result"
    finally:
        os.killpg(server.pid, signal.SIGKILL)


UI = """
    import os, sys
    from pathlib import Path
    from toolformer.tracking.ui import serve
    os.chdir(sys.argv[3])
    sys.path.remove("")  # as a console script has it
    serve(Path(sys.argv[1]), port=int(sys.argv[2]))
"""


@pytest.mark.chaos
def test_the_interface_serves_the_runs_of_a_moved_root_to_this_machine_alone(
    store: Tracker, tmp_path: Path
) -> None:
    port = free_port()
    with run(store, "shown", config={"a": 1}) as active:
        pass
    for module in ("mlflow", "uvicorn", "sqlite3"):  # a folder with code of somebody else's
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'w')")
    process = start(UI, str(store.root), str(port), str(tmp_path))

    def get(path: str, host: str = f"127.0.0.1:{port}") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read()

    try:
        wait_for(lambda: answers(port), 300)
        shown = f"/api/2.0/mlflow/runs/get?run_id={active.run_id}"
        status, body = get(shown)
        assert status == 200 and json.loads(body)["run"]["info"]["status"] == "FINISHED"
        assert get(f"/get-artifact?path=config.yaml&run_id={active.run_id}") == (200, b"a: 1\n")
        assert get(shown, f"localhost:{port}")[0] == 200
        for host in ("10.evil.example", f"10.evil.example:{port}", f"evil.example:{port}"):
            assert get(shown, host)[0] == 403
        (server,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert b"mlflow.db" not in Path(f"/proc/{server}/cmdline").read_bytes()
    finally:
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=30)
    assert process.returncode == 0
    assert output.startswith(f"MLflow UI: http://127.0.0.1:{port}/#/experiments/1/runs?")
    assert "Traceback" not in error
    assert not (tmp_path / "was_run").exists()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)


def test_a_port_that_is_taken_is_one_line(store: Tracker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UserError, match=rf"--port {port} of 127.0.0.1 cannot be had \(Address already in use\)"
        ):
            serve(store.root, port=port)


def test_a_server_has_pages_of_its_own(store: Tracker, capsys: Capture) -> None:
    serve(store.root, "databricks://mine")
    assert capsys.readouterr().out == "MLflow UI: databricks://mine\n"


@pytest.mark.chaos
def test_that_there_is_no_login_is_said_where_others_can_come(store: Tracker) -> None:
    program = "import sys; from pathlib import Path; from toolformer.tracking.ui import serve; serve(Path(sys.argv[1]), host='0.0.0.0', port=int(sys.argv[2]))"
    process = start(program, str(store.root), str(free_port()))
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert "there is no login" in process.communicate(timeout=30)[1]
