"""Runs copied to a store and from it, by `toolformer runs push` and `pull`; nothing that a store says is trusted."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Capture, Refused
from tests.results.conftest import at_work, made, step
from tests.tracking.conftest import evaluate, history, logged_to, row, rows, train
from toolformer.cli import main
from toolformer.results import Results
from toolformer.step import Step
from toolformer.tracking import Store, transfer


def runs(action: str, results: Results, uri: str, *words: str) -> int:
    return main(["runs", action, *words, f"paths.root='{results.root}'", f"tracking.uri='{uri}'"])


@pytest.fixture
def alone(tmp_path: Path) -> Results:
    """Runs made without any MLflow."""
    return Results(tmp_path / "runs")


@pytest.fixture
def far(tmp_path: Path) -> Results:
    """The results of another machine."""
    return Results(tmp_path / "another machine")


def test_runs_are_pushed_once_and_whole(alone: Results, server: str, capsys: Capture) -> None:
    sweep = made(alone, Step("sweep", 1, {}))
    training, evaluation = train(alone, lr=0.1), evaluate(alone, lr=0.1)
    child = made(alone, step("generate"), parent=sweep)
    with pytest.raises(ValueError), at_work(alone, step("train", broken=1)) as broken:
        raise ValueError("broken")
    for count in ("5 runs logged to", "0 runs logged to"):
        assert runs("push", alone, server) == 0
        assert count in capsys.readouterr().out
    logged, run = row(alone, training, server), alone.get(training)
    assert logged.data.params == {"lr": "0.1"} and logged.info.status == "FINISHED"
    assert logged.info.start_time == int(1000 * run.started.timestamp())
    assert run.ended and logged.info.end_time == int(1000 * run.ended.timestamp())
    assert history(alone, training, "loss", server) == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert row(alone, evaluation, server).inputs.model_inputs
    assert row(alone, broken.id, server).info.status == "FAILED"
    parent = row(alone, child, server).data.tags["mlflow.parentRunId"]
    assert parent == row(alone, sweep, server).info.run_id


def test_a_run_that_was_interrupted_while_it_was_pushed(alone: Results, server: str) -> None:
    training = train(alone)
    assert runs("push", alone, server) == 0
    entry = alone.get(training).folder / "mlflow.json"
    before = row(alone, training, server)
    entry.write_text(json.dumps({server: {"run_id": before.info.run_id}}))
    assert runs("push", alone, server) == 0
    assert row(alone, training, server).data.to_dictionary() == before.data.to_dictionary()
    assert history(alone, training, "loss", server) == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert alone.get(training).is_sent(server)


def test_one_run_is_pushed_and_stays_deleted_in_the_store(alone: Results, server: str) -> None:
    train(alone)
    evaluation = evaluate(alone)
    assert runs("push", alone, server, evaluation[:8]) == 0
    assert [logged.data.tags["key"] for logged in rows(alone, server)] == [evaluation]
    with Store(alone.root, server).faults() as client:
        client.delete_run(row(alone, evaluation, server).info.run_id)
    unfinished = json.dumps({server: {"run_id": alone.get(evaluation).mlflow_ids[server]}})
    (alone.get(evaluation).folder / "mlflow.json").write_text(unfinished)
    assert runs("push", alone, server, evaluation[:8]) == 0
    assert rows(alone, server) == [] and alone.get(evaluation).is_sent(server)


def test_what_a_store_refuses_holds_nothing_else_back(
    alone: Results, server: str, tmp_path: Path, capsys: Capture
) -> None:
    evaluation, other = evaluate(alone), made(alone, step("train"))
    place = tmp_path / "a folder of somebody's"
    with Store(alone.root, server).faults() as client:
        client.create_experiment("toolformer", artifact_location=place.as_uri())
    assert runs("push", alone, server) == 2
    errors = capsys.readouterr().err
    for run_id in (evaluation, other):
        assert f"run {run_id[:8]}: {server} keeps artifacts at" in errors
        assert row(alone, run_id, server).info.status == "FINISHED" and not alone.get(run_id).is_sent(server)
    assert row(alone, evaluation, server).data.metrics["svamp/score"] == 12.5 and not place.exists()


def test_a_colleagues_runs_are_pulled_with_their_sources(
    server: str, tmp_path: Path, far: Results, capsys: Capture
) -> None:
    theirs = logged_to(server, tmp_path / "theirs")
    training, evaluation = train(theirs), evaluate(theirs)
    other = made(theirs, step("train", other=1))
    assert runs("pull", far, server, evaluation[:8]) == 0
    assert "2 runs brought from" in capsys.readouterr().out
    mine, original = far.get(evaluation), theirs.get(evaluation)
    assert (mine.metrics, mine.facts, mine.config) == (original.metrics, original.facts, original.config)
    assert mine.experiments == {"mine"} and mine.made_from == [training]
    assert far.artifact(mine, "samples/svamp.parquet").read_text() == "rows"
    assert far.get(training).curve("loss") == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert not (far.get(training).folder / "model").exists(), "weights stay"
    assert runs("pull", far, server) == 0 and runs("pull", far, server) == 0
    assert far.get(other).is_sent(server)
    assert main(["runs", f"paths.root='{far.root}'", f"tracking.uri='{server}'"]) == 0
    assert evaluation[:8] in capsys.readouterr().out


def test_pull_needs_a_server(far: Results, refused: Refused) -> None:
    assert "tracking.uri=" in refused("runs", "pull", f"paths.root='{far.root}'")


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "work.txt").write_text("years of work")
    return folder


class Published:
    """A colleague's evaluation in a store, which a test may change: it is there again for the next one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.uri = folder, f"sqlite:///{folder / 'server' / 'mlflow.db'}"
        self.theirs = logged_to(self.uri, folder / "theirs")
        self.id = evaluate(self.theirs)
        self.artifacts = (
            folder / "server" / "artifacts" / row(self.theirs, self.id, self.uri).info.run_id / "artifacts"
        )
        shutil.copytree(folder / "server", folder / "kept")

    def execute(self, statement: str, *values: str) -> None:
        with sqlite3.connect(self.folder / "server" / "mlflow.db") as database:
            database.execute(statement, values)

    def restore(self) -> None:
        kept = self.folder / "kept"
        with (
            sqlite3.connect(kept / "mlflow.db") as before,
            sqlite3.connect(self.folder / "server" / "mlflow.db") as now,
        ):
            before.backup(now)
        shutil.rmtree(self.folder / "server" / "artifacts")
        shutil.copytree(kept / "artifacts", self.folder / "server" / "artifacts")


@pytest.fixture(scope="session")
def published_once(tmp_path_factory: pytest.TempPathFactory) -> Published:
    return Published(tmp_path_factory.mktemp("published"))


@pytest.fixture
def published(published_once: Published) -> Iterator[Published]:
    yield published_once
    published_once.restore()


def test_a_folder_that_exists_is_left_as_it_is(published: Published, far: Results) -> None:
    mine = far.root / "evaluate" / published.id
    mine.mkdir(parents=True)
    (mine / "work.txt").write_text("mine")
    assert runs("pull", far, published.uri) == 0
    assert [path.name for path in mine.iterdir()] == ["work.txt"]


def refusal(far: Results, published: Published, capsys: Capture) -> str:
    """The line that says why a run was not pulled; nothing is left of it."""
    capsys.readouterr()
    assert runs("pull", far, published.uri) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert far.all_runs() == [] and not list(far.root.glob("[!.]*/*"))
    return line


def edit(file: str, /, **changes: Any) -> Callable[[Path], object]:
    def change(artifacts: Path) -> None:
        record = json.loads((artifacts / file).read_text())
        (artifacts / file).write_text(json.dumps({**record, **changes}))

    return change


def digests(name: str) -> Callable[[Path], object]:
    return edit("result.json", digests={name: "0" * 64})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit("step.json", settings={"k": 4}), "its step.json is not that of evaluate run"),
        (edit("step.json", parent="../../precious"), "its result.json is not that of a finished run"),
        (edit("step.json", started="soon"), "its step.json is not that of evaluate run"),
        (edit("result.json", status="RUNNING"), "its result.json is not that of a finished run"),
        (edit("result.json", digests={f"f{n}": "" for n in range(2000)}), "its result.json is not that of"),
        (edit("result.json", metrics={"a": "b"}), "its step.json is not that of evaluate run"),
        (digests("samples/svamp.parquet"), "its samples/svamp.parquet is not what the run logged"),
        (digests("../../precious/work.txt"), "is no file name"),
        (digests("/etc/passwd"), "is no file name"),
        (digests("mlflow.json"), "mlflow.json is not a file of a result"),
        (lambda artifacts: (artifacts / "step.json").write_text("[" * 10**5), "not a step"),
        (lambda artifacts: (artifacts / "samples" / "svamp.parquet").write_text("other"), "is not what the run logged"),
        (lambda artifacts: shutil.rmtree(artifacts / "samples"), "svamp.parquet"),
    ],
)  # fmt: skip
def test_a_hostile_run_is_refused(
    published: Published, far: Results, precious: Path, capsys: Capture, change: Any, message: str
) -> None:
    change(published.artifacts)
    line = refusal(far, published, capsys)
    assert published.id[:8] in line and message in line
    assert (precious / "work.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        *(("stage", name) for name in ("../../precious", "report")), ("experiment", "../../precious"),
        *(("key", key) for key in ("../../precious", "0" * 15, "A" * 16, "0" * 16)),
    ],
)  # fmt: skip
def test_a_tag_is_no_path_and_no_other_key(
    published: Published, far: Results, precious: Path, tag: str, value: str
) -> None:
    published.execute("UPDATE tags SET value = ? WHERE key = ?", value, tag)
    runs("pull", far, published.uri)
    assert far.all_runs() == [] and not list(far.root.glob("[!.]*/*"))
    assert [path.name for path in precious.iterdir()] == ["work.txt"]


@pytest.mark.parametrize(
    "place",
    [
        "PRECIOUS", "file://PRECIOUS", "file:SERVER/artifacts/%2e%2e/%2e%2e/precious", "runs:/" + "0" * 32,
        "models:/x/1", "http://127.0.0.1:1/x", "mlflow-artifacts:/x", "mlflow-artifacts://elsewhere/x",
        "ftp://127.0.0.1/x", "dbfs:/x", "http://[",
    ],
)  # fmt: skip
def test_a_store_sends_to_no_other_place(
    published: Published, far: Results, precious: Path, capsys: Capture, place: str
) -> None:
    shutil.copytree(published.artifacts, precious, dirs_exist_ok=True)
    before = sorted(precious.rglob("*"))
    folder = str(published.folder / "server")
    place = place.replace("PRECIOUS", str(precious)).replace("SERVER", folder)
    published.execute("UPDATE runs SET artifact_uri = ?", place)
    assert "nothing is read or written there" in refusal(far, published, capsys)
    run = published.theirs.get(published.id)
    unfinished = json.dumps({published.uri: {"run_id": run.mlflow_ids[published.uri]}})
    (run.folder / "mlflow.json").write_text(unfinished)
    assert runs("push", published.theirs, published.uri) == 2
    assert sorted(precious.rglob("*")) == before


def test_an_address_is_used_as_it_was_read_when_it_was_checked(tmp_path: Path, server: str) -> None:
    store = Store(tmp_path, server)
    with store.faults():
        folder = store.artifacts(f"{tmp_path}/server/artifacts/x?/../../../../precious").artifact_dir
    assert folder == f"{tmp_path}/server/artifacts/x"


def test_a_file_that_does_not_end_is_refused(
    published: Published, far: Results, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_FILE_LIMIT", 1 << 20)
    (published.artifacts / "samples" / "svamp.parquet").write_bytes(bytes(3 << 20))
    assert "its samples/svamp.parquet has more than 1 MiB" in refusal(far, published, capsys)


def test_names_are_neither_escape_sequences_nor_markup(alone: Results, capsys: Capture) -> None:
    made(alone, step(), name="\x1b]0;owned\x07 [/b] \u202etxt")
    assert main(["runs", f"paths.root={alone.root}", "--stage", "evaluate"]) == 0
    output = capsys.readouterr().out
    assert "[/b]" in output and not set(output) & {"\x1b", "\x07", "\u202e"}
