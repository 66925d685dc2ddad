"""The on-disk form of shards: every altered byte is found, and a claim is one process's alone."""

import hashlib
import io
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolformer.annotation.shards import CANDIDATES, BrokenShard, Record, ShardStore
from toolformer.calls import ApiCall
from toolformer.errors import UserError
from toolformer.tools.runtime import Usage

ROW = {
    "doc_id": "d", "tool": "calculator", "position": 4, "token_position": 2, "start_probability": 0.25, "sample": 0,
    "written": "Calculator(1 + 2)]", "call": ApiCall("Calculator", "1 + 2", "3").as_row(), "status": "scored",
    "loss_result": 1.0, "loss_no_result": 2.0, "loss_none": 1.5,
}  # fmt: skip
RECORD = Record(
    {"documents": 1, "reasons": {"a cue before a number": 1}},
    1.5,
    7,
    Usage(3, 2, {"late": 1}, 1, 0.5),
    "c0ffee",
)


def written(folder: Path) -> ShardStore:
    folder.mkdir(exist_ok=True)
    store = ShardStore(folder)
    store.write("one", [ROW, {**ROW, "sample": 1, "call": None}], RECORD)
    return store


def test_a_shard_is_read_as_written(tmp_path: Path) -> None:
    store = written(tmp_path)
    table, record = store.read("one")
    assert table.schema.equals(CANDIDATES)
    assert table.to_pylist() == [ROW, ROW | {"sample": 1, "call": None}]
    assert record == RECORD == store.record("one")
    assert store.has("one") and store.names() == {"one"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.parquet", "one.sha256"]
    done = subprocess.run(["sha256sum", "-c", "one.sha256"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "one.parquet: OK\n"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_is_altered_is_found(tmp_path: Path, data: st.DataObject) -> None:
    store = written(tmp_path / "shards")
    path = data.draw(st.sampled_from([store.path("one"), store.folder / "one.sha256"]))
    whole = path.read_bytes()
    # In the checksum file only the digest counts, not the name after it.
    at = data.draw(st.integers(0, (len(whole) if path.suffix == ".parquet" else 64) - 1))
    change = data.draw(st.sampled_from(["flip", "cut", "remove"]))
    if change == "remove":
        path.unlink()
    else:
        altered = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
        path.write_bytes(whole[:at] + (altered + whole[at + 1 :] if change == "flip" else b""))
    with pytest.raises(BrokenShard, match="one"):
        store.read("one")
    store.write("one", [ROW], RECORD)
    earlier = io.BytesIO()  # another version's
    pq.write_table(store.read("one")[0].drop_columns(["call"]), earlier)
    store.path("one").write_bytes(earlier.getvalue())
    (store.folder / "one.sha256").write_text(hashlib.sha256(earlier.getvalue()).hexdigest())
    with pytest.raises(BrokenShard, match="shard one was written by another version"):
        store.read("one")


def test_a_claim_is_ours_alone(tmp_path: Path) -> None:
    ours, theirs = ShardStore(tmp_path), ShardStore(tmp_path)
    with ours.claim("one") as first, theirs.claim("one") as second, theirs.claim("two") as other:
        assert (first, second, other) == (True, False, True)
    with theirs.claim("one") as again:
        assert again
        theirs.write("one", [ROW], RECORD)
    assert not list((tmp_path / "claims").glob("one*"))
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write one.lock.*finished work is kept"):
        ShardStore(tmp_path / "file").lock("one")


def rewrite(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text(""),
        lambda path: rewrite(path, "0.5", "0.1"),
        lambda path: rewrite(path, "0.5", "nan"),
        lambda path: (path.unlink(), path.mkdir()),
        Path.unlink,
    ],
)
def test_a_damaged_floor_is_named_where_shards_depend_on_it(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    store = ShardStore(tmp_path)
    store.require_floor(0.5)
    assert store.floor == 0.5
    store.write("one", [ROW], RECORD)
    damage(tmp_path / "floor")
    with pytest.raises(UserError, match="floor is damaged or missing; restore it, or remove"):
        store.require_floor(0.75)


def test_a_damaged_floor_without_shards_is_written_again(tmp_path: Path) -> None:
    store = ShardStore(tmp_path)
    (tmp_path / "floor").write_text("half")
    store.require_floor(0.25)
    assert store.floor == 0.25
    (tmp_path / "other" / "floor").mkdir(parents=True)
    with pytest.raises(UserError, match="cannot write floor"):
        ShardStore(tmp_path / "other").require_floor(0.25)
