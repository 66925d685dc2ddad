"""Benchmarks read from data folders that the tests write, from a stand-in for the hub, and from nowhere."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.build import Hub, documents, task
from tests.build import ASDIV, MAWPS, SVAMP, Log, Patch, write
from toolformer.benchmarks.declared import data_files
from toolformer.benchmarks.loaders.math import asdiv, numeric_answer, svamp
from toolformer.benchmarks.loaders.perplexity import heldout, wikitext
from toolformer.benchmarks.loaders.temporal import dateset
from toolformer.data import Document, FileCorpus
from toolformer.errors import UserError

Row = dict[str, Any]

QUESTION = {"id": "q1", "question": "who wrote it", "answers": ["Ada Bell", "Bell", "Ada Bell"]}
QUESTIONS = [QUESTION, {**QUESTION, "id": "q2", "answers": [" "]}, QUESTION]
ANSWERED = [{"id": name, "question": "who wrote it", "answers": ["Ada Bell", "Bell"]} for name in ("q1", "q1#2")]  # fmt: skip
ASKED = "Answer the following question: who wrote it?"
SQUAD = [
    {"id": name, "obj_label": "blue", "masked_sentences": [sentence]}
    for name, sentence in {
        "a": "The sea is [MASK] .", "b": "The [MASK] sea is blue.", "c": "On [MASK] sail [MASK].", "d": "[MASK].",
    }.items()
]  # fmt: skip
PERSON = {"pred": "/people/person/place_of_birth", "sub_label": "Ada Bell", "obj_label": "Ulm", "uuid": "u1"}
GOOGLE_RE = [
    PERSON,
    {**PERSON, "pred": "/people/person/date_of_birth", "obj_label": "1815", "uuid": None},
    {**PERSON, "pred": "/people/deceased_person/place_of_death", "obj_label": "Bonn"},
]
FACT = {
    "template": "The capital of [X] is [Y] .",
    "uuid": "t1",
    "sub_label": "Utopia",
    "obj_label": "Amaurot",
}
TREX = [
    {**FACT, "relation": "P36"},
    {**FACT, "relation": "P36", "uuid": None, "sub_label": "[Y] land"},  # a subject is no slot
    {**FACT, "relation": "P1923", "template": "[Y] participated in the [X] ."},
]
PLAYER = {
    "query": "Ada Bell plays for _X_.", "answer": [{"name": "Real Ulm"}, {"name": "FC Bonn"}], "date": "2014",
    "id": "Q7_P54_2014", "relation": "P54",
}  # fmt: skip
COMPLETE = "Please complete the following text so that it is factually correct: "


def write_task(folder: Path, name: str, rows: list[Row], text: str | None = None) -> Path:
    """The first file of a task."""
    file = next(file for file in data_files(name)[0] if file.endswith(".jsonl.gz"))
    return write(folder, file.removesuffix(".jsonl.gz"), rows, text)


def check(found: list[Row], expected: list[Row]) -> None:
    """The documents, of which only some fields may be named."""
    assert [{name: row[name] for name in want} for row, want in zip(found, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("name", "rows", "expected", "prompt", "dropped"),
    [
        ("svamp", [SVAMP],
         [{"id": "chal-1", "context": "Each pack costs 76 dollars.", "question": "How much?", "answer": "76.0"}],
         "Each pack costs 76 dollars. How much? The answer is", "none"),
        ("asdiv", ASDIV, [{"id": "nluds-0001", "answer": "9"}, {"id": "nluds-0005", "answer": "1/2"}],
         "Two and 7. How many? The answer is", "{'ratio or time': 1, 'several answers': 1, 'not a number': 1}"),
        ("mawps", MAWPS, [{"answer": "504.0", "context": ""}, {"answer": "98", "context": ""}],
         "56 books on 9 shelves? The answer is", "{'several answers': 1}"),
        *((name, QUESTIONS, ANSWERED, ASKED, "{'no answer': 1}") for name in ("webqs", "nq", "triviaqa")),
        ("lama_squad", SQUAD,
         [{"id": "a", "family": "squad", "text": "The sea is", "answers": ["blue"]}, {"text": "On [MASK] sail"}],
         f"{COMPLETE}The sea is", "{'mask not last': 2}"),
        ("lama_google_re", GOOGLE_RE,
         [{"id": "u1", "family": "place_of_birth", "text": "Ada Bell was born in", "answers": ["Ulm"]},
          {"id": "date_of_birth Ada Bell", "text": "Ada Bell (born", "answers": ["1815"]},
          {"id": "u1#2", "text": "Ada Bell died in", "answers": ["Bonn"]}],
         f"{COMPLETE}Ada Bell was born in", "none"),
        ("lama_trex", TREX,
         [{"id": "t1", "family": "P36", "text": "The capital of Utopia is", "answers": ["Amaurot"]},
          {"id": "P36 [Y] land", "text": "The capital of [Y] land is"}],
         f"{COMPLETE}The capital of Utopia is", "{'mask not last': 1}"),
        ("templama", [PLAYER, {**PLAYER, "query": "_X_ is the chair of Ulm."}],
         [{"id": "Q7_P54_2014", "family": "P54", "text": "Ada Bell plays for", "answers": ["Real Ulm", "FC Bonn"],
           "current_date": "2014-07-01"}],
         f"{COMPLETE}Ada Bell plays for", "{'mask not last': 1}"),
    ],
)  # fmt: skip
def test_the_rows_of_a_data_folder_become_documents(
    tmp_path: Path, caplog: Log, name: str, rows: list[Row], expected: list[Row], prompt: str, dropped: str
) -> None:
    path = write_task(tmp_path, name, rows)
    with caplog.at_level(logging.INFO, "toolformer.benchmarks"):
        made = task(name, data_dir=str(tmp_path))
    found = [dict(row) for row in made.test_docs()]
    check(found, expected)
    assert made.doc_to_text(found[0]) == prompt
    log = "\n".join(caplog.messages)
    assert f"{name}: {len(rows)} rows read, {len(found)} kept, dropped: {dropped}" in log
    assert f"{name}: {len(rows)} rows read, but the published set has" in log
    assert name != "asdiv" or f"asdiv: first dropped: not a number: {path}, line 4" in log


LAMA = "facebook/lama"
TRIVIA = {
    "question": "c?", "question_id": "tc_1",
    "answer": {"value": "Beetles", "aliases": ["The Beetles"], "normalized_aliases": ["beetles"]},
}  # fmt: skip
MASKED = {"id": "a", "obj_label": "blue", "masked_sentence": "It is [MASK]."}
ELEVEN = {"Question": "N_10 of N_02", "Answer": 6.0, "Numbers": "0 1 2 3 4 5 6 7 8 9 10"}


@pytest.mark.parametrize(
    ("name", "path", "rows", "expected"),
    [
        ("svamp", "ChilleD/SVAMP",
         {("train", None): [{"ID": "chal-7", "Body": "A.", "Question": "B?", "Answer": "76.0"}],
          ("test", None): [{"ID": "chal-8", "Body": "C.", "Question": "D?", "Answer": "3"}]},
         [{"id": "chal-7", "answer": "76.0"}, {"id": "chal-8", "question": "D?"}]),
        ("asdiv", "EleutherAI/asdiv", {("validation", None): ASDIV[:1]}, [{"answer": "9"}]),
        ("mawps", "mwpt5/MAWPS",  # its numbers are put back
         {("train", None): [{"Question": "Has N_00 cups and N_01 more .", "Numbers": "8.0 2.5", "Answer": 10.5},
                            {"Question": "Has N_02 cups .", "Numbers": "8.0 2.5", "Answer": 10.5}, ELEVEN]},
         [{"question": "Has 8 cups and 2.5 more .", "answer": "10.5"}, {"question": "10 of 2"}]),
        ("webqs", "stanfordnlp/web_questions", {("test", None): [{"question": "a?", "answers": ["A", "B"]}]},
         [{"id": "1", "question": "a?", "answers": ["A", "B"]}]),
        ("nq", "google-research-datasets/nq_open", {("validation", "nq_open"): [{"question": "b", "answer": ["C"]}]},
         [{"id": "1", "answers": ["C"]}]),
        ("triviaqa", "mandarjoshi/trivia_qa", {("validation", "unfiltered.nocontext"): [TRIVIA]},
         [{"id": "tc_1", "answers": ["Beetles", "The Beetles", "beetles"]}]),
        ("lama_squad", LAMA, {("train", "squad"): [MASKED]}, [{"text": "It is", "answers": ["blue"]}]),
        # The hub's rows are sentences: a fact may have several, and no uuid.
        ("lama_trex", LAMA,
         {("train", "trex"): [{**FACT, "predicate_id": "P36"}] * 2 + [{**FACT, "predicate_id": "P190"}]},
         [{"id": "t1", "family": "P36", "text": "The capital of Utopia is"}, {"family": "P190"}]),
        ("lama_google_re", LAMA,
         {("train", "google_re"): [{**PERSON, "uuid": None, "obj_label": town} for town in ("Ulm", "Ulm", "Bonn")]},
         [{"id": "place_of_birth Ada Bell", "answers": ["Ulm"]}, {"id": "place_of_birth Ada Bell#2", "answers": ["Bonn"]}]),
    ],
)  # fmt: skip
def test_the_rows_of_the_hub_become_the_same_documents(
    hub: Hub, name: str, path: str, rows: dict[tuple[str, str | None], list[Row]], expected: list[Row]
) -> None:
    for (split, config), of_split in rows.items():
        hub.add(path, split, of_split, config)
    check(documents(name), expected)
    assert [asked["split"] for asked in hub.asked] == [split for split, _ in rows]
    assert all(re.fullmatch("[0-9a-f]{40}|refs/convert/parquet", asked["revision"]) for asked in hub.asked)


def test_an_authors_file_is_read_from_its_address(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "test.json").write_text(json.dumps(PLAYER))
    monkeypatch.delenv("TOOLFORMER_DATA_DIR", raising=False)
    hub = {"path": "json", "split": "test", "data_files": {"test": str(tmp_path / "test.json")}}
    check(documents("templama", hub=hub), [{"current_date": "2014-07-01"}])


def test_the_environment_names_a_data_dir(tmp_path: Path, hub: Hub, monkeypatch: Patch) -> None:
    monkeypatch.setenv("TOOLFORMER_DATA_DIR", str(tmp_path))
    write_task(tmp_path, "svamp", [SVAMP])
    assert svamp()["test"]["id"] == ["chal-1"]
    hub.add("p", "test", [{"Body": "A.", "Question": "B?", "Answer": "1"}])
    assert svamp(data_dir=None, hub={"path": "p", "split": "test"})["test"]["answer"] == ["1.0"]


def test_an_unreachable_hub_names_the_mend(hub: Hub) -> None:
    with pytest.raises(UserError, match="ChilleD/SVAMP cannot be read from the hub .*; set paths.data_dir "):
        documents("svamp")
    with pytest.raises(
        UserError,
        match="its task file has no metadata.hub with path and split; add it, or set paths.data_dir",
    ):
        svamp(hub={})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("svamp", '{"id": 1}\n{"id"\n', r"line 1: no text in field `body` \(the row has id\); fix the row"),
        ("svamp", '{"body": "a", "question": "b"}\n', r"no value in field `answer` \(the row has body, question\)"),
        ("svamp", json.dumps(SVAMP) + "\n{oops\n", "line 2: malformed JSON"),
        ("svamp", "", "no documents are left"),
        ("webqs", '{"question": "a", "answer": "b"}', "line 1: no list of texts in field `answers`"),
        ("lama_google_re", json.dumps({**PERSON, "pred": "/x/y"}), "`pred` is '/x/y', none of place_of_birth"),
        ("templama", json.dumps({**PLAYER, "date": "14 May"}), "line 1: field `date` is '14 May', not a year"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    write_task(tmp_path, name, [], text)
    with pytest.raises(UserError, match=message):
        documents(name, data_dir=str(tmp_path))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = write_task(tmp_path, "svamp", [{**SVAMP, "id": n} for n in range(500)])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UserError, match=r"svamp\.jsonl\.gz, after line \d+: broken off"):
        svamp(data_dir=tmp_path)
    with pytest.raises(UserError, match="there is no folder"):
        asdiv(data_dir=tmp_path / "nowhere")
    with pytest.raises(UserError, match="heldout.path: there is no file .*; name a file"):
        heldout(heldout_path=str(tmp_path / "nothing.jsonl"))


@pytest.mark.parametrize(
    ("question", "numbers", "filled"),
    [
        ("number_0 less number_1 .", [15.0, 7.5], "15 less 7.5 ."),
        ("temp_1 less temp_0 .", [1, 2], "2 less 1 ."),
        ("NUM_0 less N_01 .", "1 2", "1 less 2 ."),
        ("Number 0 and a number , 3.5 .", None, "Number 0 and a number , 3.5 ."),
        *(
            (question, "1 2", None)
            for question in ("number2 .", "NUM less NUM .", "temp_a less [NUM] .", "[NUM0] less [NUM1] .")
        ),
        ("temp_0 less temp_1 .", None, None),
        *(
            (question, "1 2", None)
            for question in ("#0 less #1 .", "{0} less {1} .", "N0 less N1 .", "<num0> less 1 .")
        ),
        ("Team #1 ran 3 of (2) miles on the N1 .", None, "Team #1 ran 3 of (2) miles on the N1 ."),
    ],
)
def test_masked_numbers_are_put_back_or_the_row_is_dropped(
    tmp_path: Path, question: str, numbers: object, filled: str | None
) -> None:
    masked = {"question": question, "numbers": numbers, "answer": 8.0, "solutions": [8.0]}
    write_task(tmp_path, "mawps", [MAWPS[0], masked])
    write_task(tmp_path, "svamp", [SVAMP, {**masked, "body": "A pack."}])
    for name in ("mawps", "svamp"):
        found = [row["question"] for row in documents(name, data_dir=str(tmp_path))]
        assert found[1:] == ([filled] if filled else [])


def test_a_file_of_which_no_row_can_be_used_says_why(tmp_path: Path) -> None:
    rows: list[Row] = [{"question": "NUM less NUM .", "solutions": [8.0]}] * 3
    path = write_task(tmp_path, "mawps", rows)
    with pytest.raises(UserError) as caught:
        documents("mawps", data_dir=str(tmp_path))
    expected = f"mawps: none of 3 rows can be used: 3 masked numbers in the question (first: {path}, line 1)"
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("published", "answer", "reason"),
    [
        ("1,260 (square m)", "1,260", ""), ("2 1/2 (cups)", "2 1/2", ""), ("1/0", None, "not a number"),
        ("-3 (degrees)", "-3", ""), (["98"], "98", ""), ("3, 4", None, "several answers"),
        ("10:30 (AM)", None, "ratio or time"), (float("nan"), None, "not a number"), (None, None, "no answer"),
        (True, None, "no answer"),
    ],
)  # fmt: skip
def test_published_answers(published: Any, answer: str | None, reason: str) -> None:
    assert numeric_answer(published) == (answer, reason)


def test_wikitext_from_the_hub_is_put_together(hub: Hub) -> None:
    """Articles begin at headings between blank lines."""
    text = " \n = A = \n \n one \n = 1 henry and C = \n 1 farad \n \n = = S = = \n \n \n = B = \n \n two \n"
    lines = [line.removesuffix(" \n") if line.isspace() else line for line in text.splitlines(True)]
    hub.add("Salesforce/wikitext", "test", [{"text": line} for line in lines], "wikitext-2-raw-v1")
    found = documents("wikitext_perplexity")
    assert [row["text"] for row in found][1:] == [" = B = \n\n two \n"]
    assert "".join(row["text"] for row in found).split() == text.split()


def test_heldout_texts_have_ids_of_their_own(tmp_path: Path) -> None:
    rows: list[Row] = [{"id": name, "text": f"Text {n}."} for n, name in enumerate(["a", "a", "a#2", None])]
    path = write(tmp_path, "held", [*rows, {"text": "Text 3."}, {"text": " "}])
    found = heldout(heldout_path=str(path))["test"]
    named = next(iter(FileCorpus(write(tmp_path, "one", [{"text": "Text 3."}])))).doc_id
    assert found["id"] == ["a", "a#2", "a#2#2", named, f"{named}#2"]


def test_heldout_texts_may_be_given() -> None:
    given = [Document("b", "Two."), Document("a", "One."), Document("a", "Three.")]
    found = heldout(heldout=given)["test"]
    assert (found["id"], found["text"]) == (["b", "a", "a#2"], ["Two.", "One.", "Three."])


def test_subsets(tmp_path: Path) -> None:
    write_task(tmp_path, "svamp", [{**SVAMP, "id": str(n)} for n in range(40)])
    write_task(tmp_path, "wikitext_perplexity", [{"text": f" = A = \n \n {n} \n"} for n in range(3)])
    some = svamp(data_dir=tmp_path, subset=5, seed=1)["test"]["id"]
    assert len(some) == 5 and some == sorted(some, key=int)
    assert some == svamp(data_dir=tmp_path, subset=5, seed=1, perplexity_subset=1)["test"]["id"]
    assert some != svamp(data_dir=tmp_path, subset=5, seed=2)["test"]["id"]
    assert len(wikitext(data_dir=tmp_path, subset=5, perplexity_subset=1)["test"]) == 1
    families = dateset(subset=20)["test"]["family"]
    assert len(families) == 20 and len(set(families)) == 7
