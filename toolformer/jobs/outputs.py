"""Outputs of finished runs for later stages: the texts of an annotation, the model of a training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolformer.annotation.results import HELDOUT, check_complete
from toolformer.data import Document
from toolformer.data.parquet import read_table
from toolformer.errors import UserError
from toolformer.results import Results, Run
from toolformer.storage import safe_join


def model_folder(run: Run) -> Path:
    """The model of a train run. UserError if it is gone."""
    folder = safe_join(run.folder, str(run.facts.get("model", "model")))
    if not (folder / "config.json").is_file():
        raise UserError(
            f"checkpoint: the model of run {run.id[:8]} is no longer at {folder}; train it again: {run.command}"
        )
    return folder


def read_dataset(results: Results, run: Run, name: str) -> list[dict[str, Any]]:
    """The rows of C* (`dataset_augmented.parquet`) or C (`dataset_plain.parquet`) of a finished annotation.

    UserError if it is gone or damaged.
    """
    path = results.artifact(run, name)
    try:
        check_complete(path)
        rows: list[dict[str, Any]] = read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        line = str(error).partition("\n")[0]
        raise UserError(
            f"{path} cannot be read ({line:.200}); run its command again: {run.command}"
        ) from error
    return rows


def read_heldout(results: Results, annotations: Sequence[Run]) -> list[Document]:
    """The texts that these annotations held out of their corpora, each once. UserError if they are gone or damaged."""
    rows = [row for run in annotations for row in read_dataset(results, run, HELDOUT)]
    if not rows:
        ids = " and ".join(run.id[:8] for run in annotations)
        raise UserError(
            f"heldout: generate run {ids} held no text out of its corpus; name held-out texts: corpus@heldout=jsonl heldout.path=FILE"
        )
    texts = {row["text"]: row["doc_id"] for row in reversed(rows)}
    return [Document(doc_id, text) for text, doc_id in reversed(texts.items())]
