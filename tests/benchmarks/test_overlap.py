"""Texts of a corpus that share words with a benchmark are found and left out."""

import json
import runpy
import sys

import pytest

from scripts import overlap


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
    assert (
        "svamp: 2 of 4 texts share words with 1 of 1 rows; 1 are too short to look for"
        in capsys.readouterr().out
    )


def test_bad_input_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["overlap.py", str(tmp_path / "clean.jsonl"), "benchmarks=[nosuch]"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(overlap.__file__, run_name="__main__")
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("overlap: benchmarks: there is no task or group 'nosuch'")
    monkeypatch.setattr(sys, "argv", ["overlap.py", "corpus=jsonl"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(overlap.__file__, run_name="__main__")
    assert ended.value.code == 2 and "overlap.py FILE" in capsys.readouterr().err
