"""The smallest experiment with a tiny model: what its stages leave, interrupted and gone on with; several commands at once."""

import importlib
import importlib.util
import json
import shutil
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.conftest import GOLDEN, Capture, Log, Patch, Refused, smoke_words
from toolformer.calls import strip
from toolformer.cli import main
from toolformer.data import demo_corpus
from toolformer.decoding.settings import PAPER_SYSTEMS, SYSTEMS
from toolformer.errors import UserError
from toolformer.lm import text_generator
from toolformer.lm.loading import number_format
from toolformer.stages import experiments
from toolformer.stages.config import STAGES, compose, validate
from toolformer.stages.launch import run_stage
from toolformer.tracking import Run, Tracker


def planned(words: list[str], capsys: Capture) -> list[tuple[str, bool]]:
    capsys.readouterr()
    assert main(["run", *words, "--json"]) == 0
    return [(row["stage"], bool(row["run"])) for row in json.loads(capsys.readouterr().out)]


def test_smoke_goes_through_all_stages_and_does_only_what_is_missing(
    tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    words = smoke_words(tmp_path)
    stages = ["generate", "train", "train", *["evaluate"] * 4, "report"]
    assert planned(words, capsys) == [(stage, False) for stage in stages]

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("toolformer.evaluation.suite.run", interrupted)
        assert main(["run", *words]) == 130
    assert text_generator.load.cache_info().currsize == 0, "a model is held beside the trained one"
    assert planned(words, capsys) == [(stage, stage in ("generate", "train")) for stage in stages]
    assert main(["run", *words]) == 0
    assert planned(words, capsys) == [(stage, stage != "report") for stage in stages]
    tracker = Tracker(None, tmp_path)
    evaluated = tracker.runs("evaluate")
    assert {run.tags["system"] for run in evaluated} == set(PAPER_SYSTEMS)
    (parent,) = {run.tags["mlflow.parentRunId"] for run in evaluated}
    assert tracker.get(parent).name == "smoke: evaluate over system", "one sweep, though it was interrupted"
    before = {run.run_id for stage in STAGES for run in tracker.runs(stage)}
    capsys.readouterr()
    assert main(["run", *words]) == 0
    shown = capsys.readouterr().out
    assert "From texts to kept calls" in shown and all(SYSTEMS[system] in shown for system in PAPER_SYSTEMS)
    assert "Runs" not in shown.split(), "a summary"
    assert "The difference is" in " ".join(shown.strip().split("\n\n")[-1].split()), (
        "it ends with what calls are worth"
    )
    assert {run.run_id for stage in STAGES for run in tracker.runs(stage)} == before, "nothing was done twice"


@pytest.mark.parametrize(
    ("stage", "place", "more", "said"),
    [
        ("train", "toolformer.training.trainer.train", "trainer.learning_rate=3e-4", "trains this model"),
        ("evaluate", "toolformer.evaluation.suite.run", "evaluation.bootstrap=30", "evaluates this system"),
        ("explain", "toolformer.stages.explain._check_asked", "system=toolformer", "evaluates this system"),
    ],
)
def test_the_same_job_twice_at_once_is_done_once(
    pipeline: Path, stage: str, place: str, more: str, said: str, caplog: Log,
    monkeypatch: Patch, capsys: Capture,
) -> None:  # fmt: skip
    caplog.set_level("INFO")
    config = validate(compose(stage, [*smoke_words(pipeline), more]))
    module, _, name = place.rpartition(".")
    original = getattr(importlib.import_module(module), name)
    tracker = Tracker(None, pipeline)
    before = {run.run_id for run in tracker.runs(stage)}
    second: list[Future[Any]] = []

    def at_work(*arguments: Any, **named: Any) -> Any:
        assert not second, "the second command does not do it again"
        second.append(pool.submit(run_stage, stage, config))
        deadline = time.monotonic() + 120
        while said not in caplog.text and not second[0].done() and time.monotonic() < deadline:
            time.sleep(0.05)
        return original(*arguments, **named)

    monkeypatch.setattr(place, at_work)
    with ThreadPoolExecutor(1) as pool:
        first = run_stage(stage, config)
        assert second[0].result().run_id == first.run_id
    assert caplog.text.count(said) == 1
    assert {run.run_id for run in tracker.runs(stage)} == before | {first.run_id}
    assert "contexts" not in capsys.readouterr().err, "bars of lm-eval"


def test_a_second_seed_joins_the_row_of_the_first(root: Path) -> None:
    assert main(["run", *smoke_words(root), "system=toolformer", "seed=0,1"]) == 0
    tracker = Tracker(None, root)
    assert len({run.tags["replicate"] for run in tracker.runs("train", data="augmented")}) == 1
    evaluated = tracker.runs("evaluate", system="toolformer")
    assert sorted(run.params["seed"] for run in evaluated) == ["0", "1"]
    lines = (root / "report" / "smoke" / "report.md").read_text(encoding="utf-8").splitlines()
    (row,) = (line for line in lines if line.startswith("| Toolformer |") and "seeds)" in line)
    mean = sum(run.metrics["dateset/score"] for run in evaluated) / 2
    assert f"{mean:.1f}" in row and "(2 seeds)" in row
    (parent,) = {run.tags["mlflow.parentRunId"] for run in evaluated if run.params["seed"] == "1"}
    assert tracker.get(parent).metrics["dateset/score"] == mean, "with what was done before"


def test_what_is_gone_is_made_again_when_it_is_read(pipeline: Path, capsys: Capture) -> None:
    words = [*smoke_words(pipeline), "system=toolformer"]
    stages = ["generate", "train", "evaluate", "report"]
    done = [(stage, stage != "report") for stage in stages]
    made = (pipeline / "artifacts" / run.run_id for run in Tracker(None, pipeline).runs("generate"))
    for folder in (*pipeline.glob("train/*/model"), *made):
        shutil.rmtree(folder)
    assert planned(words, capsys) == done, "nothing reads them"
    more = [*words, "evaluation.limit=3"]
    assert planned(more, capsys) == [(stage, False) for stage in stages]
    assert main(["run", *more]) == 0
    assert planned(more, capsys) == done


def test_a_job_that_fails_is_named_and_the_rest_is_done_and_reported(pipeline: Path, capsys: Capture) -> None:
    # There is no data for the second.
    several = ["name=failing", "system=model,baseline", "benchmarks=[dateset],[svamp]"]
    assert main(["run", *smoke_words(pipeline), *several]) == 2
    said = capsys.readouterr().err.splitlines()
    failed = [line for line in said if "failed:" in line]
    assert len(failed) == 2 and all("svamp" in line for line in failed)
    assert sum(line.startswith("toolformer:") for line in said) == 1
    tracker = Tracker(None, pipeline)
    first, second = tracker.runs("evaluate", experiment="failing")
    assert first.tags["mlflow.parentRunId"] == second.tags["mlflow.parentRunId"]
    assert tracker.get(first.tags["mlflow.parentRunId"]).status == "FAILED"
    assert (pipeline / "report" / "failing" / "report.md").is_file()
    with pytest.raises(UserError, match="there is no run abcdefgh"):
        experiments.plan([*smoke_words(pipeline), "system=toolformer", "checkpoint=abcdefgh"])


@pytest.mark.chaos
@pytest.mark.parametrize(("launcher", "bootstrap"), [("submitit_local", 40), ("joblib", 50), ("ray", 60)])
def test_jobs_run_in_the_processes_of_a_launcher(
    pipeline: Path, launcher: str, bootstrap: int, monkeypatch: Patch, capsys: Capture
) -> None:  # fmt: skip
    if launcher == "ray" and not importlib.util.find_spec("hydra_plugins.hydra_ray_launcher"):
        pytest.skip("hydra-ray-launcher is not installed (conf/hydra/launcher/ray.yaml)")
    monkeypatch.setattr(
        "toolformer.evaluation.suite.run",
        lambda *_, **__: pytest.fail("the job runs in the command's process"),
    )
    tracker = Tracker(None, pipeline)
    before = {run.run_id for run in tracker.runs("evaluate")}
    several = [f"evaluation.bootstrap={bootstrap}", "system=model,toolformer", f"hydra/launcher={launcher}"]
    assert main(["run", *smoke_words(pipeline), *several]) == 0, capsys.readouterr().err
    runs = [run for run in tracker.runs("evaluate") if run.run_id not in before]
    assert sorted(run.tags["system"] for run in runs) == ["model", "toolformer"]
    assert len({run.tags["mlflow.parentRunId"] for run in runs}) == 1


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
    """What they are is pinned in `tests/test_golden.py`."""
    run = annotated(smoke_runs)
    path = Tracker(None, smoke_runs).artifact_path(run, "candidates.parquet")
    funnel = json.loads(path.with_name("funnel.json").read_bytes())
    assert sorted(funnel) == sorted(TOOLS)
    for counts in funnel.values():
        assert counts["documents"] == sum(counts["reasons"].values()) == 4
        assert counts["scored"] == counts["kept"] + sum(counts["filter_reasons"].values())
    augmented, plain = (table(smoke_runs, run, f"dataset_{name}.parquet") for name in ("augmented", "plain"))
    assert sum(len(row["calls"]) for row in augmented) == sum(counts["kept"] for counts in funnel.values())
    documents = {document.doc_id: document for document in demo_corpus()}
    for with_calls, without in zip(augmented, plain, strict=True):
        document = documents[without["doc_id"]]
        assert with_calls["doc_id"] == without["doc_id"] and with_calls["calls"] and not without["calls"]
        assert strip(with_calls["text"], {"Calculator", "Calendar"}) == without["text"] == document.text
        assert without["date"] == (str(document.date) if document.date else None)


def test_another_threshold_or_baseline_needs_no_model(
    root: Path, monkeypatch: Patch, refused: Refused
) -> None:
    monkeypatch.setattr(text_generator, "load", lambda *_: pytest.fail("a model was loaded"))
    before, store = annotated(root), Tracker(None, root)
    high = [*(f"tool.{tool}.filter_threshold=null" for tool in TOOLS), "filter_threshold=100"]
    strict, plain = (stage("generate", root, *more) for more in (high, ["filter.baseline=plain"]))
    assert strict.metrics["texts_kept"] == 0 and len({strict.run_id, plain.run_id, before.run_id}) == 3
    seconds = [run.metrics["annotation_seconds"] for run in (before, strict)]
    assert seconds[0] == seconds[1] > 0, "what the reused shards cost"
    same = pq.read_table(store.artifact_path(before, "candidates.parquet")).drop(
        ["kept", "reason", "filter_gain"]
    )
    for made in (strict, plain):
        rows_made = pq.read_table(store.artifact_path(made, "candidates.parquet"))
        assert rows_made.drop(["kept", "reason", "filter_gain"]) == same
        assert pc.sum(rows_made["kept"]).as_py() == made.metrics["calls_kept"]
    assert stage("generate", root).run_id == before.run_id
    # Nothing kept is nothing to train on.
    assert "kept no call" in refused("train", *smoke_words(root), f"dataset={strict.run_id}")


def test_the_runs_and_their_lineage(smoke_runs: Path) -> None:
    runs, computed = Tracker(None, smoke_runs), number_format("float32", "auto")
    generated = annotated(smoke_runs)
    assert generated.tags["dtype"] == computed
    rows = table(smoke_runs, generated, "dataset_augmented.parquet")
    examples = Counter(f"examples/{tool}" for row in rows for tool in {call["tool"] for call in row["calls"]})
    trained = {run.tags["data"]: run for run in runs.runs("train")}
    for data, registered in (("augmented", "toolformer"), ("plain", "toolformer-cc")):
        run = trained[data]
        assert run.name == f"train smoke: {GOLDEN.name} {data} demo/train"
        assert run.tags["lineage.dataset_run_id"] == generated.run_id
        assert f"](#/runs/{generated.run_id})" in run.tags["mlflow.note.content"]
        assert run.tags["registered_model"] == f"models:/{registered}/1" and run.tags["dtype"] == computed
        for name in ("perplexity_calls", "perplexity_results"):
            assert (name in run.metrics) == (data == "augmented")
        assert {key: value for key, value in run.metrics.items() if key.startswith("examples/")} == examples
    read = {"model": "", "model_cc": "plain", "toolformer": "augmented", "toolformer_disabled": "augmented"}
    for system, data in read.items():
        (run,) = runs.runs("evaluate", system=system)
        assert run.metrics["dateset/n"] == 4 and run.metrics["heldout_perplexity/n"] == 2
        assert run.tags.get("lineage.train_run_id") == (trained[data].run_id if data else None)
        assert run.tags["dtype"] == computed and run.name.startswith(
            f"smoke: {SYSTEMS[system]} {GOLDEN.name}"
        )
        samples = table(smoke_runs, run, "samples/dateset.parquet")
        assert len(samples) == 4 and (system == "toolformer" or not any(row["tool"] for row in samples))


def test_texts_of_several_annotations_are_trained_on_together(root: Path, refused: Refused) -> None:
    first, second = annotated(root), stage("generate", root, "corpus.limit=3")
    both = stage("train", root, f"dataset={first.run_id}+{second.run_id}")
    alone = [stage("train", root, f"dataset={run.run_id}") for run in (first, second)]
    for name in ("texts", *(name for name in both.metrics if name.startswith("examples/"))):
        assert both.metrics[name] == sum(run.metrics.get(name, 0) for run in alone), name
    assert both.tags["lineage.dataset_run_id"] == first.run_id
    for run in (first, second):
        assert f"](#/runs/{run.run_id})" in both.tags["mlflow.note.content"]
    with Tracker(None, root).store.faults() as client:
        inputs = client.get_run(both.run_id).inputs.dataset_inputs
    assert [each.dataset.name for each in inputs].count("C*") == 2
    assert "there is no run ffffffff" in refused(
        "train", *smoke_words(root), f"dataset={first.run_id}+ffffffff"
    )
    twice = f"dataset={first.run_id}+{first.run_id[:8]}"
    assert "names a run twice" in refused("train", *smoke_words(root), twice)


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


def test_a_checkpoint_by_its_names(root: Path, caplog: Log, refused: Refused) -> None:
    (done,) = Tracker(None, root).runs("evaluate", system="toolformer")
    caplog.set_level("INFO", "toolformer")
    for reference in ("latest", "models:/toolformer/1", "models:/toolformer/latest"):
        words = ["system=toolformer", f"checkpoint={reference}"]
        assert stage("evaluate", root, *words).run_id == done.run_id
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
            stage("evaluate", root, "system=toolformer", f"model={reference}")
    said = refused("train", *smoke_words(root), "name=other", "dataset=latest")
    assert "there is no finished generate run of name=other: " in said and "name=smoke has" in said


def test_bad_rows_are_skipped_or_refused(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "Of 2 and 3 we get 5 in all."}\n{broken\n\n{"text": ""}\n')
    arguments = ["generate", *smoke_words(tmp_path), "corpus=jsonl", f"corpus.path={path}"]
    assert main(arguments) == 0
    (run,) = Tracker(None, tmp_path).runs("generate")
    assert run.metrics["rows_skipped"] == 2
    assert run.metrics["rows_skipped/malformed JSON"] == run.metrics["rows_skipped/empty text"] == 1
    path.write_text("{broken\n")
    assert "no document with text" in refused(*arguments)
