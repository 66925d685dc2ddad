"""Every format holds C* as it promises, and `load_dataset` reads it with its card."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from datasets import load_dataset

from tests.build import Capture, Refused, tiny_tokenizer
from tests.export.build import rows_of, trained, write
from toolformer.calls import ApiCall, linearise
from toolformer.cli import main
from toolformer.export import FORMATS
from toolformer.results import Results, Run

ROWS = rows_of(1000)


@pytest.mark.parametrize("results", [True, False])
def test_trl_rows_are_what_training_makes(results: bool, tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    rows = pq.read_table(write("trl", ROWS, tmp_path, tokenizer, results)).to_pylist()
    made = [
        (row["input_ids"], [token if mask else -100 for token, mask in zip(*row.values(), strict=True)])
        for row in rows
    ]
    assert made == trained(ROWS, tokenizer, results)


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
    if name == "datasets":
        assert annotation.digests["dataset_augmented.parquet"] in card
        assert {call["gain"] for call in data[0]["calls"]} == {1.5}
        assert all(linearise(ApiCall.of_row(call)) in data[0]["text"] for call in data[0]["calls"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dataset", "latest", "OUT", "format=tr"], "did you mean trl?"),
        (["dataset", "123456", "OUT"], "there is no run 123456"),
        (["dataset", "latest", "FULL"], "is not an empty folder"),
        (["model", "latest", "OUT"], "there is no finished train run"),
        (["dataset", "latest", "OUT", "data=plain"], "data=plain is not exported"),
    ],
)
def test_wrong_words_are_refused_and_nothing_is_written(
    words: list[str], message: str, results: Results, annotation: Run, tmp_path: Path, refused: Refused
) -> None:
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
