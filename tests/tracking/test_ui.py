"""MLflow's interface on the runs of a root."""

import http.client
import json
import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.build import Capture, at_work, free_port, made, step, wait_for
from tests.tracking.build import answers, evaluate, logged_to, row, start
from toolformer.errors import UserError
from toolformer.results import Results
from toolformer.tracking import Store
from toolformer.tracking.store import ORDER
from toolformer.tracking.ui import serve
from toolformer.tracking.views import write_views

UI = """
    import os, sys
    from pathlib import Path
    from toolformer.tracking.ui import serve
    os.chdir(sys.argv[3])
    sys.path.remove("")  # as a console script has it
    serve(Path(sys.argv[1]), sys.argv[4], port=int(sys.argv[2]))
"""


def test_views_have_the_scores_that_were_measured(tmp_path: Path) -> None:
    evaluate(results := logged_to(None, tmp_path))
    store = Store(results.root)
    for _ in range(2):
        write_views(store)
    tags = store.client.get_experiment(store.experiment).tags
    views = {key: json.loads(text) for key, text in tags.items() if key.startswith("mlflow.sharedViewState.")}
    assert {view["name"] for view in views.values()} == {"Scores", "Scores by k"}
    assert {json.loads(view["state"])["orderByKey"] for view in views.values()} == {f"tags.`{ORDER}`"}
    scores, by_k = (json.loads(view["state"]) for view in views.values())
    assert scores["selectedColumns"][-1] == "metrics.`Score/svamp`"
    (chart,) = by_k["compareRunCharts"]
    assert (chart["xaxis"]["key"], chart["yaxis"]["key"]) == ("decoding.k", "Score/svamp")


def test_benchmarks_with_several_k_have_the_first_charts(tmp_path: Path) -> None:
    results = logged_to(None, tmp_path)
    for k, tasks in ((0, ["asdiv", "webqs"]), (10, ["webqs"])):
        config = {"decoding": {"k": k}}
        with at_work(results, step("evaluate", k=k), config=config) as folder:
            for task in tasks:
                folder.task(task, {"score": 12.5, "n": 4})
    store = Store(results.root)
    write_views(store)
    tags = store.client.get_experiment(store.experiment).tags
    views = [json.loads(text) for key, text in tags.items() if key.endswith("by-k")]
    names = [chart["yaxis"]["key"] for chart in json.loads(views[0]["state"])["compareRunCharts"]]
    assert names == ["Score/webqs", "Score/asdiv"]


@pytest.mark.chaos
def test_the_interface_serves_the_named_store_locally(tmp_path: Path) -> None:
    port, uri = free_port(), f"sqlite:///{tmp_path / 'named' / 'runs.db'}"
    results = logged_to(uri, tmp_path / "runs")
    run_id = row(results, made(results, step(served=True), config={"a": 1}), uri).info.run_id
    for module in ("mlflow", "uvicorn", "sqlite3"):  # a folder with code of somebody else's
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'w')")
    process = start(UI, str(results.root), str(port), str(tmp_path), uri)

    def get(path: str, host: str = f"127.0.0.1:{port}") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read()

    try:
        wait_for(lambda: answers(port), 300)
        page = f"/api/2.0/mlflow/runs/get?run_id={run_id}"
        status, body = get(page)
        assert status == 200 and json.loads(body)["run"]["info"]["status"] == "FINISHED"
        assert get(f"/get-artifact?path=config.yaml&run_id={run_id}") == (200, b"a: 1\n")
        assert get(page, f"localhost:{port}")[0] == 200
        for host in ("10.evil.example", f"10.evil.example:{port}", f"evil.example:{port}"):
            assert get(page, host)[0] == 403
        (server,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert b"runs.db" not in Path(f"/proc/{server}/cmdline").read_bytes()
    finally:
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=30)
    assert process.returncode == 0
    assert output.startswith(f"MLflow UI: http://127.0.0.1:{port}/#/experiments/1/runs?")
    assert "Traceback" not in error
    assert not (tmp_path / "was_run").exists()
    assert not (results.root / "mlflow.db").exists()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = rf"--port {port} of 127.0.0.1 cannot be used \(Address already in use\)"
        with pytest.raises(UserError, match=message):
            serve(tmp_path, port=port)


def test_a_server_has_its_pages(tmp_path: Path, capsys: Capture) -> None:
    serve(tmp_path, "databricks://mine")
    assert capsys.readouterr().out == "MLflow UI: databricks://mine\n"


@pytest.mark.chaos
def test_an_open_address_is_warned_of(results: Results) -> None:
    program = "import sys; from pathlib import Path; from toolformer.tracking.ui import serve; serve(Path(sys.argv[1]), host='0.0.0.0', port=int(sys.argv[2]))"
    process = start(program, str(results.root), str(free_port()))
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert "there is no login" in process.communicate(timeout=30)[1]
