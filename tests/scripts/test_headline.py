"""The texts and questions of `experiment=headline`, from a data folder of a few rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import headline
from tests.build import Capture
from tests.scripts.build import BRIDGE, PAGES, ROWS, fill
from toolformer.errors import UserError
from toolformer.tools.retrieval.passages import Passage

Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the texts of the experiment, and its questions in `registration`."""
    folder = tmp_path_factory.mktemp("data")
    fill(folder, *ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headline, "REGISTRATION", folder / "registration")
        patch.setattr(headline, "TASKS", ("svamp", "arithmetic"))
        patch.setattr(headline, "articles", lambda: [Passage("Sea", "Sea", "The sea is blue.")])
        headline.main(folder)
    return folder


@pytest.fixture(scope="module")
def texts(data: Path) -> list[Row]:
    return read(data / "headline" / "texts.jsonl")


def test_all_missing_files_are_named_at_once(tmp_path: Path) -> None:
    fill(tmp_path, *(name for name in ROWS if name not in ("web_documents", "nq_passages")))
    message = (
        r"lacks 2 of 7 files: corpus_web/documents.jsonl.gz \(id, text.*nq_open/oracle_passages.jsonl.gz"
    )
    with pytest.raises(OSError, match=message):
        headline.main(tmp_path)
    assert not (tmp_path / "headline").exists()


def test_a_missing_benchmark_ends_before_the_index(tmp_path: Path) -> None:
    fill(tmp_path, *(name for name in ROWS if name != "svamp"))
    with pytest.raises(UserError, match="mawps"):
        headline.main(tmp_path)
    assert not (tmp_path / "headline").exists()


def test_texts_are_of_each_kind_in_turn(texts: list[Row]) -> None:
    kinds = ["date" if "date" in row else "pair" if "source_id" in row else "sum" for row in texts]
    assert kinds[:4] == ["sum", "date", "pair", "sum"] and kinds.count("sum") == 150


def test_sums_are_bundled_or_made_up_without_a_wording(texts: list[Row]) -> None:
    made = [row for row in texts if row["id"].startswith("forms/")]
    assert len(made) == 90 and not any("What is" in row["text"] for row in made)


def test_a_dated_page_names_its_own_day_in_english(texts: list[Row]) -> None:
    pages = {row["id"]: row for row in texts if row["id"] in PAGES}
    assert pages["web"] == {"id": "web", "text": PAGES["web"], "date": "2019-06-03"}
    assert not {"sunday", "german"} & {*pages}


def test_a_pair_has_a_name_that_another_passage_shows(texts: list[Row]) -> None:
    (pair,) = [row for row in texts if "source_id" in row]
    assert pair == {"id": "squad_train/0/0", "source_id": "squad_train/0", "text": f"It is old. {BRIDGE}"}


def test_a_text_with_thirteen_words_of_a_question_is_left_out(texts: list[Row]) -> None:
    assert "words" not in {row["id"] for row in texts}


def test_a_text_with_neighbouring_numbers_is_left_out(texts: list[Row]) -> None:
    assert "numbers" not in {row["id"] for row in texts} >= {"number"}


def test_only_mathematics_counts_neighbouring_numbers() -> None:
    assert not headline.shared_with({"nq": ROWS["svamp"]})(PAGES["numbers"])


def test_a_short_question_counts_as_a_whole() -> None:
    shares = headline.shared_with({"nq": [{"question": "Who built the very old bridge of Ulm?"}]})
    assert shares("Asked who built the very old bridge of Ulm, he left.")
    assert not shares("He built the very old bridge of Ulm.")


def test_held_out_texts_are_none_of_the_training_texts(data: Path, texts: list[Row]) -> None:
    heldout = read(data / "headline" / "heldout.jsonl")
    assert [row["text"] for row in heldout[:2]] == ["Page 0 ends.", "Page 1 ends."]
    ids = [row["id"] for row in heldout]
    assert sum(name.startswith("web/") for name in ids) == 50
    assert sum(name.startswith("forms/") for name in ids) == 10
    assert not {*ids} & {row["id"] for row in texts}


def test_the_smaller_index_lacks_two_sources(data: Path) -> None:
    found = {}
    for name in ("index", "without"):
        search = headline.bm25.BM25(index_path=str(data / "headline" / f"{name}.bm25"))
        passages = search.retrieve(["A Rome town"], 9, [headline.Document("x", "x")])[0]
        found[name] = {passage.text for passage in passages}
    assert found["index"] >= {"A is in Rome.", "B is a town."}
    assert not found["without"] & {"A is in Rome.", "B is a town."}


def test_the_ids_of_the_questions_are_written(data: Path) -> None:
    dev, test = (json.loads((data / f"registration/{name}.json").read_text()) for name in ("dev", "test"))
    assert (len(dev["svamp"]), len(test["svamp"]), len(test["arithmetic"])) == (2, 4, 200)
    assert {*dev["svamp"]} | {*test["svamp"]} == set("012345")
    heldout = read(data / "headline" / "heldout.jsonl")
    assert dev["heldout_perplexity"] == sorted(row["id"] for row in heldout)


def test_questions_are_drawn_alike_and_disjoint() -> None:
    rows = [{"id": n} for n in range(1000)]
    parts = headline.drawn("nq", rows)
    assert parts == headline.drawn("nq", rows) != headline.drawn("webqs", rows)
    assert [*map(len, parts)] == [100, 200, 100] and len(set().union(*parts)) == 400


def test_arithmetic_is_drawn_evenly_from_its_families() -> None:
    rows = [{"id": f"{family}{n}", "family": family} for family in "abcd" for n in range(200)]
    for part in headline.drawn("arithmetic", rows):
        assert {sum(name.startswith(family) for name in part) for family in "abcd"} == {len(part) // 4}


def test_the_registered_questions_are_those_that_are_drawn(tmp_path: Path) -> None:
    """Of arithmetic and dates, which are made up."""
    rows = headline.questions(tmp_path, ["arithmetic", "dateset"])
    for number, name in enumerate(("dev", "test")):
        registered = json.loads((headline.REGISTRATION / f"{name}.json").read_text())
        assert all(registered[task] == headline.drawn(task, rows[task])[number] for task in rows)


def test_what_was_registered_is_not_changed(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "test.json"
    headline.register(path, {"nq": ["1"], "svamp": ["2"]})
    assert capsys.readouterr().out == ""
    headline.register(path, {"nq": ["3"], "svamp": ["2"]})
    assert json.loads(path.read_text()) == {"nq": ["1"], "svamp": ["2"]}
    assert "other questions of nq are drawn" in capsys.readouterr().out
