"""TempLAMA in its published layout: the year of a query is what the calendar tells."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import datasets
import pytest

from benchmarks import switches
from tests.benchmarks.by_name import documents, task
from tests.benchmarks.test_loaders import write
from toolformer.errors import UserError

QUERY: dict[str, Any] = {
    "query": "Ada Bell plays for _X_.",
    "answer": [{"wikidata_id": "Q1", "name": "Real Ulm"}, {"wikidata_id": "Q2", "name": "FC Bonn"}],
    "date": "2014",
    "id": "Q7_P54_2014",
    "most_frequent_answer": {"wikidata_id": "Q1", "name": "Real Ulm"},
    "most_recent_answer": {"wikidata_id": "Q1", "name": "Real Ulm"},
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
    with caplog.at_level("INFO"):
        made = task("templama", data_dir=str(tmp_path))
    [document] = made.test_docs()
    assert document == {
        "id": "Q7_P54_2014",
        "family": "P54",
        "text": "Ada Bell plays for",
        "answers": ["Real Ulm", "FC Bonn"],
        "current_date": "2014-07-01",
    }
    assert made.doc_to_text(document) == (
        "Please complete the following text so that it is factually correct: Ada Bell plays for"
    )
    assert made.process_results(document, [" the club FC Bonn"]) == {"score": 100.0}
    assert made.process_results(document, [" 1 2 3 4 5 FC Bonn"]) == {"score": 0.0}
    assert "templama: 2 rows read, 1 kept, dropped: {'mask not last': 1}" in caplog.messages
    assert switches.of_task("templama") == frozenset()


def test_packed_files_are_read_too(tmp_path: Path) -> None:
    write(tmp_path, "templama/test", [QUERY])
    assert len(documents("templama", data_dir=str(tmp_path))) == 1


@contextmanager
def web(folder: Path) -> Iterator[str]:
    """A web server that shows a folder; its address."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_without_a_data_folder_the_authors_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Over HTTP, as from the address in the task's file."""
    path = write_json(tmp_path / "web", [QUERY, {**QUERY, "id": "other", "date": "2015"}])
    monkeypatch.delenv("TOOLFORMER_DATA_DIR", raising=False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "DOWNLOADED_DATASETS_PATH", tmp_path / "cache" / "downloads")
    with web(path.parent) as address, caplog.at_level("INFO"):
        hub = {"path": "json", "split": "test", "data_files": {"test": f"{address}/test.json"}}
        found = documents("templama", hub=hub)
    assert [row["current_date"] for row in found] == ["2014-07-01", "2015-07-01"]
    told = f"{path.stat().st_size} bytes, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert f"templama: {address}/test.json has {told}" in caplog.messages


def test_an_address_that_gives_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLFORMER_DATA_DIR", raising=False)
    told = (
        r"templama: https://storage.googleapis.com/gresearch/templama/test.json cannot be read \(.*\); set "
    )
    with pytest.raises(UserError, match=told) as error:
        documents("templama")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"date": "14 May"}, "line 2: field `date` is '14 May', not a year"),
        ({"answer": {"name": "x"}}, "line 2: no list of objects in field `answer`; mend"),
        ({"answer": [{"wikidata_id": "Q1"}]}, r"no text in field `name` \(the row has wikidata_id\)"),
    ],
)
def test_rows_of_another_schema_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    write_json(tmp_path, [QUERY, {**QUERY, **change}])
    with pytest.raises(UserError, match=message):
        documents("templama", data_dir=str(tmp_path))


def test_a_missing_field_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no templama; expected the file .*templama/test\.json: add it"):
        documents("templama", data_dir=str(tmp_path))
    write_json(tmp_path, [{key: value for key, value in QUERY.items() if key != "date"}])
    with pytest.raises(UserError, match=r"line 1: no field `date` \(the row has query, answer, id"):
        documents("templama", data_dir=str(tmp_path))
