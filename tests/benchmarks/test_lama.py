"""LAMA: statements whose mask is last, from files of both schemas."""

from __future__ import annotations

import doctest
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.loaders import lama
from benchmarks.loaders.lama import until_mask
from tests.benchmarks.conftest import Hub, documents, task
from tests.benchmarks.test_loaders import write
from toolformer.errors import UserError

SQUAD = [
    {"id": "a", "sub_label": "Squad", "obj_label": "blue", "masked_sentences": ["The sea is [MASK] ."]},
    {"id": "b", "sub_label": "Squad", "obj_label": "deep", "masked_sentences": ["The [MASK] sea is blue."]},
    {"id": "c", "sub_label": "Squad", "obj_label": "ships", "masked_sentences": ["On [MASK] sail [MASK]."]},
]
PERSON = {
    "relation": "place_of_birth", "pred": "/people/person/place_of_birth", "evidences": [{"url": "u", "snippet": "s"}],
    "sub_label": "Ada Bell", "obj_label": "Ulm", "uuid": "u1",
    "masked_sentences": ["Ada Bell was born in [MASK], a town.", "She grew up in [MASK]."],
}  # fmt: skip
GOOGLE_RE = [
    PERSON,
    {**PERSON, "pred": "/people/person/date_of_birth", "obj_label": "1815", "uuid": "u2"},
    {**PERSON, "pred": "/people/deceased_person/place_of_death", "obj_label": "Bonn", "uuid": "u3"},
]
FACT: dict[str, Any] = {
    "relation": "P36", "template": "The capital of [X] is [Y] .", "uuid": "t1", "sub_label": "Utopia",
    "obj_label": "Amaurot", "complete": True,
}  # fmt: skip
TREX = [
    FACT,
    {**FACT, "relation": "P190", "template": "[X] and [Y] are twin cities .", "uuid": "t2"},
    {**FACT, "uuid": None, "sub_label": "[Y] land", "obj_label": "Mildendo", "complete": False},
    {**FACT, "relation": "P1923", "template": "[Y] participated in the [X] .", "uuid": "t4"},
]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    write(tmp_path, "lama/squad", SQUAD)
    write(tmp_path, "lama/google_re", GOOGLE_RE)
    write(tmp_path, "lama/trex", TREX)
    return tmp_path


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(lama).failed == 0 < doctest.testmod(lama).attempted


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ('He said "A is [MASK]."', 'He said "A is'),
        ("A is [MASK] .", "A is"),
        ("A is [MASK]s.", None),
        ("[MASK] is what [MASK].", "[MASK] is what"),
        ("[MASK].", ""),
    ],
)
def test_a_mask_is_last_but_for_closing_punctuation(statement: str, text: str | None) -> None:
    assert until_mask(statement) == text


@given(st.text(), st.text(alphabet=" .,;:!?)]}'\"»…”", max_size=5))
def test_what_stands_before_a_last_mask_is_kept(before: str, after: str) -> None:
    assert until_mask(f"{before}[MASK]{after}") == before.rstrip()
    assert until_mask(f"{before}[MASK]{after}x") is None


def test_squad(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "benchmarks"):
        found = documents("lama_squad", data_dir=str(data_dir))
    assert found == [
        {"id": "a", "family": "squad", "text": "The sea is", "answers": ["blue"]},
        {"id": "c", "family": "squad", "text": "On [MASK] sail", "answers": ["ships"]},
    ]
    assert "lama_squad: 3 rows read, 2 kept, dropped: {'mask not last': 1}" in caplog.messages
    assert "lama_squad: 3 rows read, but the published set has 305" in caplog.messages


def test_google_re_facts_are_put_into_lamas_templates(data_dir: Path, tmp_path: Path) -> None:
    found = documents("lama_google_re", data_dir=str(data_dir))
    assert [(row["family"], row["text"], row["answers"]) for row in found] == [
        ("place_of_birth", "Ada Bell was born in", ["Ulm"]),
        ("date_of_birth", "Ada Bell (born", ["1815"]),
        ("place_of_death", "Ada Bell died in", ["Bonn"]),
    ]
    assert [row["id"] for row in found] == ["u1", "u2", "u3"]
    write(tmp_path, "lama/google_re", [{**PERSON, "pred": "/x/y"}])
    with pytest.raises(UserError, match="field `pred` is '/x/y', none of place_of_birth"):
        documents("lama_google_re", data_dir=str(tmp_path))


def test_a_fact_without_a_uuid_goes_by_its_relation_and_subject(tmp_path: Path, hub: Hub) -> None:
    bare = {name: value for name, value in PERSON.items() if name != "uuid"}
    facts = [{**PERSON, "uuid": None}, {**bare, "obj_label": "Bonn"}]
    write(tmp_path, "lama/google_re", facts)
    # The hub's rows are sentences: the first fact has two.
    hub.add("facebook/lama", "train", [{**fact, "evidences": ""} for fact in (facts[0], *facts)], "google_re")
    for found in (documents("lama_google_re", data_dir=str(tmp_path)), documents("lama_google_re")):
        assert [row["id"] for row in found] == ["place_of_birth Ada Bell", "place_of_birth Ada Bell#2"]
        assert [row["answers"] for row in found] == [["Ulm"], ["Bonn"]]


def test_trex_facts_are_put_into_their_templates(data_dir: Path) -> None:
    found = documents("lama_trex", data_dir=str(data_dir))
    assert [(row["id"], row["family"], row["text"], row["answers"]) for row in found] == [
        ("t1", "P36", "The capital of Utopia is", ["Amaurot"]),
        ("P36 [Y] land", "P36", "The capital of [Y] land is", ["Mildendo"]),  # a subject is no slot
    ]


def test_prompt_and_score(data_dir: Path) -> None:
    made = task("lama_trex", data_dir=str(data_dir))
    document = next(iter(made.test_docs()))
    assert made.doc_to_text(document) == (
        "Please complete the following text so that it is factually correct: The capital of Utopia is"
    )
    assert made.process_results(document, [" a city that is AMAUROT"]) == {"score": 100.0}
    assert made.process_results(document, [" one two three four five Amaurot"]) == {"score": 0.0}


SENTENCE = {"id": "a", "sub_label": "S", "obj_label": "blue", "masked_sentence": "It is [MASK]."}


def test_the_hubs_sentences_become_statements_and_facts(hub: Hub) -> None:
    hub.add("facebook/lama", "train", [SENTENCE], "squad")
    names = ("uuid", "sub_label", "obj_label", "template")
    fact = {**{name: FACT[name] for name in names}, "predicate_id": "P36"}
    near = {"predicate_id": "P190", "template": "[X] is near [Y] ."}
    trex = [
        {**fact, "masked_sentence": "[MASK] is the capital of Utopia."},
        {**fact, "masked_sentence": "Utopia's [MASK] is its capital."},
        {**fact, **near, "masked_sentence": ""},
    ]
    hub.add("facebook/lama", "train", trex, "trex")
    person = {name: str(PERSON[name]) for name in PERSON if name not in ("relation", "masked_sentences")}
    google_re = [{**person, "masked_sentence": text, "template": "t"} for text in PERSON["masked_sentences"]]
    hub.add("facebook/lama", "train", google_re, "google_re")
    assert [row["text"] for row in documents("lama_squad")] == ["It is"]
    assert [(row["family"], row["text"]) for row in documents("lama_trex")] == [
        ("P36", "The capital of Utopia is"),
        ("P190", "Utopia is near"),
    ]
    assert [row["text"] for row in documents("lama_google_re")] == ["Ada Bell was born in"]
    assert {(asked["data_dir"], asked["name"], asked["revision"]) for asked in hub.asked} == {
        (name, None, "refs/convert/parquet") for name in ("squad", "trex", "google_re")
    }


def test_a_branch_says_what_was_read(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    hub.add("facebook/lama", "train", [SENTENCE] * 305, "squad")
    found = hub.sets["facebook/lama", "train", "squad"]
    commit = "0123456789abcdef0123456789abcdef01234567"
    found.info.download_checksums = {f"hf://datasets/facebook/lama@{commit}/squad/train/0000.parquet": {}}
    with caplog.at_level(logging.INFO, "benchmarks"):
        assert len(documents("lama_squad")) == 305
    assert f"lama_squad: facebook/lama is at commit {commit}" in caplog.messages
    warning = "has 304 rows (refs/convert/parquet), but had 305 when the task was written"
    assert warning.split("but")[1] not in caplog.text
    hub.sets["facebook/lama", "train", "squad"] = found.select(range(304))
    documents("lama_squad")
    assert f"lama_squad: facebook/lama {warning}" in caplog.messages
