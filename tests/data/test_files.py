"""Files and folders of texts, packed and plain, JSON lines and Parquet, whole and broken; CCNet, the hub and the demo corpus."""

import datetime
import gzip
import json
import logging
import re
import tracemalloc
import zlib
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolformer.data import Document, Fields, FileCorpus, HubCorpus, date_from_url, demo_corpus
from toolformer.errors import UserError
from toolformer.stages import instantiate
from toolformer.stages.config import compose, validate
from toolformer.tools.calculator import calculate

ROWS = [
    {"text": f"Text {n} of the corpus.", "url": f"https://example.org/2020/08/{n % 28 + 1:02d}/{n}"}
    for n in range(300)
]


def lines(rows: Sequence[object]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def zstandard(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


PACKED = {"c.jsonl": lambda data: data, "c.jsonl.gz": gzip.compress, "c.jsonl.zst": zstandard}


def texts(corpus: Any) -> list[str]:
    return [document.text for document in corpus]


def corpus(*overrides: str) -> instantiate.Corpus:
    return instantiate.Corpus(validate(compose("generate", list(overrides))).corpus)


def parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


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
    if name.endswith("gz"):  # to the last line that is whole
        assert len(kept) == zlib.decompressobj(31).decompress(path.read_bytes()).count(b"\n")
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
    good, also_good = found
    assert (good.text, good.date) == ("good", datetime.date(1970, 1, 1))
    assert (also_good.text, also_good.date) == ("also good", datetime.date(1970, 1, 2))
    assert found.skipped == {"not UTF-8": 1, "`date` is not YYYY-MM-DD": 1}


def test_a_parquet_file_without_the_column_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parquet(tmp_path / "a.parquet", {"content": ["x", "y"]})
    parquet(tmp_path / "b.parquet", {"text": ["z"]})
    found = FileCorpus(tmp_path, "parquet")
    with caplog.at_level(logging.WARNING):
        assert texts(found) == ["z"]
    assert found.skipped == {"no column `text`": 2}
    assert f"{tmp_path / 'a.parquet'}, the whole file: no column `text` (it has content; name" in caplog.text
    named = FileCorpus(tmp_path / "a.parquet", "parquet", fields=Fields(text_field="content"))
    assert texts(named) == ["x", "y"]
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


def test_a_folder_is_read_in_order_recursively_and_mixed(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard(lines([{"text": "4"}])))
    (tmp_path / "b" / "y.json.gz").write_bytes(gzip.compress(lines([{"text": "3"}])))
    parquet(tmp_path / "b" / "x.parquet", {"text": ["1", "2"]})
    (tmp_path / "a.jsonl").write_bytes(lines([{"text": "0"}]))
    (tmp_path / "b" / "w.jsonl.gz").write_bytes(gzip.compress(lines([{"text": "lost"}]))[:20])
    (tmp_path / ".hidden.jsonl").write_bytes(lines([{"text": "no"}]))
    (tmp_path / "README.md").write_text("no")
    found = FileCorpus(tmp_path)
    assert texts(found) == ["0", "1", "2", "3", "4"] and found.skipped == {"broken off": 1}
    assert texts(FileCorpus(tmp_path, "jsonl")) == ["0", "3", "4"]
    assert texts(FileCorpus(tmp_path, pattern="b/*")) == ["1", "2", "3"]
    with pytest.raises(UserError, match="no file in .* matches corpus.pattern=z/"):
        FileCorpus(tmp_path, pattern="z/*")
    for pattern in ("/etc/*", "../*", "b/../../*"):
        with pytest.raises(UserError, match="corpus.pattern=.* leads out of corpus.path"):
            FileCorpus(tmp_path / "b", pattern=pattern)
    with pytest.raises(UserError, match="README.md is neither JSON Lines nor Parquet"):
        texts(FileCorpus(tmp_path, pattern="*.md"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no file in .* is named .jsonl"):
        FileCorpus(tmp_path / "empty")


def test_what_cc_net_writes(tmp_path: Path) -> None:
    rows = [
        {"url": f"http://example.org/{path}", "date_download": "2020-08-14T01:02:03Z", "digest": f"sha1:{n}",
         "title": "A title", "raw_content": f"A page, number {n}.", "language": "en", "bucket": "head"}
        for n, path in enumerate(["2019/01/02/x", "about"])
    ]  # fmt: skip
    (tmp_path / "en_head_0000.json.gz").write_bytes(gzip.compress(lines(rows)))
    (tmp_path / "en_tail_0000.json.gz").write_bytes(gzip.compress(lines([{"raw_content": "poor"}])))
    found = corpus("corpus=ccnet", f"corpus.path={tmp_path}", "corpus.pattern='**/en_head_*.json.gz'")
    assert [(document.text, document.date) for document in found] == [
        ("A page, number 0.", datetime.date(2019, 1, 2)),
        ("A page, number 1.", None),  # the day of the crawl is not the day of writing
    ]
    assert texts(corpus("corpus=ccnet", f"corpus.path={tmp_path}"))[-1] == "poor"
    held = compose("evaluate", ["heldout=ccnet", f"heldout.path={tmp_path}", "heldout.pattern='*_tail_*'"])
    assert texts(instantiate.Corpus(held.heldout)) == ["poor"]


def test_a_hub_data_set_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local folder in the hub's layout goes the same way as a data set of the hub."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    (tmp_path / "set" / "data").mkdir(parents=True)
    parquet(tmp_path / "set" / "data" / "train-0.parquet", {"body": ["a", "b", " "], "extra": [1, 2, 3]})
    parquet(tmp_path / "set" / "data" / "test-0.parquet", {"body": ["held"], "extra": [4]})
    words = ["corpus=hub", f"corpus.path={tmp_path / 'set'}"]
    found = corpus(*words, "corpus.text_field=body")
    assert texts(found) == ["a", "b"] and found.skipped() == {"empty text": 1}
    assert texts(corpus(*words, "corpus.text_field=body", "corpus.split=test")) == ["held"]
    with pytest.raises(UserError, match="has no field 'text'; it has body, extra"):
        texts(corpus(*words))
    with pytest.raises(UserError, match="cannot be streamed .*corpus.split") as caught:
        texts(corpus(*words, "corpus.split=dev"))
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="row 3: empty text"):
        texts(HubCorpus(str(tmp_path / "set"), fields=Fields(text_field="body"), strict=True))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "train.jsonl").write_bytes(lines(ROWS) + b'{"text": broken}\n')
    with pytest.raises(UserError, match="breaks off after row|cannot be streamed"):
        texts(HubCorpus(str(tmp_path / "broken")))


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.jsonl.zst", "c.parquet"])
def test_reading_does_not_hold_the_corpus(tmp_path: Path, name: str) -> None:
    """40 MB of text pass through less than half of it."""
    count, size = 400, 100_000
    path = tmp_path / name
    written = [f"{n} " + "word " * (size // 5) for n in range(count)]
    if name == "c.parquet":
        parquet(path, {"text": written}, use_dictionary=False, data_page_size=2**18, row_group_size=100)
    else:
        path.write_bytes(PACKED[name](lines([{"text": text} for text in written])))
    found = FileCorpus(path, "parquet" if name == "c.parquet" else "jsonl")
    next(iter(found))  # what is imported at first use does not count
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    total, arrow = 0, 0
    for document in found:
        total += len(document.text)
        arrow = max(arrow, pa.total_allocated_bytes() - before)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total > count * size and peak < 15e6 and arrow < 25e6


def test_the_fields_and_the_clock_are_configuration(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    row = {"body": "x", "link": "https://example.org/2020/08/14/", "day": "2001-02-03", "key": "k"}
    path.write_bytes(lines([row]))
    words = ["corpus=jsonl", f"corpus.path={path}", "corpus.text_field=body", "corpus.url_field=link"]
    words += ["corpus.date_field=day", "corpus.id_field=key"]
    assert list(corpus(*words)) == [Document("k", "x", row["link"], datetime.date(2020, 8, 14))]
    (early,) = corpus(*words, "corpus.latest_date=2020-08-13")
    assert early.date == datetime.date(2001, 2, 3)
    with pytest.raises(UserError, match="corpus.latest_date is 'soon'"):
        corpus(*words, "corpus.latest_date=soon")
    (plain,) = corpus(*words, "corpus.url_field=null", "corpus.date_field=null", "corpus.id_field=null")
    assert plain.date is None and plain.url is None and plain.doc_id != "k"
    path.write_bytes(lines([*ROWS[:4], *ROWS[:2], {"text": ""}]))
    found = corpus(*words[:2])
    for _ in range(2):
        assert len(texts(found)) == 4
        assert found.skipped() == {"repeated id or text": 2, "empty text": 1}
