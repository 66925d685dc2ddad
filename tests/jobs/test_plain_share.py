"""`trainer.plain_share`: texts in which no call was kept, among the training texts."""

import logging
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.build import Refused, smoke_words
from tests.processes import finished, run_stage
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.jobs import steps
from toolformer.jobs.config import Config, compose, validate
from toolformer.results import Results, Run
from toolformer.training import trainer

FEW = ["corpus.limit=16", "tool.calculator.filter_threshold=0.3", "tool.calendar.filter_threshold=0.3"]
"""More texts, of which some keep no call."""


def config(root: Path, *more: str) -> Config:
    return validate(compose("train", [*smoke_words(root), *more]))


def rows(run: Run, name: str) -> list[str]:
    return [row["text"] for row in pq.read_table(run.folder / f"{name}.parquet").to_pylist()]


@pytest.fixture(scope="module")
def annotated(pipeline: Path) -> Run:
    assert main(["generate", *smoke_words(pipeline), *FEW]) == 0
    run = Results(pipeline).runs("generate")[0]
    kept, without = len(rows(run, "dataset_plain")), len(rows(run, "documents_without_calls"))
    assert kept >= 2 and without > kept, (kept, without)
    return run


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The texts of each training."""
    texts: list[list[Any]] = []
    train = trainer.train

    def spied(model: str, given: list[Any], *others: Any, **options: Any) -> Any:
        texts.append(given)
        return train(model, given, *others, **options)

    monkeypatch.setattr(trainer, "train", spied)
    return texts


def test_texts_without_calls_are_mixed_in_by_seed(
    pipeline: Path, annotated: Run, given: list[list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    plain, without = rows(annotated, "dataset_plain"), rows(annotated, "documents_without_calls")
    n = len(plain)
    words = [f"dataset={annotated.id}", "trainer.plain_share=0.5", "trainer.limit_per_tool=1000"]
    runs: list[Run] = [
        run_stage("train", config(pipeline, *words, *more)) for more in ([], ["data=plain"], ["seed=1"])
    ]
    calls, cc, other = given
    assert runs[0].metrics["texts"] == 2 * n and runs[0].metrics["plain_texts"] == n
    assert f"{n} texts of C* and {n} in which no call was kept" in caplog.text
    assert [text.plain for text in calls[:n]] == cc[:n] == plain
    assert calls[n:] == cc[n:] and len(set(calls[n:])) == n
    assert set(calls[n:]) <= set(without) - set(plain)
    assert set(other[n:]) != set(calls[n:]) and len(other) == 2 * n
    assert finished("train", config(pipeline, *words)) == runs[0]
    assert len({run.id for run in runs}) == 3


def test_a_document_is_plain_once_if_no_annotation_kept_a_call(
    pipeline: Path, annotated: Run, given: list[list[Any]]
) -> None:
    """The smallest experiment kept calls in some of the same documents."""
    first = next(run for run in Results(pipeline).runs("generate") if run.id != annotated.id)
    kept = rows(first, "dataset_plain") + rows(annotated, "dataset_plain")
    assert set(rows(first, "dataset_plain")) & set(rows(annotated, "documents_without_calls"))
    there = set(rows(annotated, "documents_without_calls")) - set(kept)
    largest = len(there) / (len(there) + len(kept))
    words = [f"dataset={annotated.id}+{first.id}", f"trainer.plain_share={largest:.6f}"]
    run: Run = run_stage("train", config(pipeline, *words))
    (texts,) = given
    further = texts[len(kept) :]
    assert len(further) == run.metrics["plain_texts"] > 0 and set(further) == there


def test_too_few_are_refused_with_the_largest_share(pipeline: Path, annotated: Run, refused: Refused) -> None:
    n = len(rows(annotated, "dataset_plain"))
    there = len(rows(annotated, "documents_without_calls"))
    words = [*smoke_words(pipeline), f"dataset={annotated.id}"]
    said = refused("train", *words, "trainer.plain_share=0.99")
    assert f"trainer.plain_share is 0.99, which for {n} texts needs {99 * n} texts without calls" in said
    assert f"only {there} exist: set it to " in said
    largest = said.partition("set it to ")[2].split()[0]
    assert main(["train", *words, f"trainer.plain_share={largest}"]) == 0
    assert Results(pipeline).runs("train")[0].metrics["plain_texts"] == there


def test_it_decides_a_training_but_not_where_it_is_off(root: Path) -> None:
    (run,) = Results(root).runs("train", data="augmented")
    off, on = (
        steps.deciding_settings(config(root, f"trainer.plain_share={share}"), "train") for share in (0, 0.5)
    )
    assert "plain_share" not in off["trainer"] and on["trainer"]["plain_share"] == 0.5
    assert (
        finished("train", config(root)) == run
        and finished("train", config(root, "trainer.plain_share=0.5")) is None
    )


def test_impossible_values_are_named(root: Path) -> None:
    with pytest.raises(UserError, match=r"trainer\.plain_share"):
        config(root, "trainer.plain_share=1")
