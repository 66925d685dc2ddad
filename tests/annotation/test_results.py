"""Finished shards of several tools become C*: calls of all tools in each text, up to a number of examples of each tool."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from toolformer.annotation.merge import BELOW, ENOUGH
from toolformer.annotation.results import KeepRules, examples, write_heldout, write_results
from toolformer.annotation.shards import Record, ShardStore
from toolformer.calls import ApiCall
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.tools.runtime import Usage

SHARDS = {
    f"{number:06d}-x": [Document(f"d{n}", f"text {n} ends") for n in range(2 * number, 2 * number + 2)]
    for number in range(4)
}
NAMES = {"calculator": "Calculator", "qa": "QA"}
RULES = KeepRules({"calculator": 0.5, "qa": 1.0})


def row(doc_id: str, tool: str, position: int, worth: float = 2.0, sample: int = 0) -> dict[str, Any]:
    return {
        "doc_id": doc_id, "tool": tool, "position": position, "token_position": position, "start_probability": 0.5,
        "sample": sample, "written": "x", "call": ApiCall(NAMES[tool], "x", "2").as_row(), "status": "scored",
        "loss_result": 0.0, "loss_no_result": worth, "loss_none": worth + 1,
    }  # fmt: skip


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, ShardStore]:
    """The calculator has a call in every text, question answering a good one in odd texts."""
    stores = {tool: ShardStore(tmp_path / tool) for tool in ("qa", "calculator")}
    for tool, store in stores.items():
        store.folder.mkdir()
        for name, documents in SHARDS.items():
            rows = [
                row(
                    document.doc_id,
                    tool,
                    4,
                    2.0 if tool == "calculator" or int(document.doc_id[1]) % 2 else 0.7,
                )
                for document in documents
            ]
            used = Usage(3, 2, {"late": 1}, 1, 0.5)
            counts = {"documents": 2, "reasons": {"selected": 2}}
            dtype = "float32" if tool == "qa" else "bfloat16"
            store.write(name, rows, Record(counts, 1.5, 7, used, "c0ffee", dtype))
    return stores


def texts(folder: Path) -> dict[str, str]:
    rows = pq.read_table(folder / "dataset_augmented.parquet").to_pylist()
    return {row["doc_id"]: row["text"] for row in rows}


def test_calls_of_all_tools_are_in_the_same_text(stores: dict[str, ShardStore], tmp_path: Path) -> None:
    merged = write_results(tmp_path, stores, SHARDS.items(), RULES)
    found = texts(tmp_path)
    assert [*found] == [f"d{n}" for n in range(8)], "a text comes once"
    assert found["d0"] == "text [Calculator(x) -> 2] 0 ends"
    assert found["d1"] == "text [Calculator(x) -> 2] [QA(x) -> 2] 1 ends"
    candidates = pq.read_table(tmp_path / "candidates.parquet").to_pylist()
    assert [(one["doc_id"], one["tool"]) for one in candidates[:3]] == [
        ("d0", "calculator"), ("d0", "qa"), ("d1", "calculator"),
    ]  # fmt: skip
    assert merged.funnel["qa"] == {
        "documents": 8, "reasons": {"selected": 8}, "kept": 4, "leaking": 0, "kept_leaking": 0, "filter_reasons": {BELOW: 4},
    }  # fmt: skip
    assert merged.seconds == 12 and merged.commits == {"c0ffee": 8}
    assert merged.dtypes == {"bfloat16", "float32"}
    assert merged.used == {tool: Usage(12, 8, {"late": 4}, 4, 2.0) for tool in stores}
    assert json.loads((tmp_path / "funnel.json").read_bytes()) == merged.funnel


def test_a_tool_has_no_more_texts_than_its_limit(stores: dict[str, ShardStore], tmp_path: Path) -> None:
    """The first ones of the corpus; later shards need not be there."""
    for name in [*SHARDS][2:]:
        stores["calculator"].discard(name)
    rules = KeepRules(RULES.thresholds, limit=3)
    merged = write_results(tmp_path, stores, SHARDS.items(), rules)
    assert {doc_id: text.count("[") for doc_id, text in texts(tmp_path).items()} == {
        "d0": 1, "d1": 2, "d2": 1, "d3": 1, "d5": 1,
    }  # fmt: skip
    assert merged.funnel["calculator"]["kept"] == merged.funnel["qa"]["kept"] == 3
    assert merged.funnel["calculator"]["filter_reasons"] == {ENOUGH: 1}
    assert merged.funnel["calculator"]["documents"] == 4 and merged.funnel["qa"]["documents"] == 6


def test_texts_with_a_call_are_examples(stores: dict[str, ShardStore]) -> None:
    name, documents = next(iter(SHARDS.items()))
    counts = {
        tool: examples(store.read(name)[0].to_pylist(), documents, RULES) for tool, store in stores.items()
    }
    assert counts == {"calculator": 2, "qa": 1}


def test_damaged_shards_are_named_and_discarded(stores: dict[str, ShardStore], tmp_path: Path) -> None:
    name = [*SHARDS][1]
    stores["qa"].path(name).write_bytes(b"PAR1")
    with pytest.raises(UserError, match="qa: 1 shards are damaged; run the same command to"):
        write_results(tmp_path, stores, SHARDS.items(), RULES)
    assert not stores["qa"].has(name) and not (tmp_path / "dataset_plain.parquet").exists()


def test_held_out_texts_are_written_as_those_of_c(tmp_path: Path) -> None:
    write_heldout(tmp_path, SHARDS["000000-x"])
    rows = pq.read_table(tmp_path / "heldout.parquet").to_pylist()
    assert [(one["doc_id"], one["text"], one["calls"]) for one in rows] == [
        ("d0", "text 0 ends", []), ("d1", "text 1 ends", []),
    ]  # fmt: skip
