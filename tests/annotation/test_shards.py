"""The on-disk form of shards: every altered byte is found, and a claim is one process's alone."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolformer.annotation.shards import CANDIDATES, BrokenShard, ShardStore, write_whole
from toolformer.errors import UserError

ROW = {
    "doc_id": "d", "tool": "calculator", "position": 4, "token_position": 2, "start_probability": 0.25, "sample": 0,
    "call": "[Calculator(1 + 2)]", "call_input": "1 + 2", "result": "3", "status": "scored",
    "loss_result": 1.0, "loss_no_result": 2.0, "loss_none": 1.5, "gain": 0.5,
}  # fmt: skip
FUNNEL = {"calculator": {"documents": 1, "reasons": {"a cue before a number": 1}}}


def written(folder: Path) -> ShardStore:
    folder.mkdir(exist_ok=True)
    store = ShardStore(folder)
    store.write("one", [ROW, {**ROW, "sample": 1, "gain": None}], FUNNEL)
    return store


def test_a_shard_is_read_as_written(tmp_path: Path) -> None:
    store = written(tmp_path)
    table = store.read("one")
    assert table.schema.equals(CANDIDATES) and table.to_pylist() == [ROW, {**ROW, "sample": 1, "gain": None}]
    assert json.loads(table.schema.metadata[b"funnel"]) == FUNNEL
    assert store.is_there("one") and store.fault("one") is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.parquet", "one.sha256"]


def test_the_checksum_is_the_one_of_sha256sum(tmp_path: Path) -> None:
    written(tmp_path)
    done = subprocess.run(["sha256sum", "-c", "one.sha256"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "one.parquet: OK\n"


def test_what_shards_took_is_known_of_all_of_them_or_not_at_all(tmp_path: Path) -> None:
    store = ShardStore(tmp_path)
    assert store.seconds(["one"]) is None
    store.took("one", 1.5)
    store.took("two", 2.0)
    store.took("one", 0.5)  # it was broken, and done again
    assert store.seconds(["one", "two"]) == 2.5 and store.seconds(["two"]) == 2.0
    assert store.seconds(["one", "three"]) is None
    (tmp_path / "two.seconds").write_text("x")
    assert store.seconds(["one", "two"]) is None and store.seconds(["one"]) == 0.5


def test_whoever_goes_on_has_the_number_of_threads_that_the_first_had(tmp_path: Path) -> None:
    assert ShardStore(tmp_path).begun_with("threads", None) is None
    assert ShardStore(tmp_path).begun_with("threads", "3") == "3"
    assert ShardStore(tmp_path).begun_with("threads", "1") == "3"
    assert ShardStore(tmp_path).begun_with("threads", None) == "3"
    (tmp_path / "threads").write_text("")  # cut short by a full disk
    assert ShardStore(tmp_path).begun_with("threads", "2") == "2"
    assert ShardStore(tmp_path).begun_with("threads", "5") == "2"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_is_altered_is_found(tmp_path: Path, data: st.DataObject) -> None:
    store = written(tmp_path / "shards")
    path = data.draw(st.sampled_from([store.path("one"), store.folder / "one.sha256"]))
    whole = path.read_bytes()
    # Of the checksum's file the digest counts, not the name behind it.
    at = data.draw(st.integers(0, (len(whole) if path.suffix == ".parquet" else 64) - 1))
    change = data.draw(st.sampled_from(["flip", "cut", "remove"]))
    if change == "remove":
        path.unlink()
    else:
        altered = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
        path.write_bytes(whole[:at] + (altered + whole[at + 1 :] if change == "flip" else b""))
    assert store.fault("one") is not None
    with pytest.raises(BrokenShard, match="one"):
        store.read("one")
    store.write("one", [ROW], FUNNEL)
    assert store.fault("one") is None


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = written(tmp_path / "a"), written(tmp_path / "b")
    digests = {hashlib.sha256(store.path("one").read_bytes()).hexdigest() for store in (first, second)}
    assert len(digests) == 1


def test_a_claim_is_ours_alone(tmp_path: Path) -> None:
    ours, theirs = ShardStore(tmp_path), ShardStore(tmp_path)
    with ours.claim("one") as first, theirs.claim("one") as second, theirs.claim("two") as other:
        assert (first, second, other) == (True, False, True)
        assert theirs.is_claimed("one")
    assert not theirs.is_claimed("one")
    with theirs.claim("one") as again:
        assert again


def test_the_claim_of_a_finished_shard_leaves_no_file(tmp_path: Path) -> None:
    store = ShardStore(tmp_path)
    with store.claim("one"):
        store.write("one", [ROW], FUNNEL)
    assert not list((tmp_path / "claims").iterdir())


def test_a_claim_ends_with_a_killed_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, _keep = context.Pipe(duplex=False)
    process = context.Process(target=hold, args=(tmp_path, _keep))
    process.start()
    assert ready.recv() is True
    store = ShardStore(tmp_path)
    assert store.is_claimed("one")
    process.kill()
    process.join()
    assert not store.is_claimed("one")
    with store.claim("one") as ours:
        assert ours


def hold(folder: Path, ready: object) -> None:
    with ShardStore(folder).claim("one") as ours:
        ready.send(ours)  # type: ignore[attr-defined]
        multiprocessing.Event().wait()


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write one.lock.*finished shards are kept"):
        ShardStore(tmp_path / "file").lock("one")
    with pytest.raises(UserError, match="cannot write x"):
        write_whole(tmp_path / "absent" / "x", b"")
