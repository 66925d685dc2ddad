"""What MLflow is told of runs, live and at their end, and that no store holds a run up."""

import http.server
import logging
import os
import re
import shutil
import signal
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Log, Patch, free_port, wait_for
from tests.results.conftest import at_work, made, step
from tests.tracking.conftest import (
    answers,
    evaluate,
    history,
    logged_to,
    mlflow_server,
    row,
    rows,
    start,
    train,
)  # fmt: skip
from toolformer.results import Results
from toolformer.results.provenance import describe
from toolformer.step import Step
from toolformer.tracking import Store, log_pages, logger


def warnings(caplog: Log) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_run_is_whole_in_mlflow(results: Results, caplog: Log) -> None:
    run_id = train(results, lr=0.1)
    logged, run = row(results, run_id), results.get(run_id)
    assert logged.info.run_name == f"a train {run_id[:8]}" and logged.info.status == "FINISHED"
    assert logged.info.start_time == int(1000 * run.started.timestamp())
    assert run.ended and logged.info.end_time == int(1000 * run.ended.timestamp())
    assert logged.data.params == {"lr": "0.1"}
    expected = {"stage": "train", "key": run_id, "experiment": "mine", "data": "augmented"}
    expected |= {"mlflow.source.name": "toolformer train"}
    assert expected.items() <= logged.data.tags.items() and "git_commit" in logged.data.tags
    assert (
        logged.data.metrics["best_heldout_perplexity"] == 5.5 and logged.data.metrics["duration_seconds"] > 0
    )
    assert history(results, run_id, "loss") == [(0, 3.0), (1, 2.0), (2, 1.0)]
    (data,) = (used.dataset for used in logged.inputs.dataset_inputs)
    assert (data.name, data.digest, data.source) == ("corpus", "3f2a", '{"uri": "FILE"}')
    files = results.root / "artifacts" / logged.info.run_id / "artifacts"
    names = {"step.json", "config.yaml", "result.json", "metrics.jsonl", "note.txt"}
    assert {path.name for path in files.iterdir()} == names, "no weights"
    assert run.is_sent("local") and warnings(caplog) == []


def test_a_trained_model_is_registered_and_has_its_scores(results: Results) -> None:
    training, evaluation = train(results, lr=0.2), evaluate(results, lr=0.2)
    (output,) = row(results, training).outputs.model_outputs
    with Store(results.root).faults() as client:
        model = client.get_logged_model(output.model_id)
        versions = client.search_model_versions("name = 'toolformer'")
    assert row(results, training).info.run_id in [version.run_id for version in versions]
    assert model.tags["model_path"].endswith(f"{training}/model")
    assert [(metric.key, metric.value) for metric in model.metrics] == [("Score/svamp", 12.5)]
    assert [used.model_id for used in row(results, evaluation).inputs.model_inputs] == [output.model_id]


def test_metrics_are_logged_while_a_run_is_at_work(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.2")
    results = logged_to(None, tmp_path, system_metrics=True)
    with at_work(results, step(live=True)) as folder:
        folder.metrics({"loss": 2.0}, step=7)
        for name in ("loss", "system/cpu_utilization_percentage"):
            wait_for(lambda name=name: name in metrics(results, folder.id), 90)
        assert row(results, folder.id).info.status == "RUNNING"


def metrics(results: Results, run_id: str) -> dict[str, float]:
    """Those that MLflow has by now."""
    return {key: value for run in rows(results, key=run_id) for key, value in run.data.metrics.items()}


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("broken\nhere"), "FAILED"), (KeyboardInterrupt(), "KILLED")]
)
def test_a_run_that_continues_continues_its_mlflow_run(
    results: Results, error: BaseException, status: str
) -> None:
    with pytest.raises(type(error)), at_work(results, step(ends=status), {"a": 1, "workers": 2}) as folder:
        folder.metrics({"loss": 4.0}, step=0)
        raise error
    failed = row(results, folder.id)
    assert failed.info.status == status and failed.data.tags["error"].startswith(type(error).__name__)
    with at_work(results, step(ends=status), {"a": 1, "workers": 8, "new": "x"}) as folder:
        folder.metrics({"loss": 3.0}, step=1)
    finished = row(results, folder.id)
    assert finished.info.run_id == failed.info.run_id and finished.info.status == "FINISHED"
    assert finished.data.params == {"a": "1", "workers": "2", "new": "x"}
    assert finished.data.tags["changed.workers"] == "8"
    assert history(results, folder.id, "loss") == [(0, 4.0), (1, 3.0)]


def test_the_configuration_is_logged_whole(results: Results) -> None:
    config: dict[str, Any] = {
        "many": {f"key{n}": n for n in range(250)}, "long": "é" * 700, "empty": "", "tools": ["qa", "calendar"],
        "nested": [{"a": 1}, [2, 3]], "none": None, "odd key!": 1, "no": {},
    }  # fmt: skip
    params = row(results, made(results, step(whole=True), config=config)).data.params
    assert len(params) == 250 + 8
    expected = {"many.key249": "249", "tools": '["qa", "calendar"]', "nested.0.a": "1", "nested.1": "[2, 3]"}
    assert (expected | {"none": "null", "odd key_": "1"}).items() <= params.items()
    assert len(params["long"]) == 500 and "sha256" in params["long"]


def test_a_sweep_is_the_parent_and_links_lead_to_mlflows_runs(results: Results) -> None:
    sweep = made(results, Step("sweep", 1, {"over": "seed"}))
    source = made(results, step("train"))
    text = describe("", {}, [results.get(source)])
    child = made(results, step("evaluate", step("train")), parent=sweep, description=text)
    tags = row(results, child).data.tags
    assert tags["mlflow.parentRunId"] == row(results, sweep).info.run_id
    assert f"(#/runs/{row(results, source).info.run_id})" in tags["mlflow.note.content"]
    assert tags["made_from"] == source


def test_the_description_of_a_finished_run_begins_with_its_result(results: Results) -> None:
    note = row(results, evaluate(results, lr=0.4)).data.tags["mlflow.note.content"]
    assert note.startswith("With its tools the model solves 12.5 % of the word problems of svamp.")


def test_no_secret_reaches_mlflow(tmp_path: Path) -> None:
    secret = "hunter2-correct-horse"
    results = logged_to(None, tmp_path / "runs")
    config = {"tool_sources": [{"args": [secret], "env": {"A": secret}}], "uri": f"http://{secret}@h"}
    with pytest.raises(ValueError), at_work(results, step(), config, name=f"http://me:{secret}@h") as folder:
        folder.note(endpoint=f"http://u:{secret}@h/")
        raise ValueError(f"no http://me:{secret}@h/x")
    assert row(results, folder.id).data.params["tool_sources.0.env.A"] == "***"
    stored = b"".join(path.read_bytes() for path in results.root.rglob("*") if path.is_file())
    assert secret.encode() not in stored


def test_pages_are_attached_in_place_of_earlier_ones(results: Results, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    log_pages(None, tmp_path, "mine", [page])
    assert not (tmp_path / "mlflow.db").exists(), "a report alone makes none"
    made(results, step(reported=True))
    for text in ("old", "new"):
        page.write_text(text)
        log_pages(None, results.root, "it's mine", [page])
    (report,) = rows(results, report="it's mine")
    assert report.info.run_name == "report it's mine" and report.info.status == "FINISHED"
    (file,) = (results.root / "artifacts" / report.info.run_id / "artifacts").iterdir()
    assert file.read_text() == "new"


def test_a_dead_server_costs_no_run_and_one_warning(tmp_path: Path, monkeypatch: Patch, caplog: Log) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    results = logged_to(f"http://me:hunter2@127.0.0.1:{free_port()}", tmp_path / "runs")
    for number in range(2):
        run = results.get(made(results, step(number=number)))
        assert run.status == "FINISHED" and not run.mlflow_ids
    (warning,) = warnings(caplog)
    assert "does not answer" in warning and "toolformer runs push" in warning and "hunter2" not in warning


def test_a_slow_server_holds_the_end_of_a_run_for_a_while_only(
    tmp_path: Path, monkeypatch: Patch, caplog: Log
) -> None:
    monkeypatch.setattr(logger, "CLOSING", 0.2)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as silent:
        # It takes connections, and nobody answers.
        results = logged_to(f"http://127.0.0.1:{silent.server_port}", tmp_path)
        for number in range(2):
            assert results.get(made(results, step(number=number))).status == "FINISHED"
    assert len(warnings(caplog)) == 1 and "is slow; " in warnings(caplog)[0]


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, b"<html>log in</html>", r"refuses access \(HTTP 401\): set MLFLOW_TRACKING_USERNAME"),
        (403, b'{"error_code": "PERMISSION_DENIED"}', r"refuses access \(PERMISSION_DENIED"),
        (200, b'{"experiments": 5}', "answers, and not as an MLflow server does"),
        (404, b"<html>no</html>", r"answers, and not as an MLflow server does \(HTTP 404\)"),
    ],
)
def test_another_kind_of_server_is_one_line(
    tmp_path: Path, monkeypatch: Patch, caplog: Log, status: int, body: bytes, message: str
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
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{running.server_port}"
        made(logged_to(address, tmp_path), step())
        running.shutdown()
    (warning,) = [warning for warning in warnings(caplog) if address in warning]
    assert re.search(message, warning) and "disk" not in warning and "<html>" not in warning


@pytest.mark.parametrize(
    ("file", "message"), [("mlflow.db", "tracking store .* fails"), ("artifacts", "cannot write")]
)
def test_a_local_store_that_fails_costs_no_run_and_one_warning(
    tmp_path: Path, caplog: Log, file: str, message: str
) -> None:
    (tmp_path / file).write_text("this is no database" * 100)
    results = logged_to(None, tmp_path)
    for number in range(2):
        assert results.get(made(results, step(number=number))).status == "FINISHED"
    (warning,) = warnings(caplog)
    assert re.search(message, warning) and "toolformer runs push" in warning and "\n" not in warning


def test_a_database_holds_no_path_and_moves_with_its_root(results: Results, tmp_path: Path) -> None:
    training = train(results, lr=0.3)
    shutil.copytree(results.root, tmp_path / "copy")
    moved = logged_to(None, tmp_path / "copy")
    assert moved.get(training).is_sent("local")
    with sqlite3.connect(moved.root / "mlflow.db") as database:
        places = database.execute(
            "SELECT artifact_uri FROM runs UNION SELECT artifact_location FROM experiments "
            "UNION SELECT source FROM model_versions UNION SELECT storage_location FROM model_versions"
        ).fetchall()
    assert len(places) >= 3 and all(place.startswith(("mlflow-artifacts:/", "runs:/")) for (place,) in places)


def test_what_a_kill_left_of_a_database_does_not_matter(tmp_path: Path, caplog: Log) -> None:
    """Half of a database, and the journal by which SQLite would roll another one back."""
    part = f".mlflow.db.{'0' * 16}.part"
    (tmp_path / part).write_bytes(b"SQLite format 3\0 half")
    (tmp_path / f"{part}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    results = logged_to(None, tmp_path)
    assert row(results, made(results, step())).info.status == "FINISHED" and warnings(caplog) == []
    assert sorted(path.name for path in tmp_path.glob("*mlflow.db*")) == ["mlflow.db"]


LOGGER = """
    import pathlib, sys, time
    from toolformer.results import Beginning, Dataset, Results
    from toolformer.step import Step
    from toolformer.tracking import MlflowLogger
    root, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    (root / f"ready-{number}").touch()
    while len(list(root.glob("ready-*"))) < 4:
        time.sleep(0.005)
    results = Results(root / "runs", MlflowLogger(None, root / "runs"))
    assert not {"mlflow", "torch"} & sys.modules.keys(), "importing is light"
    with results.open(Step("train", 1, {"number": number}), Beginning("a run", {"number": number})) as folder:
        for step in range(20):
            folder.metrics({"loss": number + step}, step=step)
        folder.datasets(*(Dataset("C*", f"digest{n}", "training", "FILE", n) for n in range(20)))
    print(folder.id)
"""


@pytest.mark.chaos
def test_four_processes_at_once_on_a_fresh_root_lose_nothing(tmp_path: Path) -> None:
    processes = [start(LOGGER, str(tmp_path), str(number)) for number in range(4)]
    outputs = [process.communicate(timeout=300) for process in processes]
    assert [error for _, error in outputs] == ["", "", "", ""]  # no chatter, no traceback
    results = Results(tmp_path / "runs")
    for number, (output, _) in enumerate(outputs):
        logged = row(results, output.strip())
        assert logged.info.status == "FINISHED" and logged.data.params == {"number": str(number)}
        assert len(logged.inputs.dataset_inputs) == 20
        assert history(results, output.strip(), "loss") == [(step, number + step) for step in range(20)]


@pytest.mark.chaos
def test_a_server_that_dies_under_a_run_gets_the_rest_later(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    from toolformer.cli import main

    monkeypatch.setattr(logger, "CLOSING", 0.5)
    port = free_port()
    uri, server = f"http://127.0.0.1:{port}", mlflow_server(tmp_path, port)
    results = logged_to(uri, tmp_path / "runs")
    try:
        wait_for(lambda: answers(port), 180)
        with at_work(results, step(), {"a": 1}) as folder:
            folder.metrics({"loss": 2.0}, step=0)
            wait_for(lambda: rows(results, uri) and "loss" in row(results, folder.id, uri).data.metrics, 60)
            os.killpg(server.pid, signal.SIGSTOP)  # it takes connections and answers none of them
            folder.metrics({"loss": 1.0}, step=1)
            folder.text("note.txt", "a note")
        assert results.get(folder.id).status == "FINISHED" and not results.get(folder.id).is_sent(uri)
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        server = mlflow_server(tmp_path, port)
        wait_for(lambda: answers(port), 180)
        assert main(["runs", "push", f"paths.root={results.root}", f"tracking.uri={uri}"]) == 0
        assert "1 run logged to" in capsys.readouterr().out
        assert row(results, folder.id, uri).info.status == "FINISHED"
        assert history(results, folder.id, "loss", uri) == [(0, 2.0), (1, 1.0)]
        far = Results(tmp_path / "another machine")
        assert main(["runs", "pull", f"paths.root='{far.root}'", f"tracking.uri={uri}"]) == 0
        assert far.artifact(far.get(folder.id), "note.txt").read_text() == "a note"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
