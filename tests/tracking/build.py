"""Results whose runs are logged to MLflow, what MLflow then has, and servers."""

import functools
import os
import signal
import subprocess
import sys
import textwrap
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.build import at_work, step
from toolformer.results import Dataset, Results
from toolformer.tracking import MlflowLogger, Store


def logged_to(uri: str | None, root: Path, **options: Any) -> Results:
    return Results(root, MlflowLogger(uri, root, **options))


def rows(results: Results, uri: str | None = None, **tags: str) -> list[Any]:
    """The runs in MLflow with these tags, each with its inputs."""
    store = Store(results.root, uri)
    condition = " and ".join(f"tags.{key} = '{value}'" for key, value in tags.items())
    return list(store.client.search_runs([store.experiment], condition))


def row(results: Results, run_id: str, uri: str | None = None) -> Any:
    """The run in MLflow of a folder."""
    (logged,) = rows(results, uri, key=run_id)
    return logged


def history(results: Results, run_id: str, key: str, uri: str | None = None) -> list[tuple[int, float]]:
    client = Store(results.root, uri).client
    points = client.get_metric_history(row(results, run_id, uri).info.run_id, key)
    return [(point.step, point.value) for point in points]


def train(results: Results, **settings: Any) -> str:
    """A training with a curve, a file and a model; returns its id."""
    with at_work(results, step("train", **settings), experiment="mine") as folder:
        for number in range(3):
            folder.metrics({"loss": 3.0 - number}, step=number)
        folder.metrics({"best_heldout_perplexity": 5.5})
        folder.datasets(Dataset("corpus", "3f2a", "training", "FILE", 3))
        folder.text("note.txt", "a note")
        (folder.path / "model").mkdir()
        (folder.path / "model" / "weights.bin").write_text("heavy")
        folder.artifact(folder.path / "model" / "weights.bin", "model")
        folder.add_facts(data="augmented", model="model")
        return str(folder.id)


def evaluate(results: Results, **settings: Any) -> str:
    """An evaluation of the training with these settings, with samples; returns its id."""
    of = step("evaluate", step("train", **settings), k=3)
    with at_work(results, of, experiment="mine") as folder:
        folder.task("svamp", {"score": 12.5, "n": 4})
        folder.datasets(Dataset("svamp", "a1b2", "evaluation", "svamp", 4))
        (folder.path / "samples").mkdir()
        (folder.path / "samples" / "svamp.parquet").write_text("rows")
        folder.artifact(folder.path / "samples" / "svamp.parquet", "samples")
        folder.add_facts(system="toolformer", k=3, baseline=None)
        return str(folder.id)


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    # Tests that run in the background inherit that Ctrl-C is ignored.
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heard
    )


def mlflow_server(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """MLflow's own tracking server, the leader of a group of processes."""
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--artifacts-destination", (folder / "files").as_uri()]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return subprocess.Popen(command, env=environment, start_new_session=True)


def answers(port: int) -> bool:
    """Whether a server of MLflow's answers there."""
    with suppress(OSError):
        return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).status == 200)
    return False
