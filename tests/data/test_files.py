"""Files and folders of texts, packed and plain, JSON lines and Parquet, whole and broken; CCNet, the hub and the demo corpus."""

import datetime
import gzip
import json
import logging
import re
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer.data import (
    Corpus,
    Document,
    Fields,
    FileCorpus,
    HubCorpus,
    date_from_url,
    demo_corpus,
)
from toolformer.data.document import content_id, document_from_row
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


def corpus(*overrides: str) -> Corpus:
    return instantiate.corpus(validate(compose("generate", list(overrides))).corpus)


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
        (b'["text"]', "not a JSON object"),
        (b"[" * 100_000, "malformed JSON"),
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


@pytest.mark.parametrize(
    ("value", "date"),
    [
        (1597363200, "2020-08-14"),
        (1597363200000, "2020-08-14"),
        (1512121234, "2017-12-01"),  # its first eight figures are a date, too
        ("1597363200.5", "2020-08-14"),
        (1597363200.0, "2020-08-14"),
        (20200814, "2020-08-14"),
        ("20200814103000", "2020-08-14"),
        ("2020-08-14T10:00:00Z", "2020-08-14"),
        (None, None),
        (float("nan"), None),
        ("", None),
    ],
)
def test_dates_are_read_in_figures_and_seconds(tmp_path: Path, value: object, date: str | None) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(lines([{"text": "x", "date": value}]))
    found = FileCorpus(path, "jsonl")
    (document,) = found
    assert document.date == (datetime.date.fromisoformat(date) if date else None) and not found.unread


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("date", value) for value in ("NaT", "unknown", "2020-08", 2020, 1e300, True, [1], "inf")),
        *((name, value) for name in ("id", "source_id") for value in (True, {"$oid": "x"}, [1])),
        ("url", 5),
    ],
)
def test_a_side_field_that_cannot_be_read_costs_no_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, value: object
) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(lines([{"text": "good"}, {"text": "x", name: value}]))
    found = FileCorpus(path, "jsonl")
    with caplog.at_level(logging.WARNING):
        good, odd = found
    assert odd == Document(content_id("x"), "x") and not found.skipped
    assert f"{path}, line 2: `{name}` is not a" in caplog.text
    assert f"{path}: 1 row kept without a field: 1 `{name}` is not" in caplog.messages[-1]
    assert (f"corpus.{name}_field" in caplog.text) == (name != "source_id")
    with pytest.raises(UserError, match=f"line 2: `{name}` is not .*corpus.strict=false"):
        list(FileCorpus(path, "jsonl", strict=True))


@given(
    st.one_of(st.text(), st.floats(), st.integers(), st.lists(st.none()), st.booleans()),
    st.sampled_from(["date", "id", "url", "title", "source_id"]),
)
def test_no_value_of_a_side_field_costs_a_row(value: Any, name: str) -> None:
    document, faults = document_from_row({"text": "x", name: value})
    assert document.text == "x" and document.doc_id and len(faults) <= 1


def test_ids_of_numbers_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(lines([{"text": "x", "id": value} for value in (1.0, 2, 1.5, float("nan"))]))
    assert [document.doc_id for document in FileCorpus(path)] == ["1", "2", "1.5", content_id("x")]


def test_a_line_without_end_is_skipped_in_little_memory(tmp_path: Path) -> None:
    """A short packed file may hold a line of gigabytes."""
    path = tmp_path / "c.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"text": "before"}\n{"text": "')
        for _ in range(200):
            file.write(b"a" * 2**20)
        file.write(b'"}\n{"text": "after"}\n')
    found = FileCorpus(path)
    tracemalloc.start()
    assert texts(found) == ["before", "after"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.skipped == {"longer than 16 MiB": 1} and peak < 80e6


@pytest.mark.parametrize("content", ['[{"text": "x"}, {"text": "y"}]', '\n[\n {"text": "x"}\n]\n'])
def test_a_json_array_is_named_with_its_remedy(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        texts(corpus("corpus=jsonl", f"corpus.path={path}"))
    assert "the file is one JSON array; convert it to JSON Lines: python -c '" in str(caught.value)
    command = re.search(r"python -c '(.*)' < FILE", str(caught.value))
    assert command
    made = subprocess.run(
        [sys.executable, "-c", command[1]], input=content, capture_output=True, text=True, check=True
    )
    path.write_text(made.stdout)
    assert texts(FileCorpus(path))[0] == "x"


def test_a_corpus_without_a_text_says_why(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(lines([{"content": "x", "meta": {"url": "u"}}] * 2))
    expected = (
        f"corpus: it has no document with text; rows skipped: 2, the first: {path}, line 1: no text in field `text` "
        "(the row has content, meta.url; name the field with corpus.text_field)"
    )
    with pytest.raises(UserError, match=re.escape(expected)):
        texts(corpus("corpus=jsonl", f"corpus.path={path}"))


def test_nested_fields_are_named_with_dots(tmp_path: Path) -> None:
    rows = [
        {"a.text": "x", "meta": {"url": "https://example.org/2020/08/14/", "id": 1, "inner": {"day": "x"}}},
        {"a.text": "y", "meta": None},
    ]
    (tmp_path / "c.jsonl").write_bytes(lines(rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    (tmp_path / "hub").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "hub" / "train.parquet")
    names = ["text_field=a.text", "url_field=meta.url", "id_field=meta.id", "title_field=meta.inner.day"]
    for kind, path in (("jsonl", "c.jsonl"), ("parquet", "c.parquet"), ("hub", "hub")):
        found = corpus(
            f"corpus={kind}", f"corpus.path={tmp_path / path}", *(f"corpus.{name}" for name in names)
        )
        one, two = found
        assert (one.doc_id, one.text, one.url) == ("1", "x", "https://example.org/2020/08/14/")
        assert one.date == datetime.date(2020, 8, 14) and not found.skipped()
        assert two == Document(content_id("y"), "y")


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "hub"])
@pytest.mark.parametrize("side", ["url", "date", "id", "title"])
def test_a_named_field_that_no_row_has_is_refused(tmp_path: Path, kind: str, side: str) -> None:
    rows = [{"text": f"{n}", "link": None, "meta": {"day": "2020-08-14"}} for n in range(3)]
    (tmp_path / "c.jsonl").write_bytes(lines(rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    path = tmp_path / {"jsonl": "c.jsonl", "parquet": "c.parquet", "hub": ""}[kind]
    if kind == "hub":
        (tmp_path / "c.jsonl").unlink()
    words = [f"corpus={kind}", f"corpus.path={path}"]
    assert len(texts(corpus(*words))) == 3  # the defaults need not be there
    assert len(texts(corpus(*words, f"corpus.{side}_field=link"))) == 3
    for limit in ("null", "2"):
        with pytest.raises(UserError) as caught:
            texts(corpus(*words, f"corpus.{side}_field=links", f"corpus.limit={limit}"))
        assert f"corpus.{side}_field: no row has a field 'links'; the rows have text, link, meta" in str(
            caught.value
        )
        assert "(did you mean link?)" in str(caught.value)


def test_another_text_with_the_same_id_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "c.jsonl"
    rows = [("a", "One."), ("a", "Two."), ("a", "One."), ("a", "Two."), ("b", "One.")]
    path.write_bytes(lines([{"id": name, "text": text} for name, text in rows]))
    found = corpus("corpus=jsonl", f"corpus.path={path}")
    with caplog.at_level(logging.WARNING):
        kept = [(document.doc_id, document.text) for document in found]
    assert kept == [("a", "One."), (f"a#{content_id('Two.')}", "Two."), ("b", "One.")]
    assert found.skipped() == {"repeated text": 2}
    assert "corpus: rows skipped: 2 repeated text" in caplog.messages
    assert "corpus: texts with the id of another text, kept with a hash added to it: 1" in caplog.messages


def test_plain_texts_are_a_document_per_file(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfOne.\r\n\r\nMore.")
    (tmp_path / "b" / "c.txt.gz").write_bytes(gzip.compress(b"Two."))
    (tmp_path / "d.txt").write_bytes(b"caf\xe9")
    (tmp_path / "e.txt").write_bytes(b"a" * (2**24 + 1))
    (tmp_path / "f.jsonl").write_bytes(lines([{"text": "no"}]))
    found = corpus("corpus=text", f"corpus.path={tmp_path}")
    assert texts(found) == ["One.\n\nMore.", "Two."]
    assert found.skipped() == {"not UTF-8": 1, "longer than 16 MiB": 1}
    assert texts(corpus("corpus=text", f"corpus.path={tmp_path / 'a.txt'}")) == ["One.\n\nMore."]
    assert texts(FileCorpus(tmp_path)) == ["no"]
    with pytest.raises(UserError, match="use corpus=text for its .txt files, or name another folder"):
        FileCorpus(tmp_path / "b")


def test_a_pattern_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(lines(ROWS[:1]))
    with pytest.raises(UserError, match="corpus.path: .* with corpus.pattern=.*"):
        FileCorpus(tmp_path, pattern="**x").files()


def test_a_home_or_a_name_that_cannot_be_is_one_line() -> None:
    for path in ("~nobody-of-this-name/x", "x" * 5000):
        with pytest.raises(UserError, match="corpus.path: "):
            FileCorpus(path)


def test_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(lines(ROWS[:1]))
    (tmp_path / ".#c.jsonl").symlink_to("lock of an editor")
    (tmp_path / "README.md").symlink_to("nowhere")
    assert len(texts(FileCorpus(tmp_path))) == 1
    (tmp_path / "d.jsonl").symlink_to("nowhere")
    for pattern in (None, "*.jsonl"):
        with pytest.raises(UserError, match=f"{tmp_path / 'd.jsonl'} links to a missing file"):
            FileCorpus(tmp_path, pattern=pattern)


@pytest.mark.parametrize("name", ["text", "url"])
def test_a_column_that_is_there_twice_is_named(tmp_path: Path, name: str) -> None:
    columns = ["text", "url", name]
    table = pa.Table.from_arrays([pa.array(["x", "y"])] * 3, names=columns)
    pq.write_table(table, tmp_path / "c.parquet")
    with pytest.raises(
        UserError, match=rf"rows skipped: 2,.*several columns `{name}` \(rename all but one\)"
    ):
        texts(corpus("corpus=parquet", f"corpus.path={tmp_path / 'c.parquet'}"))


def test_what_save_to_disk_wrote_is_read(tmp_path: Path) -> None:
    saved = datasets.Dataset.from_list([{"text": "a", "url": "https://example.org/2020/08/14/"}])
    saved.with_format("numpy").save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": saved}).save_to_disk(tmp_path / "dict")
    for name in ("one", "dict"):
        (document,) = corpus("corpus=hub", f"corpus.path={tmp_path / name}")
        assert (document.text, document.date) == ("a", datetime.date(2020, 8, 14))
        with pytest.raises(UserError, match="was written by save_to_disk; use corpus=hub"):
            corpus("corpus=files", f"corpus.path={tmp_path / name}")
    with pytest.raises(UserError, match="corpus.split"):
        texts(corpus("corpus=hub", f"corpus.path={tmp_path / 'dict'}", "corpus.split=dev"))


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


def test_a_text_that_is_not_utf_8_costs_its_row_only(tmp_path: Path) -> None:
    columns = {
        "text": pa.array([b"good", b"caf\xe9", b"late", b"also good"]).view(pa.string()),
        "date": pa.array([0, 0, 10**15, 86400], pa.timestamp("s")),
    }
    found = FileCorpus(parquet(tmp_path / "c.parquet", columns), "parquet")
    good, late, also_good = found
    assert (good.text, good.date) == ("good", datetime.date(1970, 1, 1))
    assert (late.text, late.date) == ("late", None)
    assert (also_good.text, also_good.date) == ("also good", datetime.date(1970, 1, 2))
    assert found.skipped == {"not UTF-8": 1} and found.unread == {"`date` is not a date YYYY-MM-DD": 1}


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
    held = compose(
        "evaluate", ["corpus@heldout=ccnet", f"heldout.path={tmp_path}", "heldout.pattern='*_tail_*'"]
    )
    assert texts(instantiate.corpus(held.heldout)) == ["poor"]


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
        assert found.skipped() == {"repeated text": 2, "empty text": 1}
