"""JSON lines, packed and plain; broken ones."""

from __future__ import annotations

import datetime
import gzip
import logging
import random
from pathlib import Path

import pytest

from tests.corpora.files import PACKED, ROWS, lines, texts
from toolformer.documents import FileCorpus
from toolformer.documents import jsonl as jsonl_module
from toolformer.errors import UserError


@pytest.mark.parametrize("name", PACKED)
def test_packed_and_plain_files_read_alike(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(PACKED[name](lines(ROWS)))
    found = FileCorpus(path, "jsonl")
    assert texts(found) == [row["text"] for row in ROWS]
    assert list(found) == list(found) and not found.skipped
    assert next(iter(found)).date == datetime.date(2020, 8, 1)


def test_what_a_file_is_packed_with_is_told_by_its_bytes(tmp_path: Path) -> None:
    for name, pack in PACKED.items():
        path = tmp_path / f"{name}.odd"
        path.write_bytes(pack(lines(ROWS)) * 2)  # both formats allow members one after the other
        assert len(texts(FileCorpus(path, "jsonl"))) == 600


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.jsonl.zst"])
def test_a_truncated_archive_gives_what_comes_before_the_break(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Rows that do not pack well, in several blocks of the packed stream.
    rows = [{"text": f"{n} " + " ".join(str(n**k) for k in range(2, 40))} for n in range(2000)]
    packed = PACKED[name](lines(rows))
    path = tmp_path / name
    path.write_bytes(packed[: len(packed) // 2])
    found = FileCorpus(path, "jsonl")
    with caplog.at_level(logging.WARNING):
        kept = texts(found)
    assert 500 < len(kept) < 1500 and kept == [row["text"] for row in rows[: len(kept)]]
    assert found.skipped == {"broken off": 1}
    assert f"{path}, after line {len(kept)}: broken off" in caplog.text
    strict = FileCorpus(path, "jsonl", strict=True)
    with pytest.raises(UserError, match=f"after line {len(kept)}: broken off .*corpus.strict=false"):
        texts(strict)


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.jsonl.zst"])
def test_a_damaged_archive_never_ends_in_a_traceback(tmp_path: Path, name: str) -> None:
    packed = PACKED[name](lines(ROWS))
    path = tmp_path / name
    for at in range(0, len(packed), max(1, len(packed) // 40)):
        damaged = bytearray(packed)
        damaged[at] ^= 0xFF
        path.write_bytes(damaged + b"rest")
        found = FileCorpus(path, "jsonl")
        texts(found)
        assert found.skipped
    path.write_bytes(b"")
    assert not texts(FileCorpus(path, "jsonl"))


def test_rows_that_are_not_utf_8_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"text": "with a mark"}\n{"text": "caf\xe9"}\r\n{"text": "caf\xc3\xa9"}\r\n'
    )
    found = FileCorpus(path, "jsonl")
    with caplog.at_level(logging.WARNING):
        assert texts(found) == ["with a mark", "café"]
    assert found.skipped == {"not UTF-8": 1}
    assert f"{path}, line 2: not UTF-8 (byte 14), skipped" in caplog.text


def test_a_line_without_end_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_module, "LONGEST", 2**20)
    path = tmp_path / "c.jsonl"
    path.write_bytes(lines([{"text": "a"}, {"text": "x" * 2**22}, {"text": "b"}]))
    found = FileCorpus(path, "jsonl")
    assert texts(found) == ["a", "b"]
    assert found.skipped == {"longer than 1 MiB": 1}


def test_an_archive_that_breaks_off_within_a_line_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl_module, "LONGEST", 2**16)
    chance = random.Random(0)
    endless = "".join(chance.choices("abcdefgh", k=2**19))
    packed = gzip.compress(lines([{"text": "a"}, {"text": endless}, {"text": "b"}]))
    path = tmp_path / "c.jsonl.gz"
    path.write_bytes(packed[: len(packed) // 2])
    found = FileCorpus(path, "jsonl")
    assert texts(found) == ["a"]
    assert found.skipped == {"longer than 0 MiB": 1, "broken off": 1}


def test_many_bad_rows_are_counted_not_told_one_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"{broken\n" * 500 + lines(ROWS[:2]))
    found = FileCorpus(path, "jsonl")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert len(texts(found)) == 2
    assert found.skipped == {"malformed JSON": 500}
    told = [record.message for record in caplog.records]
    assert len(told) == 4  # three rows and the sum, though it was read three times
    assert told[2].endswith("further ones in this file are only counted")
    assert told[3] == f"{path}: 500 rows skipped: 500 malformed JSON"


def test_ids_are_whole_numbers_or_texts(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    ids: list[object] = [7, "seven", None, "", True, 1.5, ["x"], "a\ud800"]
    path.write_bytes(lines([{"text": f"text {n}", "id": one} for n, one in enumerate(ids)]))
    found = FileCorpus(path, "jsonl")
    names = [document.doc_id for document in found]
    assert names[:2] == ["7", "seven"] and len(set(names)) == 5 and names[-1] == "a?"
    assert found.skipped == {"`id` is no text and no whole number": 3}
