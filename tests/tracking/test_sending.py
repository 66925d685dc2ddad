"""Runs of a tracking server that does not answer: kept in journals, looked up there, and sent later, once."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.tracking.conftest import free_port, run
from toolformer import registry
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.tracking import ActiveRun, Run, StoreFault, Tracker, sending, store
from toolformer.tracking.journal import METRICS, TAGS, Journal
from toolformer.tracking.sending import send
from toolformer.tracking.store import Store

SECRET = "hunter2-correct-horse"


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with an empty store, to copy: making one takes seconds."""
    root = tmp_path_factory.mktemp("empty")
    Tracker(None, root).prepare()
    return root


@pytest.fixture
def root(empty: Path, tmp_path: Path) -> Path:
    shutil.copytree(empty, tmp_path / "runs")
    return tmp_path / "runs"


def dead(root: Path) -> Tracker:
    return Tracker(f"http://me:{SECRET}@127.0.0.1:{free_port()}", root)


def record(tracker: Tracker, file: Path, stage: str = "generate", **more: Any) -> Run:
    """A run with everything that a run can have."""
    file.write_text(f"what {stage} made")
    more.setdefault("config", {"model": "m", "api_key": SECRET})
    with tracker.run(stage=stage, name=f"a {stage}", fingerprint="f", **more) as active:
        for step in range(3):
            active.metrics({"loss": 3.0 - step}, step=step)
        active.tag("note", "written")
        active.artifact(file, "samples")
        active.model("toolformer", file.parent, {"data": "augmented"})
    return tracker.get(active.run_id)


def test_a_dead_server_keeps_no_result_from_being_kept(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = dead(root)
    with caplog.at_level(logging.WARNING, "toolformer"):
        run = record(tracker, tmp_path / "made.txt")
    (warning,) = [line.getMessage() for line in caplog.records if line.name.startswith("toolformer")]
    assert "does not answer" in warning and "toolformer runs resend" in warning and "\n" not in warning
    assert (run.status, run.stage, run.params["model"], run.tags["note"]) == (
        "FINISHED",
        "generate",
        "m",
        "written",
    )
    assert run.metrics["loss"] == 1.0 and run.metrics["duration_seconds"] > 0
    assert run.ended is not None and run.ended >= run.started
    # The next stage finds it, in this process and in another.
    for one in (tracker, dead(root)):
        assert one.resolve("generate", "latest").run_id == run.run_id
        assert one.find_finished("generate", "f") is not None
        assert one.artifact_path(run, "samples/made.txt").read_text() == "what generate made"
        with pytest.raises(
            UserError, match=r"run `toolformer train` first \(http://127.0.0.1:\d+ does not answer\)"
        ):
            one.resolve("train", "latest")
        with pytest.raises(
            StoreFault, match=r"run feedbeef is not to be had: http://127.0.0.1:\d+ does not answer$"
        ):
            one.resolve("train", "feedbeef")
    written = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert SECRET.encode() not in written


def test_what_was_kept_is_sent_once_and_whole(root: Path, tmp_path: Path) -> None:
    offline = dead(root)
    parent = offline.parent_run("k", "a sweep")
    assert offline.parent_run("k", "a sweep") == parent, "one sweep, server or not"
    dataset = record(offline, tmp_path / "made.txt")
    trained = record(
        offline,
        tmp_path / "made.txt",
        "train",
        parent=parent,
        tags={"lineage.dataset_run_id": dataset.run_id},
    )
    store = Tracker(None, root)
    assert [run.run_id for run in store.unsent()] == [parent, dataset.run_id, trained.run_id]
    assert store.get(trained.run_id).metrics["loss"] == 1.0, "seen before it is sent"
    before = {run.run_id for run in store.all_runs()}

    assert store.resend().runs == 3 and store.resend().runs == 0
    assert {run.run_id for run in store.all_runs()} == before, "ids stay as lineage names them"
    sent = store.get(trained.run_id)
    assert sent.stored_as and sent.stored_as != sent.run_id and sent.run_id == trained.run_id
    assert dict(sent.params) == dict(trained.params) and dict(sent.metrics) == dict(trained.metrics)
    assert (sent.status, sent.name, sent.started, sent.ended) == (
        "FINISHED", "a train", trained.started, trained.ended,
    )  # fmt: skip
    assert sent.tags["registered_model"] == "models:/toolformer/2"
    assert registry.resolve(store, "models:/toolformer/2").run_id == trained.run_id
    assert sent.tags["mlflow.parentRunId"] == store.get(parent).stored_as, "nested where MLflow looks"
    # Without this folder's journals, as on another machine.
    shutil.rmtree(root / "journal")
    elsewhere = Tracker(None, root)
    assert elsewhere.get(trained.run_id) == elsewhere.get(sent.stored_as) == sent
    assert elsewhere.artifact_path(sent, "samples/made.txt").read_text() == "what train made"
    with elsewhere.faults() as client:
        history = client.get_metric_history(sent.stored_as, "loss")
        assert sorted((row.step, row.value) for row in history) == [(0, 3.0), (1, 2.0), (2, 1.0)]


def test_a_sending_that_was_cut_off_anywhere_ends_the_same(root: Path, tmp_path: Path) -> None:
    run = record(dead(root), tmp_path / "made.txt")
    store, journal = Store(None, root), Journal(root / "journal" / run.run_id)
    ends = [end for end, _, _ in journal.events()]
    for _ in range(2):
        for end in (0, ends[0], ends[len(ends) // 2], ends[-2]):  # sent, and the mark lost
            send(journal, store)
            server_id = journal.sent(store.shown_uri).run_id
            assert server_id is not None
            if end:
                journal.mark(store.shown_uri, server_id, end)
            else:
                (journal.folder / "sent.json").unlink()
    send(journal, store)
    (found,) = store.search({"stage": "generate"})
    assert dict(found.metrics) == dict(run.metrics) and found.status == "FINISHED"
    with store.faults() as client:
        assert len(client.get_metric_history(found.stored_as, "loss")) == 3
        assert len(client.search_model_versions("name = 'toolformer'")) == 1


def test_an_interrupted_run_goes_on_in_its_journal(root: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        dead(root).run(stage="s", name="n", fingerprint="f", config={}) as first,
    ):
        first.metrics({"loss": 2.0}, step=0)
        raise KeyboardInterrupt
    later = dead(root)
    assert later.get(first.run_id).status == "KILLED"
    with later.run(stage="s", name="n", fingerprint="f", config={}) as second:
        second.metrics({"loss": 1.0}, step=1)
    assert second.run_id == first.run_id and second.resumed
    assert Tracker(None, root).resend().runs == 1
    found = Tracker(None, root).get(first.run_id)
    assert found.status == "FINISHED" and found.metrics["loss"] == 1.0


def test_a_line_that_a_killed_process_left_is_taken_away(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "one")
    journal.append(TAGS, {"a": "1"})
    with (journal.folder / "events.jsonl").open("ab") as file:
        file.write(b'["tags", {"b": ')
    assert [content for _, _, content in journal.events()] == [{"a": "1"}]
    journal.append(METRICS, [["loss", float("nan"), 5, 1], ["loss", 2.0, 4, 1], ["acc", 1.0, 1, 0]])
    assert [kind for _, kind, _ in journal.events()] == [TAGS, METRICS]
    assert journal.run().tags == {"a": "1"} and journal.run().metrics == {"acc": 1.0}


def test_a_run_of_a_server_waits_for_no_lock(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_LOCK_SECONDS", 0.1)
    with FileLock(root / ".mlflow.lock"):  # another process of the same folder
        assert record(dead(root), tmp_path / "made.txt").status == "FINISHED"


def test_a_silent_server_is_asked_once_for_many_runs(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def counted(*arguments: Any) -> Any:
        asked.append(arguments)
        return send(*arguments)

    monkeypatch.setattr(sending, "send", counted)
    tracker = dead(root)
    for stage in ("generate", "train"):
        record(tracker, tmp_path / "made.txt", stage)
    assert asked == [], "the first look-up told that nobody is there"


def test_sending_that_breaks_is_said_in_a_line(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError(f"odd, from http://me:{SECRET}@host/")

    monkeypatch.setattr(sending, "send", broken)
    monkeypatch.setattr(Store, "search", lambda *_: [])
    assert record(dead(root), tmp_path / "made.txt").status == "FINISHED"
    (line,) = [one.getMessage() for one in caplog.records if one.name.startswith("toolformer")]
    assert "RuntimeError" in line and "resend" in line and SECRET not in line


def test_ctrl_c_while_a_server_is_waited_for_lets_go_of_the_run(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: ActiveRun) -> None:
        raise KeyboardInterrupt

    tracker = dead(root)
    with monkeypatch.context() as patch:
        patch.setattr(ActiveRun, "close", interrupted)
        with pytest.raises(KeyboardInterrupt) as kept, run(tracker, "s") as first:
            raise ValueError
    with run(tracker, "s") as second:
        assert second.run_id == first.run_id
    assert kept.tb is not None


def test_a_run_that_a_server_has_is_not_counted_against_the_local_store(root: Path, tmp_path: Path) -> None:
    made = record(dead(root), tmp_path / "made.txt")
    local, journal = Tracker(None, root), Journal(root / "journal" / made.run_id)
    assert [one.run_id for one in local.unsent()] == [made.run_id]
    journal.mark("http://tracking.example.org", "0" * 32)
    assert local.unsent() == [] and local.runs("generate")[0].run_id == made.run_id
    assert local.resend().runs == 1, "asked for, it is taken into the local store all the same"


def test_databricks_is_a_server() -> None:
    assert not Store("databricks", Path("x")).is_local and not Store("databricks://one", Path("x")).is_local


def test_what_losing_power_leaves_of_a_journal_stops_nothing(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offline = dead(root)
    whole, torn, headless = (
        record(offline, tmp_path / "made.txt", stage) for stage in ("generate", "train", "evaluate")
    )
    first, *lines = (root / "journal" / torn.run_id / "events.jsonl").read_bytes().splitlines(keepends=True)
    for one, content in ((torn, first + b"\0" * 64 + b"\n" + b"".join(lines)), (headless, b"\0" * 64)):
        (root / "journal" / one.run_id / "events.jsonl").write_bytes(content)
    for content in (b"", b"\0" * 9, b"[1]", b'{"sqlite:": 3}'):
        (root / "journal" / torn.run_id / "sent.json").write_bytes(content)
        assert [one.run_id for one in Tracker(None, root).unsent()] == [whole.run_id, torn.run_id]
    assert main(["runs", f"paths.root={root}"]) == 0
    assert main(["doctor", "--json", f"paths.root={root}", f"paths.cache={root}"]) in (0, 1)
    assert main(["runs", "resend", f"paths.root={root}"]) == 0
    sent = Tracker(None, root).get(torn.run_id)
    assert sent.status == "FINISHED" and sent.metrics["loss"] == 1.0 and sent.stored_as
    named = [line.getMessage() for line in caplog.records if line.name.endswith("tracking.journal")]
    assert len(named) == 3 and all(str(root / "journal") in line for line in named), "each file once"


def test_a_journal_that_is_sent_is_not_read_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(dead(root), tmp_path / "made.txt")
    store = Tracker(None, root)
    store.resend()
    read: list[str] = []
    events = Journal.events

    def counted(journal: Journal, after: int = 0) -> Iterator[tuple[int, str, Any]]:
        for event in events(journal, after):
            read.append(event[1])
            yield event

    monkeypatch.setattr(Journal, "events", counted)
    assert store.runs("generate")[0].run_id == run.run_id
    assert read == ["begin"], "its first line tells its place; the rest may be long"


def test_the_terminal_lists_and_sends(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offline = dead(root)
    dataset = record(offline, tmp_path / "made.txt", tags={"experiment": "one"})
    trained = record(offline, tmp_path / "made.txt", "train", tags={"lineage.dataset_run_id": dataset.run_id})
    place = f"paths.root={root}"
    assert main(["runs", place]) == 0
    shown = capsys.readouterr().out
    assert f"{dataset.run_id[:8]}*" in shown and f"  {trained.run_id[:8]}*" in shown
    assert "2 of the runs; toolformer runs resend" in shown
    assert main(["runs", "resend", place]) == 0 and "2 runs sent" in capsys.readouterr().out
    assert main(["runs", "resend", place]) == 0 and "nothing is left" in capsys.readouterr().out
    for words, stages in (
        ([], ["train", "generate"]),
        (["--stage", "train"], ["train"]),
        (["--experiment", "one"], ["generate"]),
        (["--status", "FAILED"], []),
        ([trained.run_id[:8]], ["train", "generate"]),
    ):
        assert main(["runs", *words, place, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [one["stage"] for one in found] == stages and all(one["sent"] for one in found)
    for words, said in (
        (["--stage", "trian"], "did you mean train"),
        (["--stage", "report"], "must be one of generate, train, evaluate"),
        (["--status", "finished"], "must be one of FINISHED, RUNNING, FAILED, KILLED"),
        (["nosuchrun"], "there is no run nosuchrun"),
    ):
        assert main(["runs", *words, place]) == 2
        assert said in capsys.readouterr().err
    port = free_port()
    assert main(["runs", "resend", place, f"tracking.uri=http://127.0.0.1:{port}"]) == 2
    assert f"http://127.0.0.1:{port} does not answer" in capsys.readouterr().err
