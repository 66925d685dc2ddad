"""Every format holds C* as it promises: the lossless ones our training's tokens and labels, the others the texts and calls."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from datasets import load_dataset

from tests.conftest import Capture, Refused, tiny_tokenizer
from tests.export.conftest import rows_of
from tests.training.test_tokens import sentencepiece_like
from toolformer.calls import ApiCall, linearise, parse
from toolformer.cli import main
from toolformer.export import FORMATS, lossless
from toolformer.export.formats import Source
from toolformer.results import Results, Run
from toolformer.stages.train import annotated_text
from toolformer.training.data import PackedTexts, single
from toolformer.training.tokens import tokenize

ROWS = rows_of(1000)


def write(name: str, rows: Sequence[Any], folder: Path, tokenizer: Any = None, results: bool = True) -> Path:
    """The file of a format with these rows."""
    path = folder / Path(FORMATS[name].file).name
    FORMATS[name].write(Source(folder, rows, lambda: tokenizer, results), path)
    return path


def trained(rows: Sequence[Any], tokenizer: Any, results: bool) -> list[tuple[list[int], list[int]]]:
    """Token ids and labels, a text per sequence, as training makes them."""
    documents = tokenize([annotated_text(row) for row in rows], tokenizer)
    layout = single(documents.lengths, range(len(documents)), max(documents.lengths))
    packed = PackedTexts(documents, layout, results)
    return [(packed[n]["input_ids"].tolist(), packed[n]["labels"].tolist()) for n in range(len(packed))]


def axolotl(segments: Sequence[Any], tokenizer: Any) -> tuple[list[int], list[int]]:
    """How axolotl's `input_output` documents that segments are read: each alone, nothing added, false is -100."""
    ids: list[int] = []
    labels: list[int] = []
    for segment in segments:
        tokens = tokenizer(segment["text"], add_special_tokens=False)["input_ids"]
        ids += tokens
        labels += tokens if segment["label"] else [-100] * len(tokens)
    return ids, labels


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


@pytest.mark.parametrize("results", [True, False])
def test_trl_rows_are_what_training_makes(results: bool, tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    rows = pq.read_table(write("trl", ROWS, tmp_path, tokenizer, results)).to_pylist()
    made = [
        (row["input_ids"], [token if mask else -100 for token, mask in zip(*row.values(), strict=True)])
        for row in rows
    ]
    assert made == trained(ROWS, tokenizer, results)


@pytest.mark.parametrize("results", [True, False])
def test_axolotl_rows_are_what_training_makes(results: bool, tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    made = [
        axolotl(row["segments"], tokenizer)
        for row in lines(write("axolotl", ROWS, tmp_path, tokenizer, results))
    ]
    expected = trained(ROWS, tokenizer, results)
    assert [ids for ids, _ in made] == [ids for ids, _ in expected], "no row is left out"
    assert [labels[1:] for _, labels in made] == [labels[1:] for _, labels in expected]
    # The first token is predicted by nothing; alone it may be half of a character.
    whole = [n for n, (ids, _) in enumerate(expected) if "\ufffd" not in tokenizer.decode(ids[:1])]
    assert len(whole) > 500 and all(made[n] == expected[n] for n in whole)


def test_axolotl_segments_are_the_text(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    for row, made in zip(ROWS, lines(write("axolotl", ROWS, tmp_path, tokenizer)), strict=True):
        text = "".join(segment["text"] for segment in made["segments"])
        assert text == row["text"] + tokenizer.eos_token


def test_rows_that_no_segments_give_are_left_out_and_counted(tmp_path: Path) -> None:
    """A tokenizer that puts a blank before each text cannot begin a segment inside a word."""
    tokenizer = sentencepiece_like()
    rows = rows_of(40)
    source = Source(tmp_path, rows, lambda: tokenizer, False)
    written = FORMATS["axolotl"].write(source, tmp_path / "rows.jsonl")
    assert written.rows + sum(written.skipped.values()) == 40 and all(written.skipped.values())
    expected = [(ids, labels[1:]) for ids, labels in trained(rows, tokenizer, False)]
    for row in lines(tmp_path / "rows.jsonl"):
        ids, labels = axolotl(row["segments"], tokenizer)
        assert (ids, labels[1:]) in expected


def rebuilt(turns: Sequence[tuple[str, Any]]) -> tuple[str, list[tuple[int, ApiCall]]]:
    """The plain text, and the calls with their positions, of (role, content) turns."""
    plain, calls = "", []
    for role, content in turns:
        if role == "call":
            calls.append((len(plain), content))
        else:
            plain += content
    return plain, calls


def kept(row: Any) -> tuple[str, list[tuple[int, ApiCall]]]:
    calls = [(call["position"], parse(call["written"])) for call in row["calls"]]
    return row["plain"], [(position, ApiCall(call.tool, call.input, call.result)) for position, call in calls]


def test_messages_hold_every_text_and_call(tmp_path: Path) -> None:
    write("messages", ROWS, tmp_path)
    for row, made in zip(ROWS, load_dataset(str(tmp_path), split="train"), strict=True):
        assert {tool["function"]["name"] for tool in made["tools"]} == {"Calculator", "QA", "Calendar"}
        turns: list[tuple[str, Any]] = []
        for message in made["messages"]:
            if message["role"] == "tool":
                turns[-1] = ("call", ApiCall(turns[-1][1].tool, turns[-1][1].input, message["content"]))
                continue
            turns.append((message["role"], message["content"]))
            for call in message.get("tool_calls", ()):
                function = call["function"]
                turns.append(("call", ApiCall(function["name"], "".join(function["arguments"].values()))))
        assert rebuilt(turns) == kept(row)


def test_arguments_keep_the_keys_of_their_tool(tmp_path: Path) -> None:
    """Arrow alone would give each the keys of all."""
    write("messages", ROWS[:50], tmp_path)
    keys = {
        (call["function"]["name"], *call["function"]["arguments"])
        for row in load_dataset(str(tmp_path), split="train")
        for message in row["messages"]
        for call in message.get("tool_calls", ())
    }
    assert keys == {("Calculator", "expression"), ("QA", "question"), ("Calendar",)}


def test_sharegpt_alternates_and_holds_every_call(tmp_path: Path) -> None:
    """As LLaMA-Factory documents it: human or observation at odd places, gpt or function_call at even ones."""
    made = lines(write("llamafactory", ROWS, tmp_path))
    info = json.loads((tmp_path / "dataset_info.json").read_text())["toolformer"]
    assert (tmp_path / info["file_name"]).is_file() and info["formatting"] == "sharegpt"
    expected = [(row, index) for row in ROWS for index in range(len(row["calls"]))]
    for (row, index), conversation in zip(expected, made, strict=True):
        turns = conversation[info["columns"]["messages"]]
        roles = [turn[info["tags"]["role_tag"]] for turn in turns]
        assert roles == [
            info["tags"][f"{name}_tag"] for name in ("user", "function", "observation", "assistant")
        ]
        human, request, observation, gpt = (turn[info["tags"]["content_tag"]] for turn in turns)
        plain, calls = kept(row)
        position, call = calls[index]
        called = json.loads(request)
        assert human == plain[:position] and observation == call.result
        assert (called["name"], "".join(called["arguments"].values())) == (call.tool, call.input)
        assert gpt == plain[position : calls[index + 1][0] if index + 1 < len(calls) else None]
        assert {tool["name"] for tool in json.loads(conversation["tools"])} >= {called["name"]}


@pytest.mark.parametrize("name", FORMATS)
def test_an_exported_folder_is_read_by_load_dataset(
    name: str, results: Results, annotation: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    words = [f"paths.root={results.root}", f"format={name}"]
    assert main(["export", "dataset", annotation.id, str(folder), *words]) == 0
    data = load_dataset(str(folder), split="train")
    assert len(data) >= 40
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "gain below the threshold" in card and FORMATS[name].meaning in card and annotation.id in card
    assert "texts.jsonl" in card and "/home/me" not in card, "no folder of this machine"
    if name == "datasets":
        assert annotation.digests["dataset_augmented.parquet"] in card
        assert {call["gain"] for call in data[0]["calls"]} == {1.5}
        assert all(linearise(parse(call["written"])) in data[0]["text"] for call in data[0]["calls"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dataset", "latest", "OUT", "format=axolotol"], "did you mean axolotl?"),
        (["dataset", "123456", "OUT"], "there is no run 123456"),
        (["dataset", "latest", "FULL"], "is not an empty folder"),
        (["model", "latest", "OUT"], "there is no finished train run"),
        (["dataset", "latest", "OUT", "data=plain"], "data=plain is not exported"),
        (["dataset", "latest", "OUT", "--public"], "are for --push"),
        (["dataset", "latest", "OUT", "--push", "a/../b"], "is not a repository name"),
        (["dataset", "latest", "OUT", "--push", "me/data"], "set the environment variable HF_TOKEN"),
    ],
)
def test_wrong_words_are_refused_and_nothing_is_written(
    words: list[str], message: str, results: Results, annotation: Run, tmp_path: Path, refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("HF_TOKEN", raising=False)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    names = {"OUT": str(tmp_path / "out"), "FULL": str(tmp_path / "full")}
    line = refused("export", *(names.get(word, word) for word in words), f"paths.root={results.root}")
    assert message in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "runs"]
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]


def test_results_leave_the_loss_by_the_key_of_training(
    results: Results, annotation: Run, tmp_path: Path, capsys: Capture
) -> None:
    shares = []
    for name, words in (("in", []), ("out", ["trainer.train_on_results=false"])):
        words = [*words, f"paths.root={results.root}", "format=trl"]
        assert main(["export", "dataset", "latest", str(tmp_path / name), *words]) == 0
        masks = [
            row["assistant_masks"]
            for row in pq.read_table(tmp_path / name / "data" / "train.parquet").to_pylist()
        ]
        shares.append(sum(map(sum, masks)) / sum(map(len, masks)))
    assert shares[0] > 0.9 > shares[1]


def test_a_segment_is_never_one_that_reads_otherwise() -> None:
    tokenizer = tiny_tokenizer()
    ids = tokenizer("a", add_special_tokens=False).input_ids * 3
    assert lossless.segments(ids, [-100, *ids[1:]], tokenizer) is not None
    half = tokenizer("😀", add_special_tokens=False).input_ids[:1]
    assert lossless.segments(half, half, tokenizer) is None
