"""Documents of JSON Lines files and of the demo corpus."""

from __future__ import annotations

import datetime
import gzip
import json
import logging
from pathlib import Path

import pytest

from toolformer.documents import FileCorpus, date_from_url, demo_corpus
from toolformer.errors import UserError


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
    packed = tmp_path / "c.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert list(FileCorpus(packed, "jsonl")) == [one, two, three]


BAD = [
    ("{broken", "malformed JSON"),
    ({"txt": "x"}, "no text in field `text`"),
    ({"text": 3}, "no text in field `text`"),
    ({"text": "  \n"}, "empty text"),
    ({"text": "x", "date": "yesterday"}, "`date` is not YYYY-MM-DD ('yesterday')"),
    ({"text": "x", "url": 5}, "`url` is no text"),
    ("[" * 100_000, "malformed JSON"),
]


@pytest.mark.parametrize(("row", "reason"), BAD)
def test_a_bad_row_is_skipped_counted_and_named(
    tmp_path: Path, row: object, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "c.jsonl", {"text": "good"}, row, {"text": "also good"})
    corpus = FileCorpus(path, "jsonl")
    with caplog.at_level(logging.WARNING):
        assert [document.text for document in corpus] == ["good", "also good"]
    assert sum(corpus.skipped.values()) == 1
    assert f"{path}, line 2" in caplog.text and reason in caplog.text


@pytest.mark.parametrize(("row", "reason"), BAD)
def test_a_bad_row_ends_a_strict_run(tmp_path: Path, row: object, reason: str) -> None:
    path = write(tmp_path / "c.jsonl", {"text": "good"}, row)
    with pytest.raises(UserError, match="line 2: .*corpus.strict=false") as caught:
        list(FileCorpus(path, "jsonl", strict=True))
    assert reason in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="corpus.path: there is no file"):
        FileCorpus(tmp_path / "absent.jsonl", "jsonl")


def test_lone_surrogates_do_not_survive(tmp_path: Path) -> None:
    (document,) = FileCorpus(write(tmp_path / "c.jsonl", '{"text": "a\\ud800b"}'), "jsonl")
    document.text.encode("utf-8")


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
