"""Words of many scripts: what a text and a query share, and where a snippet may end."""

import json
from pathlib import Path

import pytest

from tests.build import OTHER_DOCUMENT
from toolformer.data import Document
from toolformer.tools.retrieval.bm25 import BM25
from toolformer.tools.retrieval.passages import Passage
from toolformer.tools.retrieval.words import overlap_words, search_words, unsplit_by_lucene, word_ends
from toolformer.tools.search import snippet

TEXTS = {
    "紫禁城": "紫禁城位于北京市中心，是明清两代的皇家宫殿。",
    "长江": "长江是亚洲最长的河流，流经重庆、武汉和南京。",
    "富士山": "富士山は静岡県と山梨県にまたがる活火山で、標高は3776メートルである。",
    "琵琶湖": "琵琶湖は滋賀県にある日本で最も大きい湖である。",
    "กรุงเทพมหานคร": "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย",
    "서울": "서울은 대한민국의 수도이다.",
    "दिल्ली": "दिल्ली भारत की राजधानी है और यमुना नदी के किनारे बसी है।",
    "दाल": "दाल भारतीय भोजन का मुख्य हिस्सा है।",
    "Hồ Gươm": "Hồ Gươm nằm ở trung tâm Hà Nội.",
    "Straße": "Die STRASSE heißt Lange Gasse.",
}


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("北京", "紫禁城"), ("湖", "琵琶湖"), ("京市", "紫禁城"), ("長江?", None), ("亚洲最长的河流是哪条？", "长江"),
        ("メートル", "富士山"), ("ﾒｰﾄﾙ", "富士山"), ("เมืองหลวง", "กรุงเทพมหานคร"), ("대한민국", "서울"), ("수도", "서울"),
        ("दाल", "दाल"), ("राजधानी", "दिल्ली"), ("Ho\u0302\u0300 Gu\u031bo\u031bm", "Hồ Gươm"), ("straße", "Straße"), ("gas\u00adse", "Straße"),
    ],
)  # fmt: skip
def test_a_query_finds_the_text_with_its_letters(
    query: str, title: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLFORMER_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "articles.json"
    path.write_text(json.dumps([{"title": title, "extract": text} for title, text in TEXTS.items()]))
    (found,) = BM25(str(path)).retrieve([query], 1, [OTHER_DOCUMENT])
    assert [passage.title for passage in found] == ([title] if title else [])


def test_an_article_without_blanks_does_not_find_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLFORMER_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "articles.json"
    path.write_text(json.dumps([{"title": title, "extract": text} for title, text in TEXTS.items()]))
    copied = Document("d", f"转载。{TEXTS['紫禁城']}")
    assert BM25(str(path)).retrieve(["北京"], 1, [copied]) == [[]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's Vitamin C, x_1", ["it", "vitamin", "c", "x_1"]),
        ("茶1406年", ["茶", "1406", "年"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("กรุงเทพ", ["กรุ", "รุง", "งเ", "เท", "ทพ"]),
        ("ไทย\u200bลาว", ["ไท", "ทย", "ลา", "าว"]),
        ("राजधानी", ["राजधानी"]),
    ],
)
def test_words_of_a_query(text: str, words: list[str]) -> None:
    assert search_words(text, is_query=True) == words


def test_a_text_has_its_single_characters_too() -> None:
    assert search_words("東京", is_query=False) == ["東", "京", "東京"]
    assert overlap_words("東京 Tower") == ["東", "京", "tower"]


def test_a_snippet_without_blanks_is_cut_between_characters() -> None:
    text = "紫禁城位于北京市中心，是宫殿。"
    assert snippet(Passage("x", "T", text), 5) == "T > 紫禁城位于"
    assert len(word_ends(text)) == len(text)
    assert snippet(Passage("x", "T", "दिल्ली भारत की राजधानी"), 2) == "T > दिल्ली भारत"


def test_scripts_that_lucene_leaves_whole() -> None:
    assert unsplit_by_lucene(TEXTS["กรุงเทพมหานคร"])
    assert not any(
        unsplit_by_lucene(TEXTS[title]) for title in ("紫禁城", "富士山", "서울", "दाल", "Hồ Gươm")
    )
