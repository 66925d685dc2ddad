"""Corpora of all kinds: files packed and plain, Parquet, folders, the hub's layout; broken ones; nothing held."""

from __future__ import annotations

import datetime
import gzip
import itertools
import json
import logging
import random
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolformer import build
from toolformer.config import compose, validate
from toolformer.documents import Document, Fields, FileCorpus, HubCorpus, JsonlCorpus
from toolformer.documents import jsonl as jsonl_module
from toolformer.errors import UserError

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


def corpus(*overrides: str) -> build.Corpus:
    return build.documents(validate(compose("generate", list(overrides))).corpus)


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
        assert len(texts(JsonlCorpus(path))) == 600


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.jsonl.zst"])
def test_a_truncated_archive_gives_what_comes_before_the_break(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Rows that do not pack well, in several blocks of the packed stream.
    rows = [{"text": f"{n} " + " ".join(str(n**k) for k in range(2, 40))} for n in range(2000)]
    packed = PACKED[name](lines(rows))
    path = tmp_path / name
    path.write_bytes(packed[: len(packed) // 2])
    found = JsonlCorpus(path)
    with caplog.at_level(logging.WARNING):
        kept = texts(found)
    assert 500 < len(kept) < 1500 and kept == [row["text"] for row in rows[: len(kept)]]
    assert found.skipped == {"broken off": 1}
    assert f"{path}, after line {len(kept)}: broken off" in caplog.text
    strict = JsonlCorpus(path, strict=True)
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
        found = JsonlCorpus(path)
        texts(found)
        assert found.skipped
    path.write_bytes(b"")
    assert not texts(JsonlCorpus(path))


def test_rows_that_are_not_utf_8_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"text": "with a mark"}\n{"text": "caf\xe9"}\r\n{"text": "caf\xc3\xa9"}\r\n'
    )
    found = JsonlCorpus(path)
    with caplog.at_level(logging.WARNING):
        assert texts(found) == ["with a mark", "café"]
    assert found.skipped == {"not UTF-8": 1}
    assert f"{path}, line 2: not UTF-8 (byte 14), skipped" in caplog.text


def test_a_line_without_end_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_module, "LONGEST", 2**20)
    path = tmp_path / "c.jsonl"
    path.write_bytes(lines([{"text": "a"}, {"text": "x" * 2**22}, {"text": "b"}]))
    found = JsonlCorpus(path)
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
    found = JsonlCorpus(path)
    assert texts(found) == ["a"]
    assert found.skipped == {"longer than 0 MiB": 1, "broken off": 1}


def test_many_bad_rows_are_counted_not_told_one_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"{broken\n" * 500 + lines(ROWS[:2]))
    found = JsonlCorpus(path)
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
    found = JsonlCorpus(path)
    names = [document.doc_id for document in found]
    assert names[:2] == ["7", "seven"] and len(set(names)) == 5 and names[-1] == "a?"
    assert found.skipped == {"`id` is no text and no whole number": 3}


def parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


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


def test_a_parquet_text_that_is_not_utf_8_costs_its_row_only(tmp_path: Path) -> None:
    false = pa.array([b"good", b"caf\xe9", b"also good"]).view(pa.string())
    found = FileCorpus(parquet(tmp_path / "c.parquet", {"text": false}), "parquet")
    assert texts(found) == ["good", "also good"]
    assert found.skipped == {"not UTF-8": 1}


def test_a_parquet_date_that_python_has_not_costs_no_batch(tmp_path: Path) -> None:
    dates = pa.array([0, 10**15, 86400], pa.timestamp("s"))
    path = parquet(tmp_path / "c.parquet", {"text": ["One.", "Two.", "Three."], "date": dates})
    found = FileCorpus(path, "parquet")
    assert [(document.text, document.date) for document in found] == [
        ("One.", datetime.date(1970, 1, 1)),
        ("Two.", None),
        ("Three.", datetime.date(1970, 1, 2)),
    ]


def test_a_parquet_file_without_the_column_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parquet(tmp_path / "a.parquet", {"content": ["x", "y"]})
    parquet(tmp_path / "b.parquet", {"text": ["z"]})
    found = FileCorpus(tmp_path, "parquet")
    with caplog.at_level(logging.WARNING):
        assert texts(found) == ["z"]
    assert found.skipped == {"no column `text`": 2}
    assert f"{tmp_path / 'a.parquet'}, the whole file: no column `text` (it has content; name" in caplog.text
    assert texts(FileCorpus(tmp_path / "a.parquet", "parquet", Fields(text="content"))) == ["x", "y"]
    with pytest.raises(UserError, match="a.parquet, the whole file: no column `text`"):
        texts(FileCorpus(tmp_path, "parquet", strict=True))


def test_a_broken_row_group_costs_itself_only(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "c.parquet",
        {"text": [f"text {n}" for n in range(3000)]},
        row_group_size=1000,
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
    )
    data = bytearray(path.read_bytes())
    at = data.index(b"text 1500")
    data[at : at + 4] = b"hurt"
    path.write_bytes(data)
    found = FileCorpus(path, "parquet")
    kept = texts(found)
    assert kept[:1000] == [f"text {n}" for n in range(1000)] and kept[-1000:] == [
        f"text {n}" for n in range(2000, 3000)
    ]
    assert len(kept) + found.skipped["broken off"] == 3000
    path.write_bytes(data[: len(data) // 2])
    assert not texts(found) and found.skipped == {"not a Parquet file": 1}


def test_a_folder_is_read_in_order_recursively_and_mixed(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard(lines([{"text": "4"}])))
    (tmp_path / "b" / "y.json.gz").write_bytes(gzip.compress(lines([{"text": "3"}])))
    parquet(tmp_path / "b" / "x.parquet", {"text": ["1", "2"]})
    (tmp_path / "a.jsonl").write_bytes(lines([{"text": "0"}]))
    (tmp_path / ".hidden.jsonl").write_bytes(lines([{"text": "no"}]))
    (tmp_path / "README.md").write_text("no")
    assert texts(FileCorpus(tmp_path)) == ["0", "1", "2", "3", "4"]
    assert texts(FileCorpus(tmp_path, "jsonl")) == ["0", "3", "4"]
    assert texts(FileCorpus(tmp_path, pattern="b/*")) == ["1", "2", "3"]
    with pytest.raises(UserError, match="no file in .* matches corpus.pattern=z/"):
        FileCorpus(tmp_path, pattern="z/*")
    with pytest.raises(UserError, match="README.md is neither JSON Lines nor Parquet"):
        texts(FileCorpus(tmp_path, pattern="*.md"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no file in .* is named .jsonl"):
        FileCorpus(tmp_path / "empty")


def test_a_folder_where_one_file_breaks_off_goes_on_with_the_next(tmp_path: Path) -> None:
    packed = gzip.compress(lines(ROWS))
    (tmp_path / "a.jsonl.gz").write_bytes(packed[:-200])
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines([{"text": "last"}])))
    found = FileCorpus(tmp_path)
    assert texts(found)[-1] == "last" and found.skipped == {"broken off": 1}


def test_what_cc_net_writes(tmp_path: Path) -> None:
    rows = [
        {
            "url": f"http://example.org/{path}",
            "date_download": "2020-08-14T01:02:03Z",
            "digest": f"sha1:{n}",
            "length": 20,
            "nlines": 1,
            "source_domain": "example.org",
            "title": "A title",
            "raw_content": f"A page, number {n}.",
            "cc_segment": "crawl-data/x.wet.gz",
            "language": "en",
            "language_score": 0.98,
            "perplexity": 321.4,
            "bucket": "head",
        }
        for n, path in enumerate(["2019/01/02/x", "about"])
    ]
    (tmp_path / "en_head_0000.json.gz").write_bytes(gzip.compress(lines(rows)))
    (tmp_path / "en_tail_0000.json.gz").write_bytes(gzip.compress(lines([{"raw_content": "poor"}])))
    found = corpus("corpus=ccnet", f"corpus.path={tmp_path}", "corpus.pattern='**/en_head_*.json.gz'")
    assert [(document.text, document.date) for document in found] == [
        ("A page, number 0.", datetime.date(2019, 1, 2)),
        ("A page, number 1.", None),  # the day of the crawl is not the day of writing
    ]
    assert texts(corpus("corpus=ccnet", f"corpus.path={tmp_path}"))[-1] == "poor"


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
    with pytest.raises(UserError, match="cannot be streamed .*corpus.split"):
        texts(corpus(*words, "corpus.split=dev"))
    with pytest.raises(UserError, match="row 3: empty text"):
        texts(HubCorpus(str(tmp_path / "set"), fields=Fields(text="body"), strict=True))


def test_a_stream_that_breaks_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.jsonl").write_bytes(lines(ROWS) + b'{"text": broken}\n')
    with pytest.raises(UserError, match="breaks off after row|cannot be streamed"):
        texts(HubCorpus(str(tmp_path / "set")))


def test_a_data_set_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="the data set no/such-set cannot be streamed") as caught:
        next(iter(HubCorpus("no/such-set")))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [*PACKED, "c.parquet"])
def test_reading_does_not_hold_the_corpus(tmp_path: Path, name: str) -> None:
    """40 MB of text pass through less than a tenth of it."""
    count, size = 400, 100_000
    path = tmp_path / name
    if name == "c.parquet":
        schema = pa.schema([("text", pa.string())])
        with pq.ParquetWriter(path, schema, use_dictionary=False, data_page_size=2**18) as writer:
            for start in range(0, count, 100):
                rows = [{"text": f"{n} " + "word " * (size // 5)} for n in range(start, start + 100)]
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    else:
        path.write_bytes(
            PACKED[name](lines([{"text": f"{n} " + "word " * (size // 5)} for n in range(count)]))
        )
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
    assert total > count * size
    assert peak < 15e6 and arrow < 25e6


def test_a_limit_reads_no_further(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(lines(ROWS[:5]) + b"{broken\n" + lines(ROWS[5:]))
    found = corpus("corpus=jsonl", f"corpus.path={path}", "corpus.limit=5", "corpus.strict=true")
    assert len(texts(found)) == 5 and not found.skipped()
    assert list(itertools.islice(corpus("corpus=jsonl", f"corpus.path={path}"), 3)) == list(found)[:3]


def test_repeated_documents_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(lines([*ROWS[:4], *ROWS[:2], {"text": ""}]))
    found = corpus("corpus=jsonl", f"corpus.path={path}")
    for _ in range(2):
        assert len(texts(found)) == 4
        assert found.skipped() == {"repeated id or text": 2, "empty text": 1}


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


@pytest.mark.parametrize("source", ["jsonl", "parquet", "files", "ccnet", "hub"])
def test_a_corpus_without_a_path_is_one_line(source: str) -> None:
    with pytest.raises(UserError, match="corpus.path: the .* corpus needs"):
        corpus(f"corpus={source}")
