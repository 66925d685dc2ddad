"""JSON lines, packed and plain; broken ones; and the demo corpus."""

import datetime
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


def test_many_bad_rows_are_counted_not_told_one_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"{broken\n" * 500 + lines(ROWS[:2]))
    found = FileCorpus(path, "jsonl")
    with caplog.at_level(logging.WARNING):
        assert len(texts(found)) == 2
    assert found.skipped == {"malformed JSON": 500}
    assert len(caplog.records) == 4  # three rows and the sum
    assert caplog.records[3].message == f"{path}: 500 rows skipped: 500 malformed JSON"


def test_a_json_lines_file_is_read(tmp_path: Path) -> None:
    """With a mark of its encoding, and lone surrogates, which do not survive."""
    path = tmp_path / "c.jsonl"
    rows = [
        {"text": "One.", "url": "https://example.org/2020/08/14/", "date": "2019-01-01", "id": 7},
        {"text": "Two.", "date": "2019-01-02T10:00:00"}, {"text": "a\ud800b", "id": "\ud800"}, {"text": "Three."},
    ]  # fmt: skip
    path.write_bytes(b"\xef\xbb\xbf" + lines(rows[:2]) + b"\r\n" + lines(rows[2:]))
    one, two, odd, three = FileCorpus(path, "jsonl")
    assert (one.doc_id, one.date) == ("7", datetime.date(2020, 8, 14))
    assert two.date == datetime.date(2019, 1, 2)
    assert (odd.text, odd.doc_id) == ("a?b", "?")
    assert three.date is None and three.doc_id != two.doc_id
    with pytest.raises(UserError, match="corpus.path: there is no file"):
        FileCorpus(tmp_path / "absent.jsonl", "jsonl")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"{broken", "malformed JSON"),
        (b'{"txt": "x"}', "no text in field `text`"),
        (b'{"text": "  \\n"}', "empty text"),
        (b'{"text": "x", "date": "yesterday"}', "`date` is not YYYY-MM-DD ('yesterday')"),
        (b'{"text": "x", "url": 5}', "`url` is no text"),
        (b"[" * 100_000, "malformed JSON"),
        (b'{"text": "x", "id": true}', "`id` is no text"),
        (b'{"text": "caf\xe9"}', "not UTF-8 (byte 14)"),
    ],
)
def test_a_bad_row_is_skipped_counted_and_named_or_ends_a_strict_run(
    tmp_path: Path, row: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"text": "good"}\n' + row + b'\r\n{"text": "caf\xc3\xa9"}')
    corpus = FileCorpus(path, "jsonl")
    with caplog.at_level(logging.WARNING):
        assert texts(corpus) == ["good", "café"]
    assert sum(corpus.skipped.values()) == 1
    assert f"{path}, line 2" in caplog.text and reason in caplog.text
    with pytest.raises(UserError, match="line 2: .*corpus.strict=false") as caught:
        list(FileCorpus(path, "jsonl", strict=True))
    assert reason in str(caught.value)


def test_the_demo_corpus_is_what_it_claims() -> None:
    train, heldout = list(demo_corpus("train")), list(demo_corpus("heldout"))
    documents = train + heldout
    assert len(train) >= 110 and len(heldout) >= 30 and len(documents) >= 150
    for field in ("doc_id", "text"):
        assert len({getattr(document, field) for document in documents}) == len(documents)
    for document in documents:
        assert 40 <= len(document.text.split()) <= 255, document.doc_id
        assert not set("[]") & set(document.text) and "->" not in document.text, document.doc_id
        assert document.url and document.date, document.doc_id
        assert date_from_url(document.url) in (None, document.date), document.doc_id
    assert 0.7 < sum(bool(date_from_url(document.url)) for document in documents) / len(documents) < 0.95


def test_every_worked_sum_of_the_demo_is_right() -> None:
    texts = [document.text for document in demo_corpus("sums")]
    sums = re.findall(r"((?:\d|\()[\d.() +*/-]*?) = [$£€]?(-?\d*\.?\d+)", "\n".join(texts))
    assert len(sums) == sum(text.count(" = ") for text in texts) > 250
    assert [(left, right) for left, right in sums if Fraction(calculate(left)) != Fraction(right)] == []
