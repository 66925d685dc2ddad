"""A finished annotation, training and evaluations, made up: what export reads, without running a stage."""

from pathlib import Path

import pytest

from tests.export.build import annotate, evaluate, rows_of, train
from toolformer.results import Results, Run


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "runs")


@pytest.fixture
def annotation(results: Results, tiny_folder: Path) -> Run:
    return annotate(results, rows_of(40), tiny_folder)


@pytest.fixture
def training(results: Results, annotation: Run, tiny_folder: Path) -> Run:
    run = train(results, tiny_folder)
    evaluate(results, "toolformer_disabled", svamp=8.4, dateset=2.8, wikitext_perplexity=20.5)
    evaluate(results, "toolformer", svamp=21.5, dateset=20.9)
    return run
