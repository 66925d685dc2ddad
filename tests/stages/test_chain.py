"""Annotation from left to right as a stage: shards decide nothing, and what was done is found again."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.conftest import smoke_words
from toolformer.cli import main
from toolformer.results import Results, Run


def annotated(root: Path, *overrides: str) -> Run:
    words = ["generate", *smoke_words(root), "propose.chain=true", "corpus.limit=2", *overrides]
    assert main(words) == 0
    return Results(root).runs("generate")[0]


def texts(run: Run) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run.folder / "dataset_augmented.parquet").to_pylist()
    return rows


def test_the_texts_of_a_chain_do_not_depend_on_its_shards(tmp_path: Path) -> None:
    together, apart = (annotated(tmp_path / size, f"generate.shard_size={size}") for size in ("2", "1"))
    assert [row["text"] for row in texts(together)] == [row["text"] for row in texts(apart)]
    assert any(len(row["calls"]) > 1 for row in texts(together)), "a call was kept before another"
    again = annotated(tmp_path / "2", "generate.shard_size=2")
    assert again.id == together.id
