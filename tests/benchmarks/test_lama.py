"""LAMA: statements whose mask is last, from files of both schemas."""

from __future__ import annotations

import doctest
import logging
from pathlib import Path
from typing import Any

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.loaders import lama
from benchmarks.loaders.lama import until_mask
from tests.benchmarks.by_name import documents, task
from tests.benchmarks.conftest import Hub
from tests.benchmarks.test_loaders import write
from toolformer.errors import UserError

SQUAD = [
    {"id": "a", "sub_label": "Squad", "obj_label": "blue", "masked_sentences": ["The sea is [MASK] ."]},
    {"id": "b", "sub_label": "Squad", "obj_label": "deep", "masked_sentences": ["The [MASK] sea is blue."]},
    {"id": "c", "sub_label": "Squad", "obj_label": "ships", "masked_sentences": ["On [MASK] sail [MASK]."]},
]
PERSON = {
    "relation": "place_of_birth",
    "pred": "/people/person/place_of_birth",
    "sub": "/m/1",
    "obj": "/m/2",
    "evidences": [
        {"url": "u", "snippet": "s", "considered_sentences": ["Ada Bell was born in Ulm, a town."]}
    ],
    "judgments": [{"rater": "1", "judgment": "yes"}],
    "sub_w": None,
    "sub_label": "Ada Bell",
    "sub_aliases": [],
    "obj_w": "Q1",
    "obj_label": "Ulm",
    "obj_aliases": [],
    "uuid": "u1",
    "masked_sentences": ["Ada Bell was born in [MASK], a town.", "She grew up in [MASK]."],
}
GOOGLE_RE = [
    PERSON,
    {**PERSON, "pred": "/people/person/date_of_birth", "obj_label": "1815", "uuid": "u2"},
    {**PERSON, "pred": "/people/deceased_person/place_of_death", "obj_label": "Bonn", "uuid": "u3"},
]
FACT: dict[str, Any] = {
    "relation": "P36",
    "template": "The capital of [X] is [Y] .",
    "uuid": "t1",
    "sub_label": "Utopia",
    "obj_label": "Amaurot",
    "complete": True,
}
TREX = [
    FACT,
    {**FACT, "relation": "P190", "template": "[X] and [Y] are twin cities .", "uuid": "t2"},
    {**FACT, "uuid": None, "sub_label": "Lilliput", "obj_label": "Mildendo", "complete": False},
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
        ("A is [MASK].", "A is"),
        ("A is [MASK]", "A is"),
        ("A is [MASK] .", "A is"),
        ('He said "A is [MASK]."', 'He said "A is'),
        ("A (born [MASK]).", "A (born"),
        ("Is A [MASK]?", "Is A"),
        ("A is [MASK] indeed.", None),
        ("A is [MASK]s.", None),
        ("A is [MASK], 5.", None),
        ("[MASK] is what [MASK].", "[MASK] is what"),
        ("[MASK].", ""),
        ("no mask.", None),
        ("", None),
    ],
)
def test_a_mask_is_last_but_for_closing_punctuation(statement: str, text: str | None) -> None:
    assert until_mask(statement) == text


@given(st.text(), st.text(alphabet=" .,;:!?)]}'\"»…”", max_size=5))
def test_what_stands_before_a_last_mask_is_kept(before: str, after: str) -> None:
    assert until_mask(f"{before}[MASK]{after}") == before.rstrip()
    assert until_mask(f"{before}[MASK]{after}x") is None


def test_squad(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        found = documents("lama_squad", data_dir=str(data_dir))
    assert found == [
        {"id": "a", "family": "squad", "text": "The sea is", "answers": ["blue"]},
        {"id": "c", "family": "squad", "text": "On [MASK] sail", "answers": ["ships"]},
    ]
    assert "lama_squad: 3 rows read, 2 kept, dropped: {'mask not last': 1}" in caplog.messages
    assert "lama_squad: 3 rows read, but the published set has 305" in caplog.messages


def test_the_published_number_of_rows_is_no_cause_for_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "lama/squad", [{**SQUAD[0], "id": n} for n in range(305)])
    assert len(documents("lama_squad", data_dir=str(tmp_path))) == 305
    assert not [
        record for record in caplog.records if record.levelname == "WARNING" and "rows" in record.message
    ]


def test_google_re_facts_are_put_into_lamas_templates(data_dir: Path) -> None:
    found = documents("lama_google_re", data_dir=str(data_dir))
    assert [(row["family"], row["text"], row["answers"]) for row in found] == [
        ("place_of_birth", "Ada Bell was born in", ["Ulm"]),
        ("date_of_birth", "Ada Bell (born", ["1815"]),
        ("place_of_death", "Ada Bell died in", ["Bonn"]),
    ]
    assert [row["id"] for row in found] == ["u1", "u2", "u3"]


def test_a_fact_without_a_uuid_goes_by_its_relation_and_subject(tmp_path: Path, hub: Hub) -> None:
    bare = {name: value for name, value in PERSON.items() if name != "uuid"}
    facts = [{**PERSON, "uuid": None}, {**bare, "obj_label": "Bonn"}]
    names = ["place_of_birth Ada Bell", "place_of_birth Ada Bell#2"]
    write(tmp_path, "lama/google_re", facts)
    found = documents("lama_google_re", data_dir=str(tmp_path))
    assert [(row["id"], row["answers"]) for row in found] == list(
        zip(names, [["Ulm"], ["Bonn"]], strict=True)
    )
    # The hub's rows are sentences: the first fact has two.
    hub.add("facebook/lama", "train", [{**fact, "evidences": ""} for fact in (facts[0], *facts)], "google_re")
    assert [(row["id"], row["answers"]) for row in documents("lama_google_re")] == [
        (row["id"], row["answers"]) for row in found
    ]


def test_trex_facts_are_put_into_their_templates(data_dir: Path) -> None:
    found = documents("lama_trex", data_dir=str(data_dir))
    assert found == [
        {"id": "t1", "family": "P36", "text": "The capital of Utopia is", "answers": ["Amaurot"]},
        {
            "id": "P36 Lilliput",
            "family": "P36",
            "text": "The capital of Lilliput is",
            "answers": ["Mildendo"],
        },
    ]


def test_a_subject_is_never_taken_for_a_slot(tmp_path: Path) -> None:
    write(tmp_path, "lama/trex", [{**FACT, "sub_label": "[Y] land"}])
    assert documents("lama_trex", data_dir=str(tmp_path))[0]["text"] == "The capital of [Y] land is"


def test_prompt_and_score(data_dir: Path) -> None:
    made = task("lama_trex", data_dir=str(data_dir))
    document = next(iter(made.test_docs()))
    assert made.doc_to_text(document) == (
        "Please complete the following text so that it is factually correct: The capital of Utopia is"
    )
    for completion, score in [
        (" Amaurot.", 100.0),
        (" a city that is AMAUROT", 100.0),
        (" one two three four five Amaurot", 0.0),
    ]:
        assert made.process_results(document, [completion]) == {"score": score}


def test_the_hubs_sentences_become_statements_and_facts(hub: Hub) -> None:
    squad = [
        {"id": "a", "sub_label": "S", "obj_label": "blue", "negated": "", "masked_sentence": "It is [MASK]."}
    ]
    hub.add("facebook/lama", "train", squad, "squad")
    sentence = {
        "obj_label": "Amaurot",
        "sub_label": "Utopia",
        "predicate_id": "P36",
        "template": FACT["template"],
    }
    trex = [
        {**sentence, "uuid": "t1", "masked_sentence": "[MASK] is the capital of Utopia.", "type": "1-1"},
        {**sentence, "uuid": "t1", "masked_sentence": "Utopia's [MASK] is its capital.", "type": "1-1"},
        {**sentence, "uuid": "t1", "predicate_id": "P190", "template": "[X] is near [Y] .", "masked_sentence": "", "type": ""},
    ]  # fmt: skip
    hub.add("facebook/lama", "train", trex, "trex")
    columns = [name for name in PERSON if name not in ("relation", "masked_sentences")]
    person = {name: str(PERSON[name]) for name in columns}
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
    rows = [
        {"id": "a", "sub_label": "S", "obj_label": "blue", "negated": "", "masked_sentence": "It is [MASK]."}
    ] * 305
    hub.add("facebook/lama", "train", rows, "squad")
    found = hub.sets["facebook/lama", "train", "squad"]
    commit = "0123456789abcdef0123456789abcdef01234567"
    found.info.download_checksums = {f"hf://datasets/facebook/lama@{commit}/squad/train/0000.parquet": {}}
    with caplog.at_level(logging.INFO):
        assert len(documents("lama_squad")) == 305
    assert f"lama_squad: facebook/lama is at commit {commit}" in caplog.messages
    assert not [line for line in caplog.messages if "when the task was written" in line]
    hub.sets["facebook/lama", "train", "squad"] = found.select(range(304))
    documents("lama_squad")
    assert (
        "lama_squad: facebook/lama has 304 rows (refs/convert/parquet), but had 305 when the task was written"
        in caplog.messages
    )


def test_a_parquet_copy_is_read_by_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real `datasets.load_dataset` on a folder laid out as the hub's branch of Parquet copies is."""
    monkeypatch.delenv("TOOLFORMER_DATA_DIR", raising=False)
    for config, answer in (("squad", "blue"), ("conceptnet", "red")):
        path = tmp_path / "lama" / config / "train" / "0000.parquet"
        path.parent.mkdir(parents=True)
        row = {"id": "a", "sub_label": "S", "obj_label": answer, "masked_sentence": "It is [MASK]."}
        datasets.Dataset.from_list([row]).to_parquet(path)
    place = {"path": str(tmp_path / "lama"), "data_dir": "squad", "split": "train"}
    load = datasets.load_dataset

    def from_folder(path: str, revision: str, **options: Any) -> Any:
        # A folder has no branches.
        return load(path, cache_dir=str(tmp_path / "cache"), **options)

    monkeypatch.setattr(datasets, "load_dataset", from_folder)
    found = documents("lama_squad", hub={**place, "revision": "refs/convert/parquet"})
    assert [row["answers"] for row in found] == [["blue"]]


@pytest.mark.parametrize(
    ("name", "file", "rows", "message"),
    [
        ("lama_squad", "squad", [{"id": 1, "obj_label": "x"}], r"line 1: no list of texts in field `masked_sentences`"),
        ("lama_squad", "squad", [{"masked_sentences": ["[MASK]"]}], r"no text in field `obj_label`"),
        ("lama_trex", "trex", [FACT, {"relation": "P1"}], r"line 2: no text in field `template` \(the row has relation\)"),
        ("lama_google_re", "google_re", [{**PERSON, "pred": "/x/y"}], r"field `pred` is '/x/y', none of place_of_birth"),
        ("lama_google_re", "google_re", [FACT], r"no text in field `pred` \(the row has relation, template"),
    ],
)  # fmt: skip
def test_rows_of_another_schema_are_named(
    tmp_path: Path, name: str, file: str, rows: list[Any], message: str
) -> None:
    write(tmp_path, f"lama/{file}", rows)
    with pytest.raises(UserError, match=message):
        documents(name, data_dir=str(tmp_path))


def test_a_subset_keeps_the_relations_in_proportion(tmp_path: Path) -> None:
    rows = [{**FACT, "relation": f"P{n % 4}", "uuid": f"u{n}"} for n in range(40)]
    write(tmp_path, "lama/trex", rows)
    found = documents("lama_trex", data_dir=str(tmp_path), subset=8, seed=1)
    assert sorted(row["family"] for row in found) == ["P0", "P0", "P1", "P1", "P2", "P2", "P3", "P3"]
