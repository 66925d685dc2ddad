"""Files and folders of texts, packed and plain, JSON lines and Parquet, whole and broken; CCNet, the hub and the demo corpus."""

import bz2
import datetime
import gzip
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import HfApi
from hypothesis import given
from hypothesis import strategies as st

from tests.build import Log
from toolformer.data import Corpus, Document, Fields, FileCorpus, HubCorpus, date_from_url, demo_corpus
from toolformer.data.document import content_id, document_from_row
from toolformer.data.parquet import read_table
from toolformer.errors import UserError
from toolformer.jobs import corpora
from toolformer.jobs.config import compose, validate
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


PACKED = {
    "c.jsonl": lambda data: data,
    "c.jsonl.gz": gzip.compress,
    "c.jsonl.bz2": bz2.compress,
    "c.jsonl.zst": zstandard,
    "skippable.jsonl.zst": lambda data: b"\x50\x2a\x4d\x18\x03\x00\x00\x00xyz" + zstandard(data),
}


def texts(corpus: Any) -> list[str]:
    return [document.text for document in corpus]


def corpus(*overrides: str) -> Corpus:
    return corpora.corpus(validate(compose("generate", list(overrides))).corpus)


def jsonl(folder: Path, *rows: object) -> Path:
    path = folder / "c.jsonl"
    path.write_bytes(lines(rows))
    return path


def refusal(found: Callable[[], object]) -> str:
    """The one line in which something is refused."""
    with pytest.raises(UserError) as caught:
        found()
    assert "\n" not in str(caught.value)
    return str(caught.value)


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
def test_a_truncated_archive_gives_what_comes_before_the_break(tmp_path: Path, name: str) -> None:
    # Rows that do not pack well, in several blocks of the packed stream.
    rows = [{"text": f"{n} " + " ".join(str(n**k) for k in range(2, 40))} for n in range(2000)]
    packed = PACKED[name](lines(rows))
    path = tmp_path / name
    path.write_bytes(packed[: len(packed) // 2])
    found = FileCorpus(path, "jsonl")
    kept = texts(found)
    assert 500 < len(kept) < 1500 and kept == [row["text"] for row in rows[: len(kept)]]
    if name.endswith("gz"):  # to the last line that is whole
        assert len(kept) == zlib.decompressobj(31).decompress(path.read_bytes()).count(b"\n")
    assert found.skipped == {"broken off": 1}
    said = refusal(lambda: texts(FileCorpus(path, "jsonl", strict=True)))
    assert f"{path}, after line {len(kept)}: broken off" in said and "corpus.strict=false" in said


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.jsonl.zst"])
def test_a_damaged_archive_never_ends_in_a_traceback(tmp_path: Path, name: str) -> None:
    packed = PACKED[name](lines(ROWS))
    path = tmp_path / name
    for at in range(0, len(packed), max(1, len(packed) // 40)):
        damaged = bytearray(packed)
        damaged[at] ^= 0xFF
        path.write_bytes(damaged + b"rest")
        found = FileCorpus(path, "jsonl")
        try:
            texts(found)
            assert found.skipped
        except UserError as error:
            assert f"{path}: the file cannot be read: " in str(error)
    path.write_bytes(b"")
    assert not texts(FileCorpus(path, "jsonl"))


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (lzma.compress(lines(ROWS)), "packed with xz"),
        (b"\x04\x22\x4d\x18\x64\x40\xa7", "packed with lz4"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"PAR1rest", "a Parquet file"),
        (lines(ROWS).decode().encode("utf-16"), "not UTF-8 but UTF-16"),
    ],
)
@pytest.mark.parametrize("source", ["jsonl", "text"])
def test_a_packing_that_is_not_read_is_named(tmp_path: Path, data: bytes, named: str, source: str) -> None:
    path = tmp_path / "c.odd"
    path.write_bytes(data)
    said = refusal(lambda: texts(corpus(f"corpus={source}", f"corpus.path={path}")))
    assert f"{path}: the file cannot be read: {named} (" in said


@pytest.mark.parametrize(
    ("source", "name"),
    [("text", "c.jsonl"), ("text", "c.json.gz"), ("text", "c.parquet"), ("jsonl", "c.pq"), ("parquet", "c.jsonl"), ("parquet", "c.txt")],
)  # fmt: skip
def test_a_reader_that_does_not_fit_the_file_is_refused(tmp_path: Path, source: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(lines(ROWS))
    said = refusal(lambda: texts(corpus(f"corpus={source}", f"corpus.path={path}")))
    assert f"{path} is " in said and f"and corpus={source} reads " in said


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    said = refusal(lambda: texts(corpus("corpus=jsonl", f"corpus.path={tmp_path / 'pipe.jsonl'}")))
    assert "pipe.jsonl is a pipe or a device, which cannot be read twice; save its texts to a file" in said


def test_a_corpus_is_known_by_what_its_files_hold(tmp_path: Path) -> None:
    """Not by their place and time; nor is a text read for it."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.jsonl").write_text("not JSON")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    os.utime(tmp_path / "b" / "one.jsonl", (0, 0))
    first, second = (FileCorpus(tmp_path / name).digest() for name in "ab")
    (tmp_path / "b" / "two.jsonl").write_text("")
    assert first == second != FileCorpus(tmp_path / "b").digest()


def test_a_data_set_of_the_hub_is_known_by_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is then read, whatever became of the branch meanwhile."""
    asked: list[Any] = []

    def load(*_: Any, revision: str, **__: Any) -> Any:
        asked.append(revision)
        return datasets.Dataset.from_list([{"text": "a"}]).to_iterable_dataset()

    commits = iter("ab")
    monkeypatch.setattr(HfApi, "dataset_info", lambda self, name: SimpleNamespace(sha=next(commits)))
    monkeypatch.setattr(datasets, "load_dataset", load)
    found = HubCorpus("some/set")
    assert found.digest() == "some/set a" == found.digest()
    assert [document.text for document in found] == ["a"] and asked == ["a"]
    assert HubCorpus("some/set").digest() == "some/set b"


def test_the_hub_refuses_a_file(tmp_path: Path) -> None:
    path = jsonl(tmp_path, *ROWS[:1])
    said = refusal(lambda: texts(corpus("corpus=hub", f"corpus.path={path}")))
    assert f"{path} is a file; corpus=files reads it" in said


@pytest.mark.parametrize(
    ("row", "says"), [({"date": "2020-01-02"}, 1), (ROWS[0] | {"date": "2020-01-02"}, 0)]
)
def test_the_log_names_the_date_field(tmp_path: Path, row: dict[str, str], says: int, caplog: Log) -> None:
    caplog.set_level("INFO")
    found = FileCorpus(jsonl(tmp_path, {"text": "a"} | row, {"text": "b"} | row), "jsonl")
    texts(found), texts(found)
    assert sum("the field `date` counts as the day of writing" in line for line in caplog.messages) == says


@pytest.mark.parametrize(
    "date",
    ["0001-01-01T00:00:00Z", "1970-01-01", "1970-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "1900-01-01", "1899-12-30",
     "9999-12-31T23:59:59Z"],
)  # fmt: skip
def test_a_placeholder_is_no_date(tmp_path: Path, date: str) -> None:
    found = FileCorpus(
        jsonl(tmp_path, {"text": "a", "date": date}, {"text": "b", "date": "1970-01-02"}), "jsonl"
    )
    assert [document.date for document in found] == [None, datetime.date(1970, 1, 2)]
    assert found.unread == {"`date` stands for an unknown date": 1}


def test_a_placeholder_in_an_address_is_no_date(tmp_path: Path) -> None:
    row = {"text": "a", "url": "https://a.org/1970/01/01/post", "date": "2020-05-05"}
    assert [document.date for document in FileCorpus(jsonl(tmp_path, row), "jsonl")] == [
        datetime.date(2020, 5, 5)
    ]


def test_a_date_after_the_latest_is_none(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"text": "a", "date": "2999-01-01"}, {"text": "b", "date": "2020-08-14"})
    found = FileCorpus(path, "jsonl")
    assert [document.date for document in found] == [None, datetime.date(2020, 8, 14)]
    assert found.unread == {"`date` is after today": 1}
    found = FileCorpus(path, "jsonl", latest_date=datetime.date(2020, 8, 13))
    assert [document.date for document in found] == [None, None]
    assert found.unread == {"`date` is after latest_date": 2}


@pytest.mark.parametrize(
    "column",
    [pa.array([1555200000000000], pa.duration("us")), pa.array([1555200000], pa.duration("s")), pa.array([3600], pa.time32("s")),
     pa.array([(1, 2, 3)], pa.month_day_nano_interval())],
    ids=str,
)  # fmt: skip
def test_a_duration_is_no_date(tmp_path: Path, column: Any) -> None:
    try:
        path = parquet(tmp_path / "c.parquet", {"text": ["a"], "date": column})
    except pa.ArrowNotImplementedError:
        pytest.skip("Parquet has no such type")
    found = FileCorpus(path, "parquet")
    assert [document.date for document in found] == [None] and not found.skipped
    assert found.unread == {"`date` is not a date YYYY-MM-DD": 1}


@pytest.mark.parametrize("window", [27, 28, 31])
@pytest.mark.parametrize("source", ["jsonl", "text"])
def test_a_large_window_of_zstandard_is_named_with_the_command(
    tmp_path: Path, window: int, source: str
) -> None:
    (tmp_path / "b.jsonl").write_bytes(lines(ROWS))
    path = tmp_path / "a.jsonl.zst"
    content = lines(ROWS[:1])
    # A frame as `zstd --long=N` writes it: a window, no size, one raw block.
    header = (
        b"\x28\xb5\x2f\xfd\x00" + bytes([(window - 10) << 3]) + (len(content) << 3 | 1).to_bytes(3, "little")
    )
    path.write_bytes(header + content)
    found = FileCorpus(tmp_path if source == "jsonl" else path, "jsonl")
    if window == 27:
        assert ROWS[0]["text"] in texts(found)
    else:
        assert f"zstd -d --long={window}" in refusal(lambda: texts(found))


def test_a_mark_of_the_encoding_in_the_middle_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + lines(ROWS[:1]) + b"\xef\xbb\xbf" + lines(ROWS[1:2]))
    found = FileCorpus(path, "jsonl")
    assert texts(found) == [row["text"] for row in ROWS[:2]] and not found.skipped


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"text": "a"}{"text": "b"}', "several JSON objects on one line"), ('{"text": "a"} {"text": "b"}', "several JSON objects"),
        ("{'text': 'a'}", "a Python dictionary instead of JSON"), ("{ 'text': None}", "a Python dictionary instead of JSON"),
        ('{"text": "a"} rest', "malformed JSON"),
    ],
)  # fmt: skip
def test_rows_of_another_form_are_named(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"text": "good"}\n' + content)
    found = FileCorpus(path, "jsonl")
    assert texts(found) == ["good"] and [kind for kind in found.skipped if reason in kind]


@pytest.mark.parametrize(
    "content", ['{\n "text": "a"\n}\n', '{"meta": {\n "a": 1}, "text": "b"}', '{"text": "a",\n"id": 1}']
)
def test_objects_over_several_lines_are_named_with_their_remedy(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(content)
    assert "JSON objects over several lines (convert it to JSON Lines: jq -c" in refusal(
        lambda: texts(FileCorpus(path))
    )


@pytest.mark.parametrize("source", ["jsonl", "text", "files", "parquet"])
@pytest.mark.parametrize("name", ["c.csv", "c.tsv.gz"])
def test_a_table_is_sent_to_the_hubs_reader(tmp_path: Path, source: str, name: str) -> None:
    (tmp_path / name).write_text("id,text\n1,a\n")
    of_file = refusal(lambda: texts(corpus(f"corpus={source}", f"corpus.path={tmp_path / name}")))
    assert f"corpus=hub corpus.path={tmp_path}" in of_file
    of_folder = refusal(lambda: texts(corpus(f"corpus={source}", f"corpus.path={tmp_path}")))
    assert "use corpus=hub for its .csv files" in of_folder


@pytest.mark.parametrize(
    ("first", "second"),
    [({"id": 0}, {"id": "x"}), ({}, {"link": "x"}), ({"url": None}, {"url": "https://a.example"}), ({"meta": {"a": 1}}, {"meta": {"b": [1]}})],
)  # fmt: skip
def test_hub_files_that_differ_are_sent_to_corpus_files(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any]
) -> None:
    for name, more in (("a", first), ("b", second)):
        (tmp_path / f"{name}.jsonl").write_bytes(lines([{"text": name, **more}]))
    said = refusal(lambda: texts(corpus("corpus=hub", f"corpus.path={tmp_path}")))
    assert "if its files differ in their columns or types, corpus=files reads them" in said
    assert texts(corpus("corpus=files", f"corpus.path={tmp_path}")) == ["a", "b"]


def test_many_bad_rows_are_counted_not_told_one_by_one(tmp_path: Path, caplog: Log) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"{broken\n" * 500 + lines(ROWS[:2]))
    found = FileCorpus(path, "jsonl")
    assert len(texts(found)) == 2 and found.skipped == {"malformed JSON": 500}
    assert len(caplog.records) == 4  # three rows and the sum
    assert caplog.messages[3] == f"{path}: 500 rows skipped: 500 malformed JSON"


def test_a_json_lines_file_is_read(tmp_path: Path) -> None:
    """With a mark of its encoding, and lone surrogates, which do not survive."""
    path = tmp_path / "c.jsonl"
    rows = [
        {"text": "One.", "url": "https://example.org/2020/08/14/", "date": "2019-01-01", "id": 7},
        {"text": "Two.", "date": "2019-01-02T10:00:00"}, {"text": "a\ud800b", "id": "\ud800"}, {"text": "Three."},
    ]  # fmt: skip
    path.write_bytes(b"\xef\xbb\xbf" + lines(rows[:2]) + b"\r\n" + lines(rows[2:]))
    one, two, odd, three = FileCorpus(path, "jsonl")
    assert (one.doc_id, one.date, two.date) == ("7", datetime.date(2020, 8, 14), datetime.date(2019, 1, 2))
    assert (odd.text, odd.doc_id) == ("a?b", "?")
    assert three.date is None and three.doc_id != two.doc_id


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"{broken", "malformed JSON"), (b'{"txt": "x"}', "no text in field `text`"),
        (b'{"text": "  \\n"}', "empty text"), (b'["text"]', "not a JSON object"),
        (b"[" * 100_000, "malformed JSON"), (b'{"text": "caf\xe9"}', "not UTF-8 (byte 14)"),
    ],
)  # fmt: skip
def test_a_bad_row_is_counted_and_named_or_ends_a_strict_run(
    tmp_path: Path, row: bytes, reason: str, caplog: Log
) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"text": "good"}\n' + row + b'\r\n{"text": "caf\xc3\xa9"}')
    corpus = FileCorpus(path, "jsonl")
    assert texts(corpus) == ["good", "café"] and sum(corpus.skipped.values()) == 1
    assert f"{path}, line 2" in caplog.text and reason in caplog.text
    said = refusal(lambda: texts(FileCorpus(path, "jsonl", strict=True)))
    assert "line 2: " in said and reason in said and "corpus.strict=false" in said


@pytest.mark.parametrize(
    ("value", "date"),
    [
        (1597363200, "2020-08-14"), (1597363200000, "2020-08-14"),
        (1512121234, "2017-12-01"),  # its first eight figures are a date, too
        ("1597363200.5", "2020-08-14"), (20200814, "2020-08-14"), ("20200814103000", "2020-08-14"),
        ("2020-08-14T10:00:00Z", "2020-08-14"), ("2020-08-14 10:00:00.123456789 UTC", "2020-08-14"),
        ("2020-08-14 10:00:00 +0200", "2020-08-14"), ("20200814T100000Z", "2020-08-14"), (None, None), (float("nan"), None), ("", None),
    ],
)  # fmt: skip
def test_dates_are_read_in_figures_and_seconds(value: object, date: str | None) -> None:
    document, faults = document_from_row({"text": "x", "date": value})
    assert document.date == (datetime.date.fromisoformat(date) if date else None) and not faults


@pytest.mark.parametrize(
    "value",
    ["2020-01-01/2020-03-01", "2020-01-01 - 2020-03-01", "2020-01-015", "2020-05-05T99:99", "2020-05-05 or so", "2020-W05-123",
     "2020-W05", "1e9", "1_500_000_000", "2020-05-05T", "2020081499"],
)  # fmt: skip
def test_what_is_only_partly_a_date_is_none(value: str) -> None:
    document, (fault,) = document_from_row({"text": "x", "date": value})
    assert document.date is None and fault.reason == "`date` is not a date YYYY-MM-DD"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("date", value) for value in ("NaT", "2020-08", 2020, 1e300, True, [1], "inf")),
        ("id", True), ("id", {"$oid": "x"}), ("source_id", [1]), ("url", 5),
    ],
)  # fmt: skip
def test_a_side_field_that_cannot_be_read_costs_no_row(
    tmp_path: Path, caplog: Log, name: str, value: object
) -> None:
    path = jsonl(tmp_path, {"text": "good"}, {"text": "x", name: value})
    found = FileCorpus(path, "jsonl")
    _, odd = found
    assert odd == Document(content_id("x"), "x") and not found.skipped
    assert f"{path}: 1 row kept without a field: 1 `{name}` is not" in caplog.messages[-1]
    assert (f"corpus.{name}_field" in caplog.text) == (name != "source_id")
    said = refusal(lambda: texts(FileCorpus(path, "jsonl", strict=True)))
    assert f"line 2: `{name}` is not" in said and "corpus.strict=false" in said


@given(
    st.one_of(st.text(), st.floats(), st.integers(), st.lists(st.none()), st.booleans()),
    st.sampled_from(["date", "id", "url", "title", "source_id"]),
)
def test_no_value_of_a_side_field_costs_a_row(value: Any, name: str) -> None:
    document, faults = document_from_row({"text": "x", name: value})
    assert document.text == "x" and document.doc_id and len(faults) <= 1


def test_ids_of_numbers_are_texts() -> None:
    for value, doc_id in ((1.0, "1"), (2, "2"), (1.5, "1.5"), (float("nan"), content_id("x"))):
        assert document_from_row({"text": "x", "id": value})[0].doc_id == doc_id


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


def test_a_json_array_is_named_with_its_remedy(tmp_path: Path) -> None:
    path, content = tmp_path / "c.json", '\n[\n {"text": "x"}\n]\n'
    path.write_text(content)
    said = refusal(lambda: texts(FileCorpus(path)))
    assert "one JSON array (convert it to JSON Lines" in said
    command = re.search(r"python -c '(.*)' < FILE", said)
    assert command
    python = [sys.executable, "-c", command[1]]
    path.write_text(subprocess.run(python, input=content, capture_output=True, text=True, check=True).stdout)
    assert texts(FileCorpus(path)) == ["x"]


def test_a_corpus_without_a_text_says_why(tmp_path: Path) -> None:
    path = jsonl(tmp_path, *[{"content": "x", "meta": {"url": "u"}}] * 2)
    assert refusal(lambda: texts(corpus("corpus=jsonl", f"corpus.path={path}"))) == (
        f"corpus: no document has text; rows skipped: 2, the first: {path}, line 1: no text in field `text` "
        "(the row has content, meta.url; name the field with corpus.text_field)"
    )


@pytest.fixture
def everywhere(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Writes rows as JSON Lines, Parquet and a folder as the hub's; returns the path of each kind."""

    def write(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
        (tmp_path / "hub").mkdir()
        for path in ("c.parquet", "hub/train.parquet"):
            pq.write_table(pa.Table.from_pylist(list(rows)), tmp_path / path)
        paths = {"jsonl": jsonl(tmp_path, *rows), "parquet": tmp_path / "c.parquet", "hub": tmp_path / "hub"}
        return {kind: str(path) for kind, path in paths.items()}

    return write


def test_nested_fields_are_named_with_dots(everywhere: Callable[..., dict[str, str]]) -> None:
    meta = {"url": "https://example.org/2020/08/14/", "id": 1, "inner": {"day": "x"}}
    paths = everywhere([{"a.text": "x", "meta": meta}, {"a.text": "y", "meta": None}])
    names = ["text_field=a.text", "url_field=meta.url", "id_field=meta.id", "title_field=meta.inner.day"]
    for kind, path in paths.items():
        found = corpus(f"corpus={kind}", f"corpus.path={path}", *(f"corpus.{name}" for name in names))
        one, two = found
        assert (one.doc_id, one.text, one.url) == ("1", "x", meta["url"]) and not found.skipped()
        assert one.date == datetime.date(2020, 8, 14) and two == Document(content_id("y"), "y")


@pytest.mark.parametrize(("kind", "side"), [("jsonl", "url"), ("parquet", "date"), ("hub", "id")])
def test_a_named_field_that_no_row_has_is_refused(
    everywhere: Callable[..., dict[str, str]], kind: str, side: str
) -> None:
    rows = [{"text": f"{n}", "link": None, "meta": {"day": "2020-08-14"}} for n in range(3)]
    words = [f"corpus={kind}", f"corpus.path={everywhere(rows)[kind]}"]
    assert len(texts(corpus(*words))) == 3  # the defaults need not be there
    assert len(texts(corpus(*words, f"corpus.{side}_field=link"))) == 3
    for limit in ("null", "2"):
        said = refusal(lambda: texts(corpus(*words, f"corpus.{side}_field=links", f"corpus.limit={limit}")))  # noqa: B023
        assert f"corpus.{side}_field: no row has a field 'links'; the rows have text, link, meta" in said
        assert "(did you mean link?)" in said


def test_another_text_with_the_same_id_is_kept(tmp_path: Path, caplog: Log) -> None:
    rows = [("a", "One."), ("a", "Two."), ("a", "One."), ("a", "Two."), ("b", "One.")]
    path = jsonl(tmp_path, *({"id": name, "text": text} for name, text in rows))
    found = corpus("corpus=jsonl", f"corpus.path={path}")
    kept = [(document.doc_id, document.text) for document in found]
    assert kept == [("a", "One."), (f"a#{content_id('Two.')}", "Two."), ("b", "One.")]
    assert found.skipped() == {"repeated text": 2}
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


def test_a_path_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    jsonl(tmp_path, *ROWS[:1])
    for path in ("~nobody-of-this-name/x", "x" * 5000, tmp_path / "absent.jsonl"):
        assert refusal(lambda: FileCorpus(path)).startswith("corpus.path: ")  # noqa: B023
    assert "with corpus.pattern=" in refusal(lambda: FileCorpus(tmp_path, pattern="**x").files())
    (tmp_path / ".#c.jsonl").symlink_to("lock of an editor")
    (tmp_path / "README.md").symlink_to("nowhere")
    assert len(texts(FileCorpus(tmp_path))) == 1
    (tmp_path / "d.jsonl").symlink_to("nowhere")
    for pattern in (None, "*.jsonl"):
        assert "d.jsonl links to a missing file" in refusal(lambda: FileCorpus(tmp_path, pattern=pattern))  # noqa: B023


def test_a_column_that_is_there_twice_is_named(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["x", "y"])] * 3, names=["text", "url", "url"])
    pq.write_table(table, tmp_path / "c.parquet")
    said = refusal(lambda: texts(corpus("corpus=parquet", f"corpus.path={tmp_path / 'c.parquet'}")))
    assert "rows skipped: 2," in said and "several columns `url` (rename all but one)" in said


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
        assert 40 <= len(document.text.split()) <= 255 and document.url and document.date, document.doc_id
        assert not set("[]") & set(document.text) and "->" not in document.text, document.doc_id
        assert date_from_url(document.url) in (None, document.date), document.doc_id
    assert 0.7 < sum(bool(date_from_url(document.url)) for document in documents) / len(documents) < 0.95


def test_every_worked_sum_of_the_demo_is_right() -> None:
    texts = [document.text for document in demo_corpus("sums")]
    sums = re.findall(r"((?:\d|\()[\d.() +*/-]*?) = [$£€]?(-?\d*\.?\d+)", "\n".join(texts))
    assert len(sums) == sum(text.count(" = ") for text in texts) > 250
    assert [(left, right) for left, right in sums if Fraction(calculate(left)) != Fraction(right)] == []


def test_parquet_is_read_with_the_types_that_it_has(tmp_path: Path) -> None:
    day = datetime.date(2020, 8, 14)
    columns = {
        "text": pa.array(["One.", None, "", "Two."]).dictionary_encode(),
        "url": pa.array([None, "x", "x", "https://example.org/2019/01/02/"], pa.large_string()),
        "date": [day] * 4, "id": [1, 2, 3, 4], "other": [[1], [2], [3], [4]],
    }  # fmt: skip
    found = FileCorpus(parquet(tmp_path / "c.parquet", columns), "parquet")
    assert list(found) == [
        Document("1", "One.", None, day),
        Document("4", "Two.", "https://example.org/2019/01/02/", datetime.date(2019, 1, 2)),
    ]
    assert found.skipped == {"no text in field `text`": 1, "empty text": 1}


def test_a_cell_that_is_too_long_costs_its_row_only(tmp_path: Path) -> None:
    path = parquet(tmp_path / "c.parquet", {"text": ["a", "b" * (2**24 + 1), "c"]})
    found = FileCorpus(path)
    assert texts(found) == ["a", "c"] and found.skipped == {"longer than 16 MiB": 1}


def test_a_table_of_results_has_the_columns_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "seed=1").mkdir()
    path = parquet(tmp_path / "seed=1" / "few.parquet", {"n": [1, 2], "text": ["a", None]})
    assert read_table(path).column_names == ["n", "text"]
    assert read_table(path, ["text"]).to_pylist() == [{"text": "a"}, {"text": None}]


def test_a_text_that_is_not_utf_8_costs_its_row_only(tmp_path: Path) -> None:
    columns = {
        "text": pa.array([b"good", b"caf\xe9", b"late", b"also good"]).view(pa.string()),
        "date": pa.array([0, 0, 10**15, 86400], pa.timestamp("s")),
    }
    found = FileCorpus(parquet(tmp_path / "c.parquet", columns), "parquet")
    good, late, also_good = found
    assert (good.text, good.date) == ("good", None)
    assert (late.text, late.date) == ("late", None)
    assert (also_good.text, also_good.date) == ("also good", datetime.date(1970, 1, 2))
    assert found.skipped == {"not UTF-8": 1}
    assert found.unread == {"`date` is not a date YYYY-MM-DD": 1, "`date` stands for an unknown date": 1}


def test_a_parquet_file_without_the_column_is_named(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", {"content": ["x", "y"]})
    parquet(tmp_path / "b.parquet", {"text": ["z"]})
    found = FileCorpus(tmp_path, "parquet")
    assert texts(found) == ["z"] and found.skipped == {"no column `text`": 2}
    named = FileCorpus(tmp_path / "a.parquet", "parquet", fields=Fields(text_field="content"))
    assert texts(named) == ["x", "y"]
    said = refusal(lambda: texts(FileCorpus(tmp_path, "parquet", strict=True)))
    assert "a.parquet, the whole file: no column `text` (it has content; name" in said


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
    assert f"{path}: the file cannot be read: not a Parquet file" in refusal(lambda: texts(found))


def test_a_folder_is_read_in_order_recursively_and_mixed(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard(lines([{"text": "4"}])))
    (tmp_path / "b" / "y.json.gz").write_bytes(gzip.compress(lines([{"text": "3"}])))
    parquet(tmp_path / "b" / "x.parquet", {"text": ["1", "2"]})
    (tmp_path / "a.jsonl").write_bytes(lines([{"text": "0"}]))
    (tmp_path / ".hidden.jsonl").write_bytes(lines([{"text": "no"}]))
    (tmp_path / "README.md").write_text("no")
    found = FileCorpus(tmp_path)
    assert texts(found) == ["0", "1", "2", "3", "4"] and not found.skipped
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
    assert texts(corpora.corpus(held.heldout)) == ["poor"]


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


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.parquet"])
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
    row = {"body": "x", "link": "https://example.org/2020/08/14/", "day": "2001-02-03", "key": "k"}
    path = jsonl(tmp_path, row)
    words = ["corpus=jsonl", f"corpus.path={path}", "corpus.text_field=body", "corpus.url_field=link"]
    words += ["corpus.date_field=day", "corpus.id_field=key"]
    assert list(corpus(*words)) == [Document("k", "x", row["link"], datetime.date(2020, 8, 14))]
    (early,) = corpus(*words, "corpus.latest_date=2020-08-13")
    assert early.date == datetime.date(2001, 2, 3)
    with pytest.raises(UserError, match="corpus.latest_date is 'soon'"):
        corpus(*words, "corpus.latest_date=soon")
    (plain,) = corpus(*words, "corpus.url_field=null", "corpus.date_field=null", "corpus.id_field=null")
    assert plain.date is None and plain.url is None and plain.doc_id != "k"
    jsonl(tmp_path, *ROWS[:4], *ROWS[:2], {"text": ""})
    found = corpus(*words[:2])
    for _ in range(2):
        assert len(texts(found)) == 4
        assert found.skipped() == {"repeated text": 2, "empty text": 1}


def test_a_giant_text_of_a_data_set_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolformer.data.hub.LONGEST", 1000)
    datasets.Dataset.from_list([{"text": "a " * 600}, {"text": "One."}]).save_to_disk(tmp_path / "saved")
    corpus = HubCorpus(str(tmp_path / "saved"))
    assert [document.text for document in corpus] == ["One."]
    assert dict(corpus.skipped) == {"longer than 16 MiB": 1}
