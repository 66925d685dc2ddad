"""What MLflow is told of runs, live and at their end, and that no store holds a run up."""

import http.server
import json
import logging
import os
import shutil
import signal
import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.build import Capture, Log, Patch, at_work, free_port, made, step, wait_for
from tests.tracking.build import answers, evaluate, history, logged_to, mlflow_server, row, rows, start, train
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.jobs.evaluate import write_rows
from toolformer.results import Results
from toolformer.results.folder import write_record
from toolformer.results.provenance import describe
from toolformer.tracking import MlflowLogger, Store, log_run, logger
from toolformer.tracking.store import ORDER


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
    assert warnings(caplog) == []


def test_the_main_measure_of_a_benchmark_comes_first_and_once(results: Results) -> None:
    metrics = row(results, evaluate(results, lr=0.2)).data.metrics
    assert metrics["Score/svamp"] == metrics["svamp/score"] == 12.5
    assert metrics.keys() == {"Score/svamp", "svamp/score", "svamp/n", "duration_seconds"}


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


def test_a_run_that_was_killed_ends_in_mlflow_too(results: Results) -> None:
    """The next command of its root marks it."""
    run_id = made(results, step(a=1))
    path = results.root / "evaluate" / run_id
    (path / "result.json").unlink()
    write_record(path / "step.json", {**json.loads((path / "step.json").read_text()), "status": "RUNNING"})
    store = Store(results.root)
    store.client.update_run(row(results, run_id).info.run_id, status="RUNNING")
    made(Results(results.root, MlflowLogger(None, results.root)), step(a=2))
    assert row(results, run_id).info.status == "KILLED"


def test_the_configuration_is_logged_whole(results: Results) -> None:
    config: dict[str, Any] = {
        "many": {f"word{n}": n for n in range(250)}, "long": "é" * 700, "empty": "", "tools": ["qa", "calendar"],
        "nested": [{"a": 1}, [2, 3]], "none": None, "odd word!": 1, "no": {},
    }  # fmt: skip
    params = row(results, made(results, step(whole=True), config=config)).data.params
    assert len(params) == 250 + 8
    expected = {"many.word249": "249", "tools": '["qa", "calendar"]', "nested.0.a": "1", "nested.1": "[2, 3]"}
    assert (expected | {"none": "null", "odd word_": "1"}).items() <= params.items()
    assert len(params["long"]) == 500 and "sha256" in params["long"]


def test_the_runs_of_a_sweep_have_one_parent_and_a_tag(results: Results) -> None:
    children = [made(results, step(swept=number), parent="evaluate over k: it's mine") for number in range(2)]
    title = "evaluate over k: it's mine"
    (parent,) = [row for row in rows(results, stage="sweep") if row.info.run_name == title]
    assert parent.info.status == "FINISHED"
    for child in children:
        tags = row(results, child).data.tags
        assert tags["mlflow.parentRunId"] == parent.info.run_id
        assert tags["sweep"] == "evaluate over k: it's mine"


def test_runs_are_sorted_by_the_numbers_in_their_names(results: Results) -> None:
    names = [f"Toolformer k={k} τ_f={threshold}" for k in (0, 3, 10) for threshold in (0.25, 0.5, 1)]
    runs = [row(results, made(results, step(name=name), name=name)) for name in names]
    logged = sorted(runs, key=lambda run: run.data.tags[ORDER])
    assert [run.info.run_name.rpartition(" ")[0] for run in logged] == names


def traced(results: Results, **settings: Any) -> list[Any]:
    """The traces of an evaluation with a sample that calls a tool; it is logged twice."""
    call = {"tool": "Calculator", "call_input": "2 * 3", "call_result": "6"}
    sample = {"id": "a", "prompt": "Six?", "completion": " 6.", "score": 100.0, "seconds": 1.5, **call}
    with at_work(results, step("evaluate", **settings), experiment="mine") as folder:
        folder.task("svamp", {"score": 12.5, "n": 1})
        folder.artifact(write_rows(folder.path / "samples" / "svamp.parquet", [sample]), "samples")
    store = Store(results.root)
    log_run(store, folder.path, getattr(results.listener, "traces", False))
    run_id = row(results, folder.id).info.run_id
    return [*store.client.search_traces(locations=[store.experiment], run_id=run_id)]


def test_a_sample_is_a_trace(results: Results, caplog: Log) -> None:
    (trace,) = traced(results, traced=True)
    question, call = sorted(trace.data.spans, key=lambda span: span.span_id)
    assert question.inputs == {"prompt": "Six?"} and question.outputs["answer"] == " 6."
    assert (call.name, call.inputs, call.outputs) == ("Calculator", {"input": "2 * 3"}, {"result": "6"})
    assert call.parent_id == question.span_id and trace.info.execution_duration == 1500
    assert warnings(caplog) == []


def test_traces_are_switched_off(tmp_path: Path) -> None:
    assert traced(logged_to(None, tmp_path, traces=False)) == []


def test_a_report_is_a_run_with_its_files(results: Results, tmp_path: Path) -> None:
    train(results, reported=True)
    (tmp_path / "tables").mkdir()
    for number in range(2):  # written again, it is one run
        for name in ("report.html", "tables/table4.csv"):
            (tmp_path / name).write_text(str(number))
        MlflowLogger(None, results.root).report(tmp_path, "it's mine", "Tools help.", "experiment=mine: run")
    (logged,) = rows(results, stage="report")
    assert logged.info.status == "FINISHED" and logged.data.tags["mlflow.note.content"] == "Tools help."
    files = results.root / "artifacts" / logged.info.run_id / "artifacts"
    assert (files / "report.html").read_text() == (files / "tables" / "table4.csv").read_text() == "1"
    (parent,) = [row for row in rows(results, stage="sweep") if row.info.run_name == "experiment=mine: run"]
    assert logged.data.tags["mlflow.parentRunId"] == parent.info.run_id


def test_a_report_alone_makes_no_store(tmp_path: Path) -> None:
    MlflowLogger(None, tmp_path).report(tmp_path, "mine", "Tools help.")
    assert [*tmp_path.iterdir()] == []


def test_a_description_names_the_runs_it_was_made_from(results: Results) -> None:
    source = results.get(made(results, step("train")))
    text = describe("", {}, [source])
    tags = row(results, made(results, step("evaluate", step("train")), description=text)).data.tags
    assert f"made from a train (run {source.id})" in tags["mlflow.note.content"]
    assert tags["made_from"] == source.id


def test_the_note_of_a_training_has_the_saved_models_perplexity(results: Results) -> None:
    values = {"train_steps": 8, "texts": 3, "initial_heldout_perplexity": 9}
    values |= {"heldout_perplexity": 8.5, "best_heldout_perplexity": 7.25}
    with at_work(results, step("train", noted=True)) as folder:
        folder.metrics(values)
    note = row(results, folder.id).data.tags["mlflow.note.content"]
    assert "9.00 before, 7.25 after" in note


def test_a_description_begins_with_the_result(results: Results) -> None:
    note = row(results, evaluate(results, lr=0.4)).data.tags["mlflow.note.content"]
    assert note.startswith("12.5 % of 4 examples of svamp correct.")


def test_no_secret_reaches_mlflow(tmp_path: Path) -> None:
    secret = "hunter2-correct-horse"
    results = logged_to(None, tmp_path / "runs")
    config = {"tool_sources": [{"args": [secret], "env": {"A": secret}}], "uri": f"http://{secret}@h"}
    with pytest.raises(ValueError), at_work(results, step(), config, name=f"http://me:{secret}@h") as folder:
        folder.add_facts(endpoint=f"http://u:{secret}@h/")
        raise ValueError(f"no http://me:{secret}@h/x")
    assert row(results, folder.id).data.params["tool_sources.0.env.A"] == "***"
    stored = b"".join(path.read_bytes() for path in results.root.rglob("*") if path.is_file())
    assert secret.encode() not in stored


def test_a_dead_server_costs_no_run_and_one_warning(tmp_path: Path, monkeypatch: Patch, caplog: Log) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    results = logged_to(f"http://me:hunter2@127.0.0.1:{free_port()}", tmp_path / "runs")
    for number in range(2):
        assert results.get(made(results, step(number=number))).status == "FINISHED"
    (warning,) = warnings(caplog)
    assert "does not take runs" in warning and "toolformer runs log" in warning and "hunter2" not in warning


def test_a_server_that_never_answers_costs_one_warning(
    tmp_path: Path, monkeypatch: Patch, caplog: Log
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as silent:
        # It takes connections, and nobody answers.
        results = logged_to(f"http://127.0.0.1:{silent.server_port}", tmp_path)
        for number in range(2):
            assert results.get(made(results, step(number=number))).status == "FINISHED"
    assert len(warnings(caplog)) == 1


def test_a_slow_store_is_not_waited_for(results: Results, monkeypatch: Patch, caplog: Log) -> None:
    monkeypatch.setattr(logger, "_FAILED", set())
    monkeypatch.setattr(logger, "PATIENCE_LOCAL", -1.0)
    run_id = made(results, step(slow=True))
    assert results.get(run_id).status == "FINISHED" and rows(results, key=run_id) == []
    (warning,) = warnings(caplog)
    assert "it is slow" in warning


def test_a_store_that_fails_gets_the_rest_from_the_folder(
    results: Results, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.setattr(logger, "_FAILED", set())
    with at_work(results, step("train", fails=True), {"a": 1}) as folder:
        folder.metrics({"loss": 2.0}, step=0)
        monkeypatch.setattr(logger, "PATIENCE_LOCAL", -1.0)
        folder.metrics({"loss": 1.0}, step=1)
    assert row(results, folder.id).info.status == "RUNNING"
    for _ in range(2):
        assert main(["runs", "log", folder.id[:8], f"paths.root='{results.root}'"]) == 0
    assert capsys.readouterr().out.startswith("1 run logged to ")
    assert row(results, folder.id).info.status == "FINISHED"
    assert history(results, folder.id, "loss") == [(0, 2.0), (1, 1.0)]


def test_a_server_with_a_local_artifact_folder_gets_no_files(tmp_path: Path) -> None:
    hostile = SimpleNamespace(info=SimpleNamespace(artifact_uri=(tmp_path / "home").as_uri(), run_id="a"))
    (tmp_path / "config.yaml").touch()
    with pytest.raises(UserError, match="it keeps artifacts at file://"):
        Store(tmp_path, "http://127.0.0.1:1").put(hostile, tmp_path / "config.yaml")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, b"<html>log in</html>", "401"),
        (403, b'{"error_code": "PERMISSION_DENIED"}', "PERMISSION_DENIED"),
        (200, b'{"experiments": 5}', "does not take runs"),
        (404, b"<html>no</html>", "404"),
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
    assert message in warning and "\n" not in warning


@pytest.mark.parametrize(
    ("file", "message"), [("mlflow.db", "not a database"), ("artifacts", "cannot write")]
)
def test_a_local_store_that_fails_costs_no_run_and_one_warning(
    tmp_path: Path, caplog: Log, file: str, message: str
) -> None:
    (tmp_path / file).write_text("this is no database" * 100)
    results = logged_to(None, tmp_path)
    for number in range(2):
        assert results.get(made(results, step(number=number))).status == "FINISHED"
    (warning,) = warnings(caplog)
    assert message in warning and "toolformer runs log" in warning and "\n" not in warning


def test_a_database_holds_no_path_and_moves_with_its_root(results: Results, tmp_path: Path) -> None:
    training = train(results, lr=0.3)
    shutil.copytree(results.root, tmp_path / "copy")
    moved = logged_to(None, tmp_path / "copy")
    assert row(moved, training).info.status == "FINISHED"
    with sqlite3.connect(moved.root / "mlflow.db") as database:
        places = database.execute(
            "SELECT artifact_uri FROM runs UNION SELECT artifact_location FROM experiments"
        ).fetchall()
    assert len(places) >= 3 and all(place.startswith("mlflow-artifacts:/") for (place,) in places)


def test_a_relative_address_is_a_file_of_the_working_directory(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    results = logged_to("sqlite:///mlflow.db", tmp_path / "runs")
    run_id = made(results, step(), config={"a": 1})
    assert row(results, run_id, f"sqlite:///{tmp_path / 'mlflow.db'}").data.params == {"a": "1"}
    assert len([*(tmp_path / "artifacts").glob("*/artifacts/config.yaml")]) == 1
    assert not (tmp_path / "runs" / "mlflow.db").exists()


def test_a_root_may_have_any_name(tmp_path: Path) -> None:
    results = logged_to(None, tmp_path / "what? 100% #1")
    assert row(results, made(results, step())).info.status == "FINISHED"
    assert [path.name for path in tmp_path.iterdir()] == [results.root.name]
    assert (results.root / "mlflow.db").is_file()


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
    from toolformer.results import RunInfo, Dataset, Results
    from toolformer.step import Step
    from toolformer.tracking import MlflowLogger
    root, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    (root / f"ready-{number}").touch()
    while len(list(root.glob("ready-*"))) < 4:
        time.sleep(0.005)
    results = Results(root / "runs", MlflowLogger(None, root / "runs"))
    assert not {"mlflow", "torch"} & sys.modules.keys(), "importing is light"
    with results.open(Step("train", 1, {"number": number}), RunInfo("a run", {"number": number})) as folder:
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
def test_a_server_that_dies_under_a_run_gets_the_rest_later(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
    port = free_port()
    uri, server = f"http://127.0.0.1:{port}", mlflow_server(tmp_path, port)
    results = logged_to(uri, tmp_path / "runs")
    try:
        wait_for(lambda: answers(port), 180)
        with at_work(results, step(), {"a": 1}) as folder:
            folder.metrics({"loss": 2.0}, step=0)
            assert history(results, folder.id, "loss", uri) == [(0, 2.0)]
            os.killpg(server.pid, signal.SIGSTOP)  # it takes connections and answers none of them
            folder.metrics({"loss": 1.0}, step=1)
            folder.text("note.txt", "a note")
        assert results.get(folder.id).status == "FINISHED"
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        server = mlflow_server(tmp_path, port)
        wait_for(lambda: answers(port), 180)
        assert main(["runs", "log", f"paths.root={results.root}", f"tracking.uri={uri}"]) == 0
        assert row(results, folder.id, uri).info.status == "FINISHED"
        assert history(results, folder.id, "loss", uri) == [(0, 2.0), (1, 1.0)]
        assert next((tmp_path / "files").rglob("note.txt")).read_text() == "a note"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
