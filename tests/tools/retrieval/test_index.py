"""Indexes of any corpus: cutting into passages, `toolformer index`, and searching what it made."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build import OTHER_DOCUMENT, Refused
from toolformer.cli import main
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.tools.retrieval import bm25
from toolformer.tools.retrieval.bm25 import BM25
from toolformer.tools.retrieval.passages import Passage, best_piece, cut
from toolformer.tools.retrieval.words import word_starts

ROWS = [
    {"id": "7", "title": "Lighthouse", "text": "A lighthouse warns ships. " + "Its lamp is bright. " * 8},
    {"id": "8", "title": ["no", "title"], "text": "== Bees ==\nBees make <b>honey</b> &amp; wax."},
    {"id": "9", "text": " "},
]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def command(corpus: Path, folder: Path, *more: str) -> list[str]:
    words = ["corpus=jsonl", f"corpus.path={corpus}", f"index.path={folder}"]
    return ["index", *words, f"paths.root={folder.parent}/runs", *more]


def test_a_corpus_is_indexed_and_searched(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = tmp_path / "many.jsonl"
    many.write_text("".join(json.dumps({"text": f"Text number {n}."}) + "\n" for n in range(100)))
    assert main(command(many, tmp_path / "all")) == 0
    assert "100 passages, bm25" in capsys.readouterr().out, "whatever other stages' limit is"
    folder = tmp_path / "made" / "index"
    assert main(command(corpus, folder, "index.passage_words=12")) == 0
    assert capsys.readouterr().out == f"{folder}: 4 passages, bm25\n"
    retriever = BM25(index_path=str(folder))
    ((found,),) = retriever.retrieve(["bees honey"], 3, [OTHER_DOCUMENT])
    assert (found.passage_id, found.title, found.text) == ("8", "Bees", "Bees Bees make honey & wax.")
    ((found,),) = retriever.retrieve(["warns ships"], 1, [OTHER_DOCUMENT])
    assert (found.passage_id, found.article, found.title) == ("7#1", "7", "Lighthouse")
    own = Document("x", "", source_id="7")
    assert retriever.retrieve(["warns ships lamp"], 3, [own]) == [[]], "no piece of one's own article"
    search = [f"tool.search.implementation.retriever.index_path={folder}", f"paths.root={tmp_path}/runs"]
    assert main(["tool", "search", "honey", *search]) == 0
    assert capsys.readouterr().out == "Bees > Bees Bees make honey & wax.\n"


def test_an_index_is_made_once_and_of_its_texts_alone(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    folder = tmp_path / "index"
    assert "no text in field `body`" in refused(*command(corpus, folder, "corpus.text_field=body"))
    assert not folder.exists() and not list(tmp_path.glob(".index*")), "nothing half made"
    assert main(command(corpus, folder)) == 0
    built = folder.stat().st_ino
    os.utime(corpus, ns=(1, 1))
    assert main(command(corpus, folder)) == 0, "the content counts, not the time"
    assert folder.stat().st_ino == built, "not built again"
    assert capsys.readouterr().out.count("passages, bm25") == 2
    assert "holds something else" in refused(*command(corpus, folder, "index.passage_words=5"))
    corpus.write_text(corpus.read_text() + json.dumps({"id": "10", "text": "A windmill turns."}) + "\n")
    assert "or an index of other texts" in refused(*command(corpus, folder))
    manifest = (folder / "index.json").read_text()
    (folder / "index.json").write_text(json.dumps({**json.loads(manifest), "version": 1}))
    assert "another version of toolformer" in refused(*command(corpus, folder))
    with pytest.raises(UserError, match="delete it and build it again"):
        BM25(index_path=str(folder))
    (folder / "index.json").write_text(manifest)
    others = {"{}": "no index for bm25", '{"backend": "lucene"}': "an index for lucene, not for bm25"}
    for manifest, words in others.items():
        (folder / "index.json").write_text(manifest)
        with pytest.raises(UserError, match=words):
            BM25(index_path=str(folder))


def test_an_index_built_by_another_process_has_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    """Its bytes decide the ids of results: built again on another machine, it must not annotate anew."""
    for seed in ("1", "2"):
        words = [sys.executable, "-m", "toolformer.cli", *command(corpus, tmp_path / seed)]
        subprocess.run(words, env=os.environ | {"PYTHONHASHSEED": seed}, check=True)
    one, two = ({file.name: file.read_bytes() for file in (tmp_path / seed).iterdir()} for seed in ("1", "2"))
    assert one == two


def test_a_damaged_index_is_refused_and_built_again(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "index"
    assert main(command(corpus, folder)) == 0
    file = folder / "corpus.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace("honey", "money"), encoding="utf-8")
    with pytest.raises(UserError, match="is damaged") as caught:
        BM25(index_path=str(folder))
    assert "\n" not in str(caught.value)
    assert main(command(corpus, folder)) == 0
    assert "is damaged; it is built again" in " ".join(capsys.readouterr().err.split())
    ((found,),) = BM25(index_path=str(folder)).retrieve(["honey"], 1, [OTHER_DOCUMENT])
    assert "honey" in found.text


def test_a_damaged_manifest_is_named(corpus: Path, tmp_path: Path, refused: Refused) -> None:
    folder = tmp_path / "index"
    assert main(command(corpus, folder)) == 0
    (folder / "index.json").write_bytes((folder / "index.json").read_bytes()[:20])
    line = f"{folder} is damaged: its index.json cannot be read; remove the folder"
    assert line in refused(*command(corpus, folder))
    with pytest.raises(UserError, match=line):
        BM25(index_path=str(folder))


def test_a_full_disk_is_one_line(
    corpus: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(bm25, "build", full)
    assert "No space left on device" in refused(*command(corpus, tmp_path / "index"))
    assert not (tmp_path / "index").exists()


@given(st.text(max_size=300), st.integers(1, 9))
def test_pieces_are_the_text(text: str, words: int) -> None:
    pieces = list(cut(text, words))
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(len(word_starts(piece)) == words for piece in pieces[:-1])
    assert list(cut(text, None)) == ([" ".join(text.split())] if text.split() else [])


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Bees make honey, and wax.", ["Bees make", "honey, and", "wax."]),
        ("दाल भारतीय भोजन", ["दाल भारतीय", "भोजन"]),
        ("茶是饮料，好喝。", ["茶是", "饮料，", "好喝。"]),
        ("お茶 Tea15は飲み物", ["お茶", "Tea15は", "飲み", "物"]),
        ("กินน้ำ", ["กิน", "น้ำ"]),
    ],
)
def test_a_script_without_blanks_is_cut_at_its_characters(text: str, pieces: list[str]) -> None:
    assert list(cut(text, 2)) == pieces


def test_the_best_piece_has_most_of_the_query() -> None:
    passage = Passage("a", "T", "red green blue north south east compass needle north")
    assert best_piece(passage, "North needle?", 3).text == "compass needle north"
    assert best_piece(passage, "nothing", 3).text == "red green blue", "the first of equals"
    assert best_piece(passage, "needle", None) is passage and best_piece(passage, "needle", 9) is passage
