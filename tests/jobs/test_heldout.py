"""Held-out texts of the user's own corpus: kept from annotation, and what trainings and evaluations measure perplexity on."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.build import Log, Refused, smoke_words
from tests.processes import run_stage
from toolformer.data import demo_corpus
from toolformer.jobs import heldout
from toolformer.jobs.config import compose, validate
from toolformer.jobs.job import Sources
from toolformer.jobs.plan import plan, survey
from toolformer.results import Results, Run

TEXTS = 24
HELD_OUT = 5


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("texts")
    documents = [*demo_corpus("train")][:TEXTS]
    rows = [{"id": document.doc_id, "text": document.text, "url": document.url} for document in documents]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return [
        *smoke_words(folder / "runs"), "name=mine", "corpus=jsonl", f"corpus.path={folder / 'texts.jsonl'}",
        "corpus.limit=null", "corpus@heldout=share", "heldout.limit=null", "evaluation.perplexity_limit=null",
        "benchmarks=[heldout_perplexity]",
    ]  # fmt: skip


def stage(name: str, words: list[str], *more: str) -> Run:
    run = run_stage(name, validate(compose(name, [*words, *more])))
    assert isinstance(run, Run)
    return run


@pytest.fixture(scope="module")
def annotation(words: list[str]) -> Run:
    return stage("generate", words)


def texts(run: Run, name: str) -> set[str]:
    return set(pq.read_table(run.folder / name).column("text").to_pylist())


def test_held_out_texts_are_not_annotated(annotation: Run) -> None:
    held_out = texts(annotation, "heldout.parquet")
    annotated = texts(annotation, "dataset_plain.parquet") | texts(
        annotation, "documents_without_calls.parquet"
    )
    assert len(held_out) == HELD_OUT and annotated and not held_out & annotated
    assert annotation.metrics["documents"] == TEXTS - HELD_OUT
    assert annotation.metrics["rows_skipped/held out"] == HELD_OUT


def test_trainings_and_evaluations_read_them(words: list[str], annotation: Run, caplog: Log) -> None:
    """Also where their own commands do not name the corpus."""
    caplog.set_level("INFO")
    without = [word for word in words if not word.startswith("corpus")] + ["corpus@heldout=share"]
    trained = stage("train", without, "data=augmented")
    assert "held-out perplexity on 2 development texts held out of the same corpus" in caplog.text
    assert trained.step.find("generate") == annotation.step and "heldout" not in trained.step.inputs
    samples = []
    for system in ("model", "toolformer"):
        run = stage("evaluate", without, f"system={system}")
        assert f"heldout: {HELD_OUT} texts that generate run {annotation.id[:8]} held out" in caplog.text
        table = pq.read_table(run.folder / "samples" / "heldout_perplexity.parquet")
        samples.append(table.column("text_sha256").to_pylist())
    assert samples[0] == samples[1] and len(samples[0]) == HELD_OUT - 2


def test_a_plan_is_what_is_done(words: list[str], tmp_path: Path) -> None:
    words = [*words, f"paths.root={tmp_path}"]
    annotation = stage("generate", words)
    stage("train", words, "data=augmented")
    for system in ("model", "toolformer"):
        stage("evaluate", words, f"system={system}")
    swept = ["run.stages.train.data=[augmented]", "run.stages.evaluate.system=[model,toolformer]"]
    done, jobs = survey(plan("run", [*words, *swept]))
    (generate, *_), (model, toolformer) = jobs, [job for job in jobs if job.stage == "evaluate"]
    assert generate.step == annotation.step
    assert model.sources.annotations == toolformer.sources.annotations == (annotation.step,)
    assert toolformer.sources.training and not model.sources.training
    assert {job.key for job in jobs if job.stage != "report"} == {*done}


def test_without_an_annotation_a_model_reads_those_of_the_corpus(
    words: list[str], annotation: Run, tmp_path: Path, caplog: Log
) -> None:
    caplog.set_level("INFO")
    run = stage("evaluate", words, "system=model", f"paths.root={tmp_path}")
    assert f"heldout: {HELD_OUT} texts held out of texts.jsonl" in caplog.text
    assert run.step.inputs["heldout"] == heldout.digest(
        validate(compose("evaluate", words)), Sources((annotation.step,))
    )


def test_texts_that_are_named_leave_the_corpus_whole(words: list[str], tmp_path: Path) -> None:
    run = stage("generate", words, "corpus@heldout=demo_heldout", f"paths.root={tmp_path}")
    assert run.metrics["documents"] == TEXTS and "heldout" not in run.step.inputs
    assert not texts(run, "heldout.parquet")


def test_an_annotation_that_held_out_none_needs_texts(smoke_runs: Path, refused: Refused) -> None:
    run, *_ = Results(smoke_runs).runs("generate")
    said = refused("train", *smoke_words(smoke_runs), "corpus@heldout=share", "heldout.limit=null")
    assert f"generate run {run.id[:8]} held no text out of its corpus; name held-out texts" in said


def test_files_that_are_held_out_and_annotated_are_refused(
    words: list[str], tmp_path: Path, refused: Refused
) -> None:
    """Before anything is done, a copy of a file among others too."""
    corpus = next(word.partition("=")[2] for word in words if word.startswith("corpus.path="))
    (tmp_path / "held").mkdir()
    shutil.copy(corpus, tmp_path / "held" / "copy.jsonl")
    (tmp_path / "held" / "other.jsonl").write_text('{"text": "Another text."}')
    for path, count in ((corpus, "1 of its 1 files"), (tmp_path / "held", "1 of its 2 files")):
        named = ["corpus@heldout=jsonl", f"heldout.path={path}", f"paths.root={tmp_path / 'runs'}"]
        said = refused("run", *[word for word in words if word not in named], *named)
        assert f"heldout: {count} are also in corpus.path; name other texts" in said
    assert not [*(tmp_path / "runs").glob("*/*/step.json")]


def test_texts_that_are_held_out_and_trained_on_are_refused(
    words: list[str], annotation: Run, tmp_path: Path, refused: Refused
) -> None:
    kept = sorted(texts(annotation, "dataset_plain.parquet"))
    rows = [*kept[:2], "A text that no corpus has.", "Nor this one."]
    (tmp_path / "held.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in rows))
    named = ["corpus@heldout=jsonl", f"heldout.path={tmp_path / 'held.jsonl'}"]
    assert "heldout: 2 of 4 held-out texts are also trained on; name other" in refused(
        "train", *words, *named
    )


def test_a_key_of_held_out_texts_that_no_corpus_names_is_refused(refused: Refused) -> None:
    assert "heldout.path needs heldout.source" in refused("train", "heldout.path=held.jsonl")
