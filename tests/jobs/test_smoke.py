"""The smallest experiment with a tiny model: what its stages leave, interrupted and continued; several commands at once."""

import json
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.build import GOLDEN, Capture, Refused, smoke_words
from tests.processes import run_stage
from toolformer.cli import main
from toolformer.decoding.settings import PAPER_SYSTEMS, SYSTEMS
from toolformer.errors import UserError
from toolformer.jobs.config import compose, validate
from toolformer.jobs.plan import plan
from toolformer.lm import text_generator
from toolformer.lm.devices import dtype_name
from toolformer.results import Results, Run

TOOLS = ("calculator", "calendar")
PLANNED = ["generate", "train", "train", *["evaluate"] * 4, "report"]


def planned(overrides: list[str], capsys: Capture) -> list[tuple[str, bool]]:
    """The jobs of an experiment, each with whether it is done."""
    capsys.readouterr()
    assert main(["run", *overrides, "--json"]) == 0
    return [(row["stage"], bool(row["run"])) for row in json.loads(capsys.readouterr().out)]


def stage(name: str, root: Path, *more: str) -> Any:
    return run_stage(name, validate(compose(name, [*smoke_words(root), *more])))


def annotated(root: Path) -> Run:
    """The annotation of the pipeline itself."""
    return Results(root).runs("generate", "smoke")[-1]


def table(run: Run, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run.folder / f"{name}.parquet").to_pylist()
    return rows


def test_an_experiment_continues_and_shows_its_summary(root: Path, tmp_path: Path, capsys: Capture) -> None:
    """From what an interruption left: one evaluation that has not begun, one without its end."""
    overrides, results = smoke_words(root), Results(root)
    assert planned(smoke_words(tmp_path / "other"), capsys) == [(stage, False) for stage in PLANNED]
    assert planned(overrides, capsys) == [(stage, stage != "report") for stage in PLANNED]
    before = {run.id: run.ended for run in results.all_runs("generate", "train", "evaluate")}
    shutil.rmtree(results.runs("evaluate", system="model")[0].folder)
    (results.runs("evaluate", system="toolformer")[0].folder / "result.json").unlink()
    assert [is_done for _, is_done in planned(overrides, capsys)].count(False) == 2 + 1
    assert main(["run", *overrides]) == 0
    shown = capsys.readouterr().out
    assert planned(overrides, capsys) == [(stage, stage != "report") for stage in PLANNED]
    evaluated = results.runs("evaluate")
    assert {run.facts["system"] for run in evaluated} == set(PAPER_SYSTEMS)
    made = {run.id: run.ended for run in results.all_runs("generate", "train", "evaluate")}
    assert made.keys() == before.keys() and sum(made[name] != before[name] for name in made) == 2
    assert "From texts to kept calls" in shown and all(
        SYSTEMS[system].title in shown for system in PAPER_SYSTEMS
    )
    assert "Runs" not in shown.split(), "a summary"
    last = " ".join(shown.strip().split("\n\n")[-1].split())
    assert "The difference is" in last, "it ends with what calls are worth"


@pytest.mark.parametrize(
    ("name", "more"), [("train", "trainer.learning_rate=3e-4"), ("evaluate", "evaluation.limit=3")]
)
def test_equal_jobs_at_once_are_done_once(root: Path, name: str, more: str, capsys: Capture) -> None:
    config = validate(compose(name, [*smoke_words(root), more]))
    before = {run.id for run in Results(root).runs(name)}
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda _: run_stage(name, config), range(3)))
    (made,) = {run.id for run in runs}
    assert len({run.ended for run in runs}) == 1, "it was done twice"
    assert {run.id for run in Results(root).runs(name)} == before | {made} != before
    assert "contexts" not in capsys.readouterr().err, "bars of lm-eval"


def test_a_second_seed_joins_the_row_of_the_first(root: Path) -> None:
    assert main(["run", "-m", *smoke_words(root), "system=toolformer", "seed=0,1"]) == 0
    results = Results(root)
    assert len({run.step.key(without=["seed"]) for run in results.runs("train", data="augmented")}) == 1
    evaluated = {run.setting("seed"): run for run in results.runs("evaluate", system="toolformer")}
    assert sorted(evaluated) == [0, 1]
    report = (root / "report" / "smoke" / "report.md").read_text(encoding="utf-8").splitlines()
    (row,) = (line for line in report if line.startswith("| Toolformer |") and "seeds)" in line)
    mean = sum(run.tasks["dateset"]["score"] for run in evaluated.values()) / 2
    assert f"{mean:.1f}" in row and "(2 seeds)" in row


def test_what_is_gone_is_made_again_when_it_is_read(root: Path, capsys: Capture) -> None:
    overrides = [*smoke_words(root), "system=toolformer"]
    stages = ["generate", "train", "evaluate", "report"]
    done = [(stage, stage != "report") for stage in stages]
    for model in root.glob("train/*/model"):
        shutil.rmtree(model)
    for file in root.glob("generate/*/*.parquet"):
        file.unlink()
    assert planned(overrides, capsys) == done, "nothing reads them"
    more = [*overrides, "evaluation.limit=3"]
    assert planned(more, capsys) == [(stage, False) for stage in stages]
    assert main(["run", *more]) == 0
    assert planned(more, capsys) == done
    assert text_generator.load_model.cache_info().currsize == 0, (
        "the annotation's model, beside the trained one"
    )


def test_a_job_that_fails_is_named_and_the_rest_is_done(root: Path, capsys: Capture) -> None:
    # There is no data for the second.
    several = ["name=failing", "system=model", "benchmarks=[dateset],[svamp]"]
    assert main(["run", "-m", *smoke_words(root), *several]) == 2
    shown = capsys.readouterr().err.splitlines()
    assert any("evaluate" in line and "svamp: failed:" in line for line in shown)
    assert sum(line.startswith("toolformer:") for line in shown) == 1
    assert len(Results(root).runs("evaluate", "failing")) == 1
    assert (root / "report" / "failing" / "report.md").is_file()


def test_counts_of_candidates_add_up(smoke_runs: Path) -> None:
    """What the candidates are is pinned in `tests/test_versions.py`."""
    run = annotated(smoke_runs)
    funnel = json.loads((run.folder / "funnel.json").read_bytes())
    assert sorted(funnel) == sorted(TOOLS)
    for counts in funnel.values():
        assert counts["documents"] == sum(counts["reasons"].values()) == 4
        assert counts["scored"] == counts["kept"] + sum(counts["filter_reasons"].values())
    calls = sum(len(row["calls"]) for row in table(run, "dataset_augmented"))
    assert calls == sum(counts["kept"] for counts in funnel.values())


def test_another_filter_needs_no_model(root: Path, refused: Refused) -> None:
    before = annotated(root)
    text_generator.load_model.cache_clear()
    nulls = [f"tool.{tool}.filter_threshold=null" for tool in TOOLS]
    for more in ([*nulls, "filter_threshold=100"], ["filter.baseline=plain"]):
        filtered = stage("generate", root, *more)
        assert filtered.id != before.id and stage("generate", root) == before
        seconds = [run.metrics["annotation_seconds"] for run in (before, filtered)]
        assert seconds[0] == seconds[1] > 0, "what the reused shards cost"
        tables = [pq.read_table(run.folder / "candidates.parquet") for run in (before, filtered)]
        first, second = (rows.drop(["kept", "reason", "filter_gain", "threshold"]) for rows in tables)
        assert first == second
        assert pc.sum(tables[1]["kept"]).as_py() == filtered.metrics["calls_kept"]
        if more[-1] == "filter_threshold=100":
            assert filtered.metrics["texts_kept"] == 0
            assert "kept no call" in refused("train", *smoke_words(root), f"dataset={filtered.id}")
    assert text_generator.load_model.cache_info().misses == 0


def test_a_training_says_what_it_was_trained_on(smoke_runs: Path) -> None:
    generated = annotated(smoke_runs)
    assert generated.facts["dtype"] == dtype_name("float32", "auto")
    rows = table(generated, "dataset_augmented")
    examples = Counter(f"examples/{tool}" for row in rows for tool in {call["tool"] for call in row["calls"]})
    for data in ("augmented", "plain"):
        (run,) = Results(smoke_runs).runs("train", data=data)
        assert run.name == f"train {data} seed=0 τ_f=-100: {GOLDEN.name}, demo/train, smoke"
        assert run.made_from == [generated.id] and run.facts["dtype"] == generated.facts["dtype"]
        for name in ("perplexity_calls", "perplexity_results"):
            assert (name in run.metrics) == (data == "augmented")
        assert {key: value for key, value in run.metrics.items() if key.startswith("examples/")} == examples


def test_an_evaluation_says_whom_it_asked(smoke_runs: Path) -> None:
    results = Results(smoke_runs)
    for system in PAPER_SYSTEMS:
        data = {"model_cc": "plain"}.get(system, "augmented")
        (run,) = results.runs("evaluate", system=system)
        assert run.made_from == ([] if system == "model" else [results.runs("train", data=data)[0].id])
        assert run.tasks["dateset"]["n"] == 4 and run.tasks["heldout_perplexity"]["n"] == 2
        assert run.facts["dtype"] == dtype_name("float32", "auto")
        assert run.name.startswith(SYSTEMS[system].title) and run.name.endswith(f": {GOLDEN.name}, smoke")
        samples = table(run, "samples/dateset")
        assert len(samples) == 4 and (system == "toolformer" or not any(row["tool"] for row in samples))


def test_several_annotations_are_trained_on_together(root: Path) -> None:
    first, second = annotated(root), stage("generate", root, "corpus.limit=3")
    both = stage("train", root, f"dataset={first.id}+{second.id}")
    called: dict[str, set[str]] = {}  # the calls of a text that both annotated are merged
    for row in [row for run in (first, second) for row in table(run, "dataset_augmented")]:
        called.setdefault(row["doc_id"], set()).update(call["tool"] for call in row["calls"])
    examples = Counter(f"examples/{tool}" for tools in called.values() for tool in tools)
    assert both.metrics["texts"] == len(called) and examples.items() <= both.metrics.items()
    assert both.made_from == [first.id, second.id]


def test_wrong_annotations_are_one_line(smoke_runs: Path, refused: Refused) -> None:
    with pytest.raises(UserError, match="there is no run abcdefgh"):
        plan("run", [*smoke_words(smoke_runs), "system=toolformer", "checkpoint=abcdefgh"])
    first, overrides = annotated(smoke_runs).id, smoke_words(smoke_runs)
    assert "there is no run ffffffff" in refused("train", *overrides, f"dataset={first}+ffffffff")
    assert "names a run twice" in refused("train", *overrides, f"dataset={first}+{first[:8]}")
    line = refused("train", *overrides, "name=other", "dataset=latest")
    assert "there is no finished generate run with name=other seed=0; name one: " in line
    assert f"{first[:8]} (name=smoke, seed=0)" in line


def test_a_run_names_its_data(smoke_runs: Path) -> None:
    for name, facts, data in (
        ("generate", {}, {("demo/train", "annotation")}),
        ("train", {"data": "augmented"}, {("C*", "training"), ("demo/heldout", "heldout")}),
        ("train", {"data": "plain"}, {("C", "training"), ("demo/heldout", "heldout")}),
        ("evaluate", {"system": "model"}, {("dateset", "evaluation"), ("heldout_perplexity", "evaluation")}),
    ):
        (run,) = Results(smoke_runs).runs(name, "smoke", **facts)
        datasets = json.loads((run.folder / "result.json").read_bytes())["datasets"]
        assert {(each["name"], each["context"]) for each in datasets} == data
        assert all(each["digest"] and each["rows"] for each in datasets)


def test_bad_rows_are_skipped_or_refused(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "Of 2 and 3 we get 5 in all."}\n{broken\n\n{"text": ""}\n')
    arguments = ["generate", *smoke_words(tmp_path), "corpus=jsonl", f"corpus.path={path}"]
    assert main(arguments) == 0
    (run,) = Results(tmp_path).runs("generate")
    assert run.metrics["rows_skipped"] == 2
    assert run.metrics["rows_skipped/malformed JSON"] == run.metrics["rows_skipped/empty text"] == 1
    path.write_text("{broken\n")
    assert "no document has text" in refused(*arguments)
