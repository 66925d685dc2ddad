"""TempLAMA in its published layout: the year of a query is what the calendar tells."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from tests.benchmarks.conftest import documents, task
from toolformer.errors import UserError

QUERY: dict[str, Any] = {
    "query": "Ada Bell plays for _X_.",
    "answer": [{"wikidata_id": "Q1", "name": "Real Ulm"}, {"wikidata_id": "Q2", "name": "FC Bonn"}],
    "date": "2014",
    "id": "Q7_P54_2014",
    "relation": "P54",
}
CHAIR = {**QUERY, "query": "_X_ is the chair of Ulm.", "id": "Q8_P488_2015", "relation": "P488"}


def write_json(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "templama" / "test.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_queries_whose_slot_is_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_json(tmp_path, [QUERY, CHAIR])
    with caplog.at_level("INFO", "benchmarks"):
        made = task("templama", data_dir=str(tmp_path))
    [document] = made.test_docs()
    assert document == {
        "id": "Q7_P54_2014", "family": "P54", "text": "Ada Bell plays for", "answers": ["Real Ulm", "FC Bonn"],
        "current_date": "2014-07-01",
    }  # fmt: skip
    assert made.doc_to_text(document) == (
        "Please complete the following text so that it is factually correct: Ada Bell plays for"
    )
    assert made.process_results(document, [" the club FC Bonn"]) == {"score": 100.0}
    assert made.process_results(document, [" 1 2 3 4 5 FC Bonn"]) == {"score": 0.0}
    assert "templama: 2 rows read, 1 kept, dropped: {'mask not last': 1}" in caplog.messages


def test_without_a_data_folder_the_authors_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_json(tmp_path, [QUERY, {**QUERY, "id": "other", "date": "2015"}])
    monkeypatch.delenv("TOOLFORMER_DATA_DIR", raising=False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    hub = {"path": "json", "split": "test", "data_files": {"test": str(path)}}
    with caplog.at_level("INFO", "benchmarks"):
        found = documents("templama", hub=hub)
    assert [row["current_date"] for row in found] == ["2014-07-01", "2015-07-01"]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert f"templama: {path} has {path.stat().st_size} bytes, SHA-256 {digest}" in caplog.messages


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"date": "14 May"}, "line 2: field `date` is '14 May', not a year"),
        ({"answer": [{"wikidata_id": "Q1"}]}, r"no text in field `name` \(the row has wikidata_id\)"),
    ],
)
def test_rows_of_another_schema_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    write_json(tmp_path, [QUERY, {**QUERY, **change}])
    with pytest.raises(UserError, match=message):
        documents("templama", data_dir=str(tmp_path))
