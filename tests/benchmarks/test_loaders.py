"""Benchmarks read from data folders that the tests write, from a stand-in for the hub, and from nowhere."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import datasets
import pytest

from benchmarks.loaders.math import asdiv, mawps, numeric_answer, svamp
from benchmarks.loaders.perplexity import heldout, wikitext
from benchmarks.loaders.qa import webqs
from benchmarks.loaders.temporal import dateset
from tests.benchmarks.conftest import Hub, documents
from toolformer.data import FileCorpus
from toolformer.errors import UserError

Row = dict[str, Any]

SVAMP = {"id": "chal-1", "body": "Each pack costs 76 dollars.", "question": "How much?", "answer": 76.0}
ASDIV = [
    {"id": "nluds-0001", "body": "Two and 7.", "question": "How many?", "answer": "9 (apples)"},
    {"id": "nluds-0002", "body": "A recipe.", "question": "Which ratio?", "answer": "2:1"},
    {"id": "nluds-0003", "body": "Two boxes.", "question": "How many each?", "answer": "3 (red); 4 (blue)"},
    {"id": "nluds-0004", "body": "A race.", "question": "Who won?", "answer": "Tim"},
    {"id": "nluds-0005", "body": "A pizza.", "question": "How much is left?", "answer": "1/2 (pizza)"},
]
MAWPS = [
    {"id": 1, "question": " 56 books on 9 shelves? ", "equations": ["56*9=x"], "solutions": [504.0]},
    {"id": 2, "question": "41 and 57 trees?", "equations": ["X = 41 + 57"], "solutions": ["98"]},
    {"id": 3, "question": "Two numbers?", "equations": ["x+y=3"], "solutions": [1, 2]},
]


def write(folder: Path, name: str, rows: list[Row], text: str | None = None) -> Path:
    path = folder / f"{name}.jsonl.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(text if text is not None else "".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TOOLFORMER_DATA_DIR", raising=False)
    write(tmp_path, "svamp/svamp", [SVAMP])
    write(tmp_path, "asdiv/asdiv", ASDIV)
    write(tmp_path, "mawps/mawps_full", MAWPS)
    write(
        tmp_path,
        "wikitext2/test_raw",
        [{"text": " \n = Du Fu = \n \n A poet . \n"}, {"text": " = B = \n \n x \n"}],
    )
    return tmp_path


def test_svamp(data_dir: Path) -> None:
    found = svamp(data_dir=str(data_dir), config_source="x", pretrained="y")["test"]
    assert found.to_list() == [
        {"id": "chal-1", "context": "Each pack costs 76 dollars.", "question": "How much?", "answer": "76.0"}
    ]


def test_asdiv_keeps_problems_with_one_number(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "benchmarks"):
        found = asdiv(data_dir=data_dir)["test"]
    assert found["answer"] == ["9", "1/2"] and found["id"] == ["nluds-0001", "nluds-0005"]
    assert "asdiv: 5 rows read, 2 kept" in caplog.text
    for reason in ("'ratio or time': 1", "'several answers': 1", "'not a number': 1"):
        assert reason in caplog.text
    assert f"asdiv: first dropped: not a number: {data_dir}/asdiv/asdiv.jsonl.gz, line 4" in caplog.messages


def test_mawps(data_dir: Path) -> None:
    found = mawps(data_dir=data_dir)["test"]
    assert found["answer"] == ["504.0", "98"] and found["context"] == ["", ""]
    assert found["question"][0] == "56 books on 9 shelves?"


def test_the_environment_names_a_data_dir_and_null_is_the_hub(
    data_dir: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLFORMER_DATA_DIR", str(data_dir))
    assert wikitext()["test"]["page"][1] == " = B = \n \n x \n"
    hub.add("p", "test", [{"question": "q?", "answers": ["a"]}] * 2)
    assert len(webqs(data_dir=None, hub={"path": "p", "split": "test"})["test"]) == 2


def test_a_data_dir_or_size_that_is_not_there_is_named(data_dir: Path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        asdiv(data_dir=data_dir / "nowhere")
    with pytest.raises(UserError, match="wikitext103"):
        wikitext(data_dir=data_dir, wikitext=103)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": 1}\n{"id"\n', r"line 1: no text in field `body` \(the row has id\); fix the row"),
        (json.dumps({**SVAMP, "body": "a \ud83d"}), "line 1: half a character"),
        (json.dumps({**SVAMP, "id": "\udc00"}), "line 1: half a character"),
        ('{"body": "a", "question": "b"}\n', r"no field `answer` \(the row has body, question\)"),
        (json.dumps(SVAMP) + "\n{oops\n", "line 2: malformed JSON"),
        ("[]\n", "line 1: not a JSON object"),
        ("", "no documents are left"),
    ],
)
def test_a_bad_row_is_named(data_dir: Path, text: str, message: str) -> None:
    write(data_dir, "svamp/svamp", [], text)
    with pytest.raises(UserError, match=message):
        svamp(data_dir=data_dir)


def test_a_cut_off_file_is_named(data_dir: Path) -> None:
    path = write(data_dir, "svamp/svamp", [{**SVAMP, "id": n} for n in range(500)])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UserError, match=r"svamp\.jsonl\.gz: the file cannot be read"):
        svamp(data_dir=data_dir)


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


def test_svamp_and_asdiv_from_the_hub(hub: Hub) -> None:
    hub.add("ChilleD/SVAMP", "train", [{"ID": "chal-7", "Body": "A.", "Question": "B?", "Answer": "76.0"}])
    hub.add("ChilleD/SVAMP", "test", [{"ID": "chal-8", "Body": "C.", "Question": "D?", "Answer": "3"}])
    hub.add("EleutherAI/asdiv", "validation", [{"body": "A.", "question": "B?", "answer": "9 (apples)"}])
    assert [row["id"] for row in documents("svamp")] == ["chal-7", "chal-8"]
    assert [row["answer"] for row in documents("asdiv")] == ["9"]
    assert [asked["split"] for asked in hub.asked] == ["train", "test", "validation"]
    assert all(len(asked["revision"]) == 40 for asked in hub.asked)


def test_mawps_from_the_hub_has_its_numbers_back(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    numbers = {"Question": " ".join(f"N_{n:02}" for n in range(11)), "Answer": 6.0}
    rows = [
        {"Question": "Mary has N_00 cups and N_01 more .", "Numbers": "8.0 2.5", "Answer": 10.5},
        {"Question": "Mary has N_02 cups .", "Numbers": "8.0 2.5", "Answer": 10.5},
        {**numbers, "Numbers": " ".join(map(str, range(11)))},
    ]
    hub.add("mwpt5/MAWPS", "train", rows)
    found = documents("mawps")
    assert [row["question"] for row in found] == ["Mary has 8 cups and 2.5 more .", "0 1 2 3 4 5 6 7 8 9 10"]
    assert [row["answer"] for row in found] == ["10.5", "6.0"]
    assert [record.message for record in caplog.records if record.levelname == "WARNING"][-1] == (
        "mawps: 3 rows read, but the published set has 2373"
    )


@pytest.mark.parametrize("size", ["2", "103"])
def test_wikitext_from_the_hub_is_put_together(hub: Hub, size: str) -> None:
    """Articles begin at headings between blank lines."""
    text = " \n = A = \n \n one \n = 1 henry and C = \n 1 farad \n \n = = S = = \n \n \n = B = \n \n two \n"
    lines = [line.removesuffix(" \n") if line.isspace() else line for line in text.splitlines(True)]
    hub.add("Salesforce/wikitext", "test", [{"text": line} for line in lines], f"wikitext-{size}-raw-v1")
    found = documents("wikitext_perplexity", wikitext=size)
    assert [row["text"] for row in found][1:] == [" = B = \n\n two \n"]
    assert "".join(row["text"] for row in found).split() == text.split()


def test_an_unreachable_hub_names_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.delenv("TOOLFORMER_DATA_DIR", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(
        UserError, match=r"ChilleD/SVAMP cannot be read from the hub .*; set paths.data_dir "
    ) as error:
        documents("svamp")
    assert "\n" not in str(error.value)
    with pytest.raises(
        UserError, match="svamp: no paths.data_dir .*, and metadata.hub of the task names no path"
    ):
        svamp()


def test_heldout_texts_are_counted_and_have_ids_of_their_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[Row] = [{"id": name, "text": f"Text {n}."} for n, name in enumerate(["a", "a", "a#2", None])]
    path = write(tmp_path, "held", [*rows, {"text": "Text 3."}, {"text": " "}])
    with caplog.at_level(logging.INFO, "benchmarks"):
        found = heldout(heldout_path=str(path))["test"]
    named = next(iter(FileCorpus(write(tmp_path, "one", [{"text": "Text 3."}])))).doc_id
    assert found["id"] == ["a", "a#2", "a#2#2", named, f"{named}#2"]
    assert "heldout_perplexity: 6 rows read, 5 kept, dropped: {'empty text': 1}" in caplog.messages
    with pytest.raises(UserError, match="heldout_path: there is no file .*; name a JSON Lines file"):
        heldout(heldout_path=str(tmp_path / "nothing.jsonl"))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"subset": 5, "seed": 1.5}, "seed is 1.5; it must be a whole number$"),
        ({"subset": 0}, "subset is 0; it must be a whole number of at least 1$"),
        ({"subset": True}, "subset is True; it must be a whole number of at least 1$"),
        ({"dateset_seed": "x"}, "dateset_seed is 'x'; it must be a whole number$"),
    ],
)
def test_a_value_of_another_type_is_told_by_its_key(metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        dateset(**metadata)


def test_subsets(data_dir: Path) -> None:
    write(data_dir, "svamp/svamp", [{**SVAMP, "id": str(n)} for n in range(40)])
    some = svamp(data_dir=data_dir, subset=5, seed=1)["test"]["id"]
    assert len(some) == 5 and some == sorted(some, key=int)
    assert some == svamp(data_dir=data_dir, subset=5, seed=1)["test"]["id"]
    assert some != svamp(data_dir=data_dir, subset=5, seed=2)["test"]["id"]
    assert len(wikitext(data_dir=data_dir, subset=5, perplexity_subset=1)["test"]) == 1
    assert len(svamp(data_dir=data_dir, subset=5, perplexity_subset=1)["test"]) == 5
    families = dateset(subset=20)["test"]["family"]
    assert len(families) == 20 and len(set(families)) == 7
