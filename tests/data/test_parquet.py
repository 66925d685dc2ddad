"""Parquet files: types, texts and dates that are none, broken row groups."""

import datetime
import logging
from pathlib import Path

import pyarrow as pa
import pytest

from tests.data.files import parquet, texts
from toolformer.data import Document, Fields, FileCorpus
from toolformer.errors import UserError


def test_parquet_is_read_with_the_types_that_it_has(tmp_path: Path) -> None:
    day = datetime.date(2020, 8, 14)
    path = parquet(
        tmp_path / "c.parquet",
        {
            "text": pa.array(["One.", None, "", "Two."]).dictionary_encode(),
            "url": pa.array([None, "x", "x", "https://example.org/2019/01/02/"], pa.large_string()),
            "date": [day, day, day, day],
            "id": [1, 2, 3, 4],
            "other": [[1], [2], [3], [4]],
        },
    )
    found = FileCorpus(path, "parquet")
    assert list(found) == [
        Document("1", "One.", None, day),
        Document("4", "Two.", "https://example.org/2019/01/02/", datetime.date(2019, 1, 2)),
    ]
    assert found.skipped == {"no text in field `text`": 1, "empty text": 1}


def test_a_text_that_is_not_utf_8_or_a_date_that_python_has_not_costs_its_row_only(tmp_path: Path) -> None:
    columns = {
        "text": pa.array([b"good", b"caf\xe9", b"late", b"also good"]).view(pa.string()),
        "date": pa.array([0, 0, 10**15, 86400], pa.timestamp("s")),
    }
    found = FileCorpus(parquet(tmp_path / "c.parquet", columns), "parquet")
    dates = [datetime.date(1970, 1, 1), datetime.date(1970, 1, 2)]
    assert [(document.text, document.date) for document in found] == [
        *zip(["good", "also good"], dates, strict=True)
    ]
    assert found.skipped == {"not UTF-8": 1, "`date` is not YYYY-MM-DD": 1}


def test_a_parquet_file_without_the_column_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parquet(tmp_path / "a.parquet", {"content": ["x", "y"]})
    parquet(tmp_path / "b.parquet", {"text": ["z"]})
    found = FileCorpus(tmp_path, "parquet")
    with caplog.at_level(logging.WARNING):
        assert texts(found) == ["z"]
    assert found.skipped == {"no column `text`": 2}
    assert f"{tmp_path / 'a.parquet'}, the whole file: no column `text` (it has content; name" in caplog.text
    assert texts(FileCorpus(tmp_path / "a.parquet", "parquet", fields=Fields(text_field="content"))) == [
        "x",
        "y",
    ]
    with pytest.raises(UserError, match="a.parquet, the whole file: no column `text`"):
        texts(FileCorpus(tmp_path, "parquet", strict=True))


def test_a_file_that_breaks_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    written = [f"text {n}" for n in range(3000)]
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    path = parquet(tmp_path / "c.parquet", {"text": written}, row_group_size=1000, **options)
    data = bytearray(path.read_bytes())
    at = data.index(b"text 1500")
    data[at : at + 4] = b"hurt"
    path.write_bytes(data)
    found = FileCorpus(path, "parquet")
    kept = texts(found)
    assert 900 < len(kept) < 1500 and kept == written[: len(kept)]
    assert len(kept) + found.skipped["broken off"] == 3000
    path.write_bytes(data[: len(data) // 2])
    assert not texts(found) and found.skipped == {"not a Parquet file": 1}
