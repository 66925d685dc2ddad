"""All four stages with a tiny model: what they leave, thresholds without a model, sweeps, bad rows."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.conftest import GOLDEN, Log, Patch, Refused, smoke_words
from toolformer.annotation.results import SCHEMAS
from toolformer.calls import strip
from toolformer.cli import main
from toolformer.data import demo_corpus
from toolformer.decoding.settings import SYSTEMS
from toolformer.errors import UserError
from toolformer.lm import text_generator
from toolformer.lm.loading import number_format
from toolformer.stages.config import compose, validate
from toolformer.stages.launch import run_stage
from toolformer.tracking import Run, Tracker

TOOLS = ("calculator", "calendar")


def stage(name: str, root: Path, *more: str) -> Any:
    return run_stage(name, validate(compose(name, [*smoke_words(root), *more])))


def annotated(root: Path) -> Run:
    """The annotation of the pipeline itself."""
    return Tracker(None, root).runs("generate", experiment="smoke")[-1]


def table(root: Path, run: Run, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(Tracker(None, root).artifact_path(run, name)).to_pylist()
    return rows


def test_candidates_and_datasets_are_what_they_promise(smoke_runs: Path) -> None:
    run = annotated(smoke_runs)
    path = Tracker(None, smoke_runs).artifact_path(run, "candidates.parquet")
    assert pq.read_schema(path).equals(SCHEMAS["candidates.parquet"])
    funnel = json.loads(path.with_name("funnel.json").read_bytes())
    assert sorted(funnel) == sorted(TOOLS)
    for counts in funnel.values():
        assert counts["documents"] == sum(counts["reasons"].values()) == 4
        assert counts["scored"] == counts["kept"] + sum(counts["filter_reasons"].values())
    augmented, plain = (table(smoke_runs, run, f"dataset_{name}.parquet") for name in ("augmented", "plain"))
    calls = sum(len(row["calls"]) for row in augmented)
    kept = sum(row["kept"] for row in pq.read_table(path).to_pylist())
    assert kept == calls == sum(counts["kept"] for counts in funnel.values())
    documents = {document.doc_id: document for document in demo_corpus()}
    for with_calls, without in zip(augmented, plain, strict=True):
        document = documents[without["doc_id"]]
        assert with_calls["doc_id"] == without["doc_id"] and with_calls["calls"] and not without["calls"]
        assert strip(with_calls["text"]) == without["text"] == document.text
        assert without["date"] == (str(document.date) if document.date else None)


def test_another_threshold_or_baseline_needs_no_model(
    pipeline: Path, monkeypatch: Patch, refused: Refused
) -> None:
    monkeypatch.setattr(text_generator, "load", lambda *_: pytest.fail("a model was loaded"))
    before, store = annotated(pipeline), Tracker(None, pipeline)
    high = [*(f"tool.{tool}.filter_threshold=null" for tool in TOOLS), "filter_threshold=100"]
    strict, plain = (stage("generate", pipeline, *more) for more in (high, ["filter.baseline=plain"]))
    assert strict.metrics["texts_kept"] == 0 and len({strict.run_id, plain.run_id, before.run_id}) == 3
    seconds = [run.metrics["annotation_seconds"] for run in (before, strict)]
    assert seconds[0] == seconds[1] > 0, "what the reused shards cost"
    same = pq.read_table(store.artifact_path(before, "candidates.parquet")).drop("kept")
    for made in (strict, plain):
        rows_made = pq.read_table(store.artifact_path(made, "candidates.parquet"))
        assert rows_made.drop("kept") == same
        assert pc.sum(rows_made["kept"]).as_py() == made.metrics["calls_kept"]
    assert stage("generate", pipeline).run_id == before.run_id
    # Nothing kept is nothing to train on.
    assert "kept no call" in refused("train", *smoke_words(pipeline), f"dataset={strict.run_id}")


def test_the_runs_and_their_lineage(smoke_runs: Path) -> None:
    runs, computed = Tracker(None, smoke_runs), number_format("float32", "auto")
    generated = annotated(smoke_runs)
    assert generated.tags["dtype"] == computed
    rows = table(smoke_runs, generated, "dataset_augmented.parquet")
    examples = Counter(f"examples/{tool}" for row in rows for tool in {call["tool"] for call in row["calls"]})
    trained = {run.tags["data"]: run for run in runs.runs("train")}
    for data, registered in (("augmented", "toolformer"), ("plain", "toolformer-cc")):
        run = trained[data]
        assert run.name == f"train {GOLDEN.name} {data}"
        assert run.tags["lineage.dataset_run_id"] == generated.run_id
        assert f"](#/runs/{generated.run_id})" in run.tags["mlflow.note.content"]
        assert run.tags["registered_model"] == f"models:/{registered}/1" and run.tags["dtype"] == computed
        assert ("perplexity_calls" in run.metrics) == (data == "augmented")
        assert {key: value for key, value in run.metrics.items() if key.startswith("examples/")} == examples
    read = {"model": "", "model_cc": "plain", "toolformer": "augmented", "toolformer_disabled": "augmented"}
    for system, data in read.items():
        (run,) = runs.runs("evaluate", system=system)
        assert run.metrics["dateset/n"] == 4 and run.metrics["heldout_perplexity/n"] == 2
        assert run.tags.get("lineage.train_run_id") == (trained[data].run_id if data else None)
        assert run.tags["dtype"] == computed and run.name.startswith(f"{SYSTEMS[system]} {GOLDEN.name}")
        samples = table(smoke_runs, run, "samples/dateset.parquet")
        assert len(samples) == 4 and (system == "toolformer" or not any(row["tool"] for row in samples))


def test_mlflow_shows_data_models_tables_and_pages(smoke_runs: Path) -> None:
    """As its own pages read them: through its client."""
    runs = Tracker(None, smoke_runs)
    (called,) = runs.runs("evaluate", system="toolformer")
    with runs.store.faults() as client:
        experiment = client.get_experiment_by_name("toolformer")

        def inputs(run: Run) -> set[tuple[str, str]]:
            data = client.get_run(run.run_id).inputs.dataset_inputs
            assert all(each.dataset.digest and json.loads(each.dataset.profile)["num_rows"] for each in data)
            return {(each.dataset.name, each.tags[0].value) for each in data}

        assert inputs(annotated(smoke_runs)) == {("demo/train", "annotation")}
        for run in runs.runs("train"):
            kind = {"augmented": "C*", "plain": "C"}[run.tags["data"]]
            assert inputs(run) == {(kind, "training"), ("demo/heldout", "heldout")}
        assert inputs(called) == {("dateset", "evaluation"), ("heldout_perplexity", "evaluation")}

        (used,) = client.get_run(called.run_id).inputs.model_inputs
        model = client.get_logged_model(used.model_id)
        (version,) = client.search_model_versions(f"run_id = '{model.source_run_id}'")
        assert model.source_run_id == called.tags["lineage.train_run_id"]
        assert (version.name, int(version.version)) == ("toolformer", 1)
        scores = {(metric.key, metric.dataset_name): metric.value for metric in model.metrics}
        score = called.metrics["dateset/score"]
        assert scores["Score/dateset", "dateset"] == score == called.metrics["Score/dateset"]
        (report,) = client.search_runs([experiment.experiment_id], "tags.report = 'smoke'")
    page = smoke_runs / "artifacts" / report.info.run_id / "artifacts" / "report.html"
    assert page.read_bytes() == (smoke_runs / "report" / "smoke" / "report.html").read_bytes()
    parent = runs.get(called.tags["mlflow.parentRunId"])
    assert parent.tags["experiment"] == runs.get(report.info.run_id).tags["experiment"] == "smoke"
    best = max(run.metrics["dateset/score"] for run in runs.runs("evaluate", experiment="smoke"))
    assert runs.get(parent.tags["best_child"]).metrics["dateset/score"] == best


def test_a_checkpoint_by_its_names(pipeline: Path, caplog: Log, refused: Refused) -> None:
    (done,) = Tracker(None, pipeline).runs("evaluate", system="toolformer")
    caplog.set_level("INFO", "toolformer")
    for reference in ("latest", "models:/toolformer/1", "models:/toolformer/latest"):
        words = ["system=toolformer", f"checkpoint={reference}"]
        assert stage("evaluate", pipeline, *words).run_id == done.run_id
    for said in (
        f", reads train run {done.tags['lineage.train_run_id'][:8]}",
        f"evaluate: already done, run {done.run_id[:8]}",
        f"dateset: {done.metrics['dateset/score']:.1f} % correct [",
    ):
        assert said in caplog.text
    for reference, reason in (
        ("models:/toolformer/7", "has versions 1 of toolformer"),
        ("models:/other/1", "no version of other"),
        ("models:/toolformer", "write models:/NAME/VERSION"),
    ):
        with pytest.raises(UserError, match=reason):
            stage("evaluate", pipeline, "system=toolformer", f"model={reference}")
    said = refused("train", *smoke_words(pipeline), "name=other", "dataset=latest")
    assert "there is no finished generate run of name=other: " in said and "name=smoke has" in said


def test_bad_rows_are_skipped_or_refused(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "Of 2 and 3 we get 5 in all."}\n{broken\n\n{"text": ""}\n')
    arguments = ["generate", *smoke_words(tmp_path), "corpus=jsonl", f"corpus.path={path}"]
    assert f"{path}, line 2: malformed JSON" in refused(*arguments, "corpus.strict=true")
    assert main(arguments) == 0
    (run,) = Tracker(None, tmp_path).runs("generate")
    assert run.metrics["rows_skipped"] == 2
    assert run.metrics["rows_skipped/malformed JSON"] == run.metrics["rows_skipped/empty text"] == 1
    path.write_text("{broken\n")
    assert "no document with text" in refused(*arguments)
