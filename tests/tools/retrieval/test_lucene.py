"""Lucene beside bm25s: the same passages, the same rules, and both indexes of the embedded encyclopedia compared."""

import importlib.util
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.build import ARTICLES, OTHER_DOCUMENT
from tests.tools.build import titles
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.tools.retrieval import index, java, lucene
from toolformer.tools.retrieval.bm25 import BM25
from toolformer.tools.retrieval.lucene import Lucene, passage_of
from toolformer.tools.retrieval.passages import Passage, articles, passages_of
from toolformer.tools.search import WikiSearch

is_missing = pytest.mark.skipif(
    not (importlib.util.find_spec("pyserini") and importlib.util.find_spec("jnius")),
    reason="pyserini is not installed (make setup EXTRA=lucene, Python 3.11)",
)


def needs_lucene(test: Any) -> Any:
    return pytest.mark.chaos(is_missing(test))


def build(folder: Path, passages: list[Passage]) -> Path:
    index.write(folder, lucene.BACKEND, lambda place: lucene.build(passages, place, threads=1))
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Lucene:
    passages = [Passage(title, title, text) for title, text in ARTICLES.items()]
    return Lucene(str(build(tmp_path_factory.mktemp("index") / "small", passages)))


@needs_lucene
def test_it_answers_as_the_embedded_retriever(small: Lucene, retriever: BM25) -> None:
    """Scores too: both are BM25 with the same parameters, and these texts are short enough to count exactly."""
    queries = ["magnetic needle", "honey wax", "shadow of a rod", "water ships lighthouse", "zzzz", ""]
    ours, theirs = (one.retrieve(queries, 4, [OTHER_DOCUMENT] * 6) for one in (small, retriever))
    assert [[p.title for p in row] for row in ours] == [[p.title for p in row] for row in theirs]
    assert [p.text for row in ours for p in row] == [p.text for row in theirs for p in row]
    assert all(row == sorted(row, key=lambda passage: -passage.score) for row in ours)


FULL = """
import random, resource, signal, sys
from pathlib import Path
from toolformer.errors import UserError
from toolformer.tools.retrieval import index, java, lucene
from toolformer.tools.retrieval.passages import Passage

java.java_class("java.lang.Object")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
chance = random.Random(0)
texts = (" ".join(f"{chance.getrandbits(40):x}" for _ in range(100)) for _ in range(2000))
passages = (Passage(str(n), str(n), text) for n, text in enumerate(texts))
try:
    index.write(Path(sys.argv[1]), lucene.BACKEND, lambda place: lucene.build(passages, place, threads=1))
except UserError as error:
    print(error)
"""


@needs_lucene
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path / "index")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("index: Lucene ") and done.stdout.endswith(
        "make room or name another folder\n"
    )
    assert not (tmp_path / "index").exists()


@needs_lucene
def test_a_document_does_not_find_itself(small: Lucene) -> None:
    assert titles(small, "lighthouse", document=Document("d", ARTICLES["Lighthouse"].upper())) == ["Harbour"]
    everything = Document("d", " ".join(ARTICLES.values()))
    assert titles(small, "water ships wind honey sailors hour", 2, everything) == []
    terms = [
        "", " ", "\x00", "\ud800", "AND OR NOT (", 'title:"x" && ~', "a" * 100_000, "lighthouse " * 10_000, "🙂" * 500,
        "\\", "*:*", "[* TO *]", "the of and", "lighthouse\ud800",
    ]  # fmt: skip
    results = WikiSearch(small).run(terms, [OTHER_DOCUMENT] * len(terms))
    assert [n for n, one in enumerate(results) if one.text is not None] == [7, 13]


@needs_lucene
def test_long_articles_are_narrowed_and_their_passages_know_them(tmp_path: Path) -> None:
    text = f"{'far ' * 30}<b>The compass</b> shows north. {'away ' * 30}"
    whole = Lucene(str(build(tmp_path / "whole", [Passage("A", "Title", text)])), passage_words=10)
    (found,) = whole.retrieve(["compass north"], 1, [OTHER_DOCUMENT])
    assert found[0].text == "The compass shows north. away away away away away away"
    cut = Lucene(str(build(tmp_path / "cut", list(passages_of([Document("A", text, title="Title")], 10)))))
    (found,) = cut.retrieve(["compass north"], 1, [OTHER_DOCUMENT])
    assert (found[0].passage_id, found[0].article, found[0].title) == ("A#4", "A", "Title")
    assert titles(cut, "compass north", document=Document("d", "", source_id="A")) == []


@needs_lucene
def test_a_broken_index_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "segments_1").write_bytes(b"not one")
    with pytest.raises(UserError, match="cannot be opened") as caught:
        Lucene(str(tmp_path)).retrieve(["a"], 1, [OTHER_DOCUMENT])
    assert "\n" not in str(caught.value)


@needs_lucene
@pytest.mark.parametrize("version", [1, 99])
def test_an_index_of_another_lucene_is_refused_before_work(tmp_path: Path, version: int) -> None:
    folder = build(tmp_path / "index", [Passage("12", "Ghana", "Ghana is a country.")])
    (folder / index.MANIFEST).unlink()  # as an index that Anserini or Pyserini wrote
    (segments,) = folder.glob("segments_*")
    written = segments.read_bytes()
    end = written.index(b"segments") + len(b"segments")
    segments.write_bytes(written[:end] + version.to_bytes(4, "big") + written[end + 4 :])
    with pytest.raises(
        UserError, match=r"IndexFormatToo.*if another version of Lucene made it, build it again"
    ) as caught:
        WikiSearch(Lucene(str(folder))).check()
    assert "\n" not in str(caught.value)


@needs_lucene
def test_prebuilt_indexes_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no BM25 index 'wikipedia-kilt'; the paper's is wikipedia-kilt-doc"):
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
    kilt = """{"id": "12", "contents": "Ghana\\nGhana is a country.\\nSection::::History.\\nBULLET::::- Its <i>flag</i>",
        "wikipedia_id": "12", "wikipedia_title": "Ghana"}"""
    assert passage_of("12", kilt, 2.0) == Passage("12", "Ghana", "Ghana is a country. History. Its flag", 2.0)
    dpr = '{"id": "1", "contents": "\\"Aaron\\"\\nAaron is a prophet"}'
    assert passage_of("1", dpr, 1.0) == Passage("1", "Aaron", "Aaron is a prophet", 1.0)
    assert passage_of("2", '{"contents": "one line"}', 1.0) == Passage("2", "one line", "one line", 1.0)
    for raw in (None, "", "<xml/>", "[]", "5", "null", '"text"'):
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
    texts = [chance.choice(passages).text.split() for _ in range(600)]
    starts = [chance.randrange(max(1, len(words) - 8)) for words in texts]
    queries = [" ".join(words[start : start + 8]) for words, start in zip(texts, starts, strict=True)]
    nowhere = [OTHER_DOCUMENT] * len(queries)
    rows = list(zip(ours.retrieve(queries, 5, nowhere), theirs.retrieve(queries, 5, nowhere), strict=True))
    first = sum(a[0].passage_id == b[0].passage_id for a, b in rows if a and b) / len(rows)
    shared = sum(len({p.passage_id for p in a} & {p.passage_id for p in b}) for a, b in rows)
    assert first > 0.95 and shared / sum(len(b) for _, b in rows) > 0.9


def test_without_pyserini_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyserini", None)
    with pytest.raises(UserError, match=r"make setup EXTRA=lucene"):
        java.jar()


@needs_lucene
def test_a_java_that_cannot_be_started_is_one_line(tmp_path: Path) -> None:
    words = ["tool", "search", "x", "tool@tool.search=search_lucene", f"paths.root={tmp_path}/runs"]
    command = [sys.executable, "-m", "toolformer.cli", *words]
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "needs Java 21 or newer, and none is found" in done.stderr
