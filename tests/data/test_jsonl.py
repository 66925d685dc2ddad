"""JSON lines, packed and plain; broken ones; and the demo corpus."""

from __future__ import annotations

import datetime
import json
import logging
import re
from fractions import Fraction
from pathlib import Path

import pytest

from tests.data.files import PACKED, ROWS, lines, texts
from toolformer.data import FileCorpus, date_from_url, demo_corpus
from toolformer.errors import UserError
from toolformer.tools.calculator import calculate


@pytest.mark.parametrize("name", PACKED)
def test_packed_and_plain_files_read_alike_by_their_first_bytes(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.odd"
    path.write_bytes(PACKED[name](lines(ROWS)) * 2)  # both formats allow members one after the other
    found = FileCorpus(path, "jsonl")
    assert texts(found) == [row["text"] for row in ROWS] * 2
    assert list(found) == list(found) and not found.skipped
    assert next(iter(found)).date == datetime.date(2020, 8, 1)


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
    assert len(caplog.records) == 4  # three rows and the sum, though it was read three times
    assert caplog.records[3].message == f"{path}: 500 rows skipped: 500 malformed JSON"


def write(path: Path, *lines: object) -> Path:
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8"
    )
    return path


def test_a_json_lines_file_is_read(tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.jsonl",
        {"text": "One.", "url": "https://example.org/2020/08/14/", "date": "2019-01-01", "id": 7},
        {"text": "Two.", "date": "2019-01-02T10:00:00"},
        "",
        {"text": "Three."},
    )
    one, two, three = FileCorpus(path, "jsonl")
    assert (one.doc_id, one.date) == ("7", datetime.date(2020, 8, 14))
    assert two.date == datetime.date(2019, 1, 2)
    assert three.date is None and three.doc_id != two.doc_id


BAD = [
    ("{broken", "malformed JSON"),
    ({"txt": "x"}, "no text in field `text`"),
    ({"text": "  \n"}, "empty text"),
    ({"text": "x", "date": "yesterday"}, "`date` is not YYYY-MM-DD ('yesterday')"),
    ({"text": "x", "url": 5}, "`url` is no text"),
    ("[" * 100_000, "malformed JSON"),
    ({"text": "x", "id": True}, "`id` is no text"),
]


@pytest.mark.parametrize(("row", "reason"), BAD)
def test_a_bad_row_is_skipped_counted_and_named_or_ends_a_strict_run(
    tmp_path: Path, row: object, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "c.jsonl", {"text": "good"}, row, {"text": "also good"})
    corpus = FileCorpus(path, "jsonl")
    with caplog.at_level(logging.WARNING):
        assert [document.text for document in corpus] == ["good", "also good"]
    assert sum(corpus.skipped.values()) == 1
    assert f"{path}, line 2" in caplog.text and reason in caplog.text
    with pytest.raises(UserError, match="line 2: .*corpus.strict=false") as caught:
        list(FileCorpus(path, "jsonl", strict=True))
    assert reason in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="corpus.path: there is no file"):
        FileCorpus(tmp_path / "absent.jsonl", "jsonl")


def test_lone_surrogates_do_not_survive(tmp_path: Path) -> None:
    (document,) = FileCorpus(write(tmp_path / "c.jsonl", '{"text": "a\\ud800b", "id": "\\ud800"}'), "jsonl")
    assert (document.text, document.doc_id) == ("a?b", "?")


def test_the_demo_corpus_is_what_it_claims() -> None:
    train, heldout = list(demo_corpus("train")), list(demo_corpus("heldout"))
    documents = train + heldout
    assert len(train) >= 110 and len(heldout) >= 30 and len(documents) >= 150
    assert len({document.doc_id for document in documents}) == len(documents)
    assert len({document.text for document in documents}) == len(documents)
    for document in documents:
        assert 40 <= len(document.text.split()) <= 255, document.doc_id
        assert not set("[]") & set(document.text) and "->" not in document.text, document.doc_id
        assert document.url and document.date, document.doc_id
    dated = [document for document in documents if date_from_url(document.url)]
    assert 0.7 < len(dated) / len(documents) < 0.95
    assert all(date_from_url(document.url) == document.date for document in dated)


def test_every_worked_sum_of_the_demo_is_right() -> None:
    texts = [document.text for document in demo_corpus("sums")]
    sums = re.findall(r"((?:\d|\()[\d.() +*/-]*?) = [$£€]?(-?\d*\.?\d+)", "\n".join(texts))
    assert len(sums) == sum(text.count(" = ") for text in texts) > 250
    assert [(left, right) for left, right in sums if Fraction(calculate(left)) != Fraction(right)] == []
