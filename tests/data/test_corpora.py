"""Folders, CCNet's files, the hub's layout, configuration; nothing held in memory."""

import datetime
import gzip
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest

from tests.data.files import PACKED, ROWS, corpus, lines, parquet, texts, zstandard
from toolformer.data import Document, Fields, FileCorpus, HubCorpus
from toolformer.errors import UserError
from toolformer.stages import instantiate
from toolformer.stages.config import compose


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


def test_a_corpus_without_a_path_is_one_line() -> None:
    for source in ("jsonl", "files", "hub"):
        with pytest.raises(UserError, match="corpus.path is missing; name a"):
            corpus(f"corpus={source}")
