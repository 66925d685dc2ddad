"""Search over a small encyclopedia: what is found, what is cut, and that no document finds itself."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.build import ARTICLES, OTHER_DOCUMENT
from tests.tools.build import titles
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.tools.retrieval.bm25 import BM25
from toolformer.tools.retrieval.passages import Passage, articles, clean
from toolformer.tools.search import WikiSearch, model_ends, snippet, word_ends


def test_words_of_one_character_count(articles_file: Path) -> None:
    names = ("Vitamin A", "Vitamin C", "Symphony No. 3", "Symphony No. 5", "Edward I", "Edward II")
    rows = [{"title": name, "extract": f"{name} is the subject of this article."} for name in names]
    rows.append({"title": "Ohm", "extract": "Ohm's s s s"})
    articles_file.write_text(json.dumps(rows))
    retriever = BM25(str(articles_file))
    for query, name in zip(("vitamin a", "C", "symphony 3", *names[3:]), names, strict=True):
        assert titles(retriever, query) == [name]
    assert titles(retriever, "the article's subject", 9).count("Ohm") == 0, "a possessive's s is no word"


def test_the_score_is_bm25_with_the_papers_parameters(articles_file: Path) -> None:
    """By hand: idf * tf / (tf + k1 * (1 - b + b * length / mean length)), as Lucene has it; k1 = 0.9, b = 0.4."""
    rows = [("Oak", "tree tree leaf"), ("Pine", "tree needle cone resin bark"), ("Fern", "spore leaf")]
    articles_file.write_text(json.dumps([{"title": title, "extract": text} for title, text in rows]))
    (found,) = BM25(str(articles_file)).retrieve(["tree"], 3, [OTHER_DOCUMENT])
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    mean = (4 + 6 + 3) / 3  # titles are part of the texts
    by_hand = {
        title: idf * tf / (tf + 0.9 * (1 - 0.4 + 0.4 * length / mean))
        for title, tf, length in (("Oak", 2, 4), ("Pine", 1, 6))
    }
    assert {passage.title: passage.score for passage in found} == pytest.approx(by_hand, rel=1e-5)


def test_a_document_does_not_find_itself(retriever: BM25) -> None:
    """By its text or its id; a text that only quotes or rewrites an article may find it."""
    own = ARTICLES["Lighthouse"]
    longer = f"First posted on our page. {own} Come and see ours, it is open on Sundays in May."
    for text in (own.upper().replace(",", " -"), longer, " ".join(own.split()[:20])):
        assert titles(retriever, "lighthouse", document=Document("d", text)) == ["Harbour"]
    quoting = "He said that it warns ships of rocks and shallow water, then went on about his long voyage to the south "
    quoting += "and all the storms that he had met with on the way home in the autumn of that year."
    rewritten = " ".join("otherwise" if n % 8 == 7 else word for n, word in enumerate(own.split()))
    for text in (quoting, rewritten):
        assert titles(retriever, "lighthouse", document=Document("d", text)) == ["Lighthouse"]
    # A benchmark's examples may share an id: what is left out goes by the document.
    documents = [Document("", "one", source_id="Lighthouse"), Document("", "two", source_id="Compass")]
    found = retriever.retrieve(["lighthouse", "lighthouse"], 1, documents)
    assert [[passage.title for passage in row] for row in found] == [["Harbour"], ["Lighthouse"]]


def test_looking_on_goes_past_the_first_passages(articles_file: Path) -> None:
    own = [f"Water of the {n}th spring rises near {n}th hill and runs by {n}th mill" for n in range(10, 20)]
    texts = {text[:17]: text for text in own} | {"Ocean": "Salt " * 40 + "water"}
    articles_file.write_text(json.dumps([{"title": title, "extract": text} for title, text in texts.items()]))
    assert titles(BM25(str(articles_file)), "water", 1, Document("d", " ".join(own))) == ["Ocean"]
    everything = Document("d", " ".join([*own, "Salt " * 40, "water"]))
    assert titles(BM25(str(articles_file)), "water", 2, everything) == []


def test_the_index_is_built_once_and_follows_the_articles(articles_file: Path) -> None:
    folder = articles_file.parent / "cache" / "indexes"
    built = set()
    for _ in range(2):
        assert titles(BM25(str(articles_file)), "honey") == ["Beekeeping"]
        built |= {(path.name, path.stat().st_mtime_ns) for path in folder.iterdir()}
    assert len(built) == 1
    articles_file.write_text(json.dumps([{"title": "Jam", "extract": "Jam is fruit and honey, boiled."}]))
    assert titles(BM25(str(articles_file)), "honey") == ["Jam"]
    assert len(list(folder.iterdir())) == 2, "and no leftovers"


def test_it_leaves_jax_asleep(articles_file: Path, tmp_path: Path) -> None:
    # Awake, JAX takes three quarters of a GPU's memory.
    (tmp_path / "jax.py").write_text("raise SystemExit('woken')", encoding="utf-8")
    program = f"from toolformer.tools.retrieval.bm25 import BM25; print(len(BM25({str(articles_file)!r}))); import jax"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.stdout.strip() == str(len(ARTICLES)) and done.stderr.strip() == "woken"


def test_articles_may_begin_with_a_byte_order_mark(articles_file: Path) -> None:
    articles_file.write_text('[{"title": "A", "extract": "One."}]', encoding="utf-8-sig")
    assert articles(articles_file) == [Passage("A", "A", "One.")]


def test_articles_come_clean_and_a_broken_file_is_one_line(articles_file: Path) -> None:
    row = {"title": "A\ud800", "extract": "'''Two''' &amp; <b>three</b>\n{{note}}\n== four ==\n\ud800"}
    articles_file.write_text(json.dumps([row, {"title": "B", "extract": None}]))
    assert articles(articles_file) == [Passage("A?", "A?", "Two & three four ?")]
    for content, said in (
        ("{", "not a list of articles"),
        (100_000 * "[", "not a list of articles"),
        ('[{"title": "A"}]', "not a list of articles"),
        ('[{"title": "A", "extract": " "}, {"title": "B", "extract": null}]', "has no article"),
    ):
        articles_file.write_text(content)
        with pytest.raises(UserError, match=said) as caught:
            articles(articles_file)
        assert str(articles_file) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "if a < b == c and d > e", "a List<String> and a Map<String, Integer>", "every x with a <x and x> b", "a <b and c> d",
        "template<typename T> class Stack", "<office@harbour.example>", "https://shop.example/list?page=2&copy=3&sect=5",
        "Hello {{ user.name }}", "an empty text is '' and a quote 'It''s'", "== compares and === compares ==", "Option<A>",
        "path::Section::::y", "a List<Source> of it", "cp <source> <target>", "ln -s <source> <link>", "a Vec<p> here", "use </p> here",
        "The `<p>` tag ends with `</p>`", "x[[y]] <- '' and {{x}}", "def f(): '''hello''' + ''", "m = [[1, 2]]; '''doc'''; ''",
        "x = [[a long text]] .. ''", "``` <b>x</b> {{y}} ```", "`== x ==`", "[[Note]] on {{date}}",
    ],
)  # fmt: skip
def test_what_only_looks_like_markup_is_text(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("<b>bold</b> &amp; <A HREF='x'>link</A><br/>new", "bold & link new"),
        ("== History ==\n'''Danube''', a ''river'' {{note}}", "History Danube , a river"),
        ("'''Danube''' is a [[river]] {{note}}", "Danube is a [[river]]"),
        ("== Use ==\n'''doc'''\nprint(f'{{x}}', '')", "Use '''doc''' print(f'{{x}}', '')"),
        ("== Use ==\n[[Note]] {{x}} ''", "Use [[Note]] {{x}} ''"),
        (
            "The '''sum''' of [[a]] {{b}}: <math>{{x}}</math>, <nowiki>''</nowiki>, <code a=b>{{y}}</code>",
            "The sum of [[a]] : {{x}} , '' , {{y}}",
        ),
        ("<p>one</p><p>two<br>three", "one two three"),
        ("Section::::History.\nBULLET::::- one", "History. one"),
        ("the block &lt;div&gt;", "the block <div>"),
    ],
)
def test_markup_is_removed(text: str, plain: str) -> None:
    assert clean(text) == plain


@given(st.text(max_size=80), st.integers(0, 12))
@example("It's 3.5 km, or so", 6)
@example("It's 3.5 km, or so", 7)
def test_a_snippet_is_whole_words_from_the_beginning(text: str, tokens: int) -> None:
    text = clean(text)
    shown = snippet(Passage("x", "T", text), tokens).removeprefix("T > ")
    assert text.startswith(shown)
    if text.isascii():
        assert text.split()[: len(shown.split())] == shown.split()
    assert len(word_ends(shown)) <= tokens


def test_the_tool_shows_the_first_words_of_the_best_passage(retriever: BM25, tiny_folder: Path) -> None:
    expected = {
        "shadow hour": "Sundial > A sundial tells the hour", "": "empty search term", "zzzz": "nothing found",
        "the of and": "nothing found", "  ": "empty search term",
        "magnetic needle": "Compass > A compass shows where north",
    }  # fmt: skip
    results = WikiSearch(retriever, max_tokens=5).run(list(expected), [OTHER_DOCUMENT] * len(expected))
    assert [one.text or one.reason for one in results] == list(expected.values())
    assert snippet(Passage("x", "T", "It's 3.5 km, or so"), 6) == "T > It's 3.5"
    ends, text = model_ends(str(tiny_folder)), "The population is 658,893 people, and lighthouses warn ships"
    counts = [len(ends(snippet(Passage("x", "T", text), n, ends).removeprefix("T > "))) for n in range(30)]
    assert all(count <= n for n, count in enumerate(counts)) and max(counts) > 9, "a model's own tokens"
    with pytest.raises(UserError, match="no config.json"):
        model_ends(str(tiny_folder.parent))


@pytest.mark.real
def test_the_embedded_encyclopedia() -> None:
    retriever = BM25()
    assert len(retriever) == 10_033
    ghana = next(passage for passage in articles() if passage.title == "Ghana")
    (found,) = WikiSearch(retriever).run(["Ghana West Africa"], [OTHER_DOCUMENT])
    assert str(found.text).startswith("Ghana > Ghana, officially the Republic of Ghana, is a country")
    assert "Ghana" not in titles(retriever, "Ghana West Africa", 3, Document("d", ghana.text))
