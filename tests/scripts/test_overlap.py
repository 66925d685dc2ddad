"""Texts of a corpus that share words with a benchmark are found and left out."""

import json

import pytest

from scripts import overlap
from toolformer.errors import UserError


def test_the_corpus_without_what_a_benchmark_asks(tmp_path, capsys):
    question = "Ann has seven red boxes and puts four grey stones into each of them before lunch"
    rows = {
        "far": "Nothing of it stands here, and four grey stones are no thirteen words in a row.",
        "whole": f"Yesterday: {question.upper()}, she said.",
        "part": " ".join(f"He said: {question}".split()[3:]),
        "twelve": " ".join(question.split()[:12]),
    }
    data = tmp_path / "svamp"
    data.mkdir()
    asked = {"id": "1", "body": question, "question": "How many stones has she used?", "answer": 28.0}
    short = {**asked, "id": "2", "body": "Ann has seven red boxes.", "question": "How many are left?"}
    (data / "svamp.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (asked, short)))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in rows.items()))
    clean = tmp_path / "clean.jsonl"
    words = ["corpus=jsonl", f"corpus.path={corpus}", "corpus.limit=null", f"paths.data_dir={tmp_path}"]
    overlap.main(str(clean), *words, "benchmarks=[svamp]")
    kept = [json.loads(line) for line in clean.read_text().splitlines()]
    assert [row["id"] for row in kept] == ["far", "twelve"] and kept[0]["text"] == rows["far"]
    line = "svamp: 2 of 4 texts share words with 1 of 1 rows; 1 are too short to look for"
    assert line in capsys.readouterr().out


def test_a_benchmark_that_is_none_is_refused(tmp_path):
    with pytest.raises(UserError, match="benchmarks: there is no task or group 'nosuch'"):
        overlap.main(str(tmp_path / "clean.jsonl"), "benchmarks=[nosuch]")
