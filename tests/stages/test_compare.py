"""Finished runs compared and explained: what comes out, and what is said of the rest."""

import json
from operator import gt, lt
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import Capture, Patch, Refused
from tests.processes import words
from toolformer.cli import main
from toolformer.evaluation.ladder.classes import CLASSES, RUNGS
from toolformer.reporting.candidate_stats import FATES
from toolformer.results import Results, Run
from toolformer.statistics.paired import mcnemar


def test_the_command_prints_tables_and_json(smoke_runs: Path, capsys: Capture, monkeypatch: Patch) -> None:
    results, root = Results(smoke_runs), f"paths.root={smoke_runs}"
    one, two = (results.runs("evaluate", system=system)[0] for system in ("model", "toolformer"))
    assert main(["compare", one.id[:8], two.id, "--json", "--resamples=100", root]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["first"], found["second"]) == (one.id, two.id)
    assert found["settings"]["system"] == ["model", "toolformer"]
    assert found["settings"]["train.trainer.max_steps"][0] == "", "M was not trained"
    by_task = {row["task"]: row for row in found["benchmarks"]}
    assert sorted(by_task) == ["dateset", "heldout_perplexity"]
    tables = (pq.read_table(results.artifact(run, "samples/dateset.parquet")) for run in (one, two))
    scores, (first, second) = by_task["dateset"]["scores"], (table["score"].to_pylist() for table in tables)
    assert scores["p_value"] == mcnemar(*(sum(map(won, first, second)) for won in (gt, lt)))
    assert scores["difference"]["value"] == pytest.approx((sum(second) - sum(first)) / len(first))
    assert scores["difference"]["low"] <= scores["difference"]["value"] <= scores["difference"]["high"]
    monkeypatch.setenv("TOOLFORMER_DATA_DIR", "gone")  # which need not be there any more
    assert main(["compare", "latest:model", "latest:toolformer", "name=smoke", root]) == 0
    shown = capsys.readouterr().out
    assert all(
        part in shown for part in ("McNemar", "(Holm)", "only A right", "B / A", "Settings that differ")
    )


def means(sweep: Run) -> dict[str, float]:
    """The metrics of a sweep that do not depend on how long it took."""
    return {name: value for name, value in sweep.metrics.items() if name != "duration_seconds"}


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("latest:model", "are the same run"),
        ("latest:gpt", "give an id, latest or latest:SYSTEM"),
        ("latest:baseline", "there is no finished evaluate run with system=baseline"),
        ("abcdef00", "there is no run abcdef00"),
    ],
)
def test_wrong_runs_are_one_line(smoke_runs: Path, first: str, said: str, refused: Refused) -> None:
    assert said in refused("compare", first, "latest:model", "name=smoke", f"paths.root={smoke_runs}")


def test_a_sweep_over_seeds_is_summed_up_and_compared(
    tmp_path: Path, tiny_folder: Path, refused: Refused, capsys: Capture
) -> None:
    given = words(
        tmp_path, f"model={tiny_folder}", "benchmarks=[dateset,heldout_perplexity]", "evaluation.limit=6"
    )
    assert main(["evaluate", *given, "system=model", "seed=1"]) == 0, "one of them is done before"
    sweep = ["evaluate", "-m", *given, "system=model,baseline", "seed=0,1"]
    assert main(sweep) == 0
    results = Results(tmp_path)
    (parent,) = results.all_runs("sweep")
    assert "toolformer evaluate -m" in parent.command
    runs = results.runs("evaluate", system="model")
    assert len(runs) == 2 == parent.metrics["model/dateset/seeds"]
    assert "seed=0" in runs[0].command, "each has its own command"
    for task, figure in (("dateset", "score"), ("heldout_perplexity", "perplexity")):
        name = f"{task}/{figure}"
        mean = sum(run.metrics[name] for run in runs) / 2
        assert parent.metrics[f"model/{name}"] == pytest.approx(mean)
        assert parent.metrics[f"model/{task}/ci_low"] <= mean <= parent.metrics[f"model/{task}/ci_high"]
    assert main(sweep) == 0, "resumed"
    assert means(results.get(parent.id)) == means(parent)
    capsys.readouterr()
    names = [f"{parent.id[:8]}:{system}" for system in ("model", "baseline")]
    assert main(["compare", *names, "--json", f"paths.root={tmp_path}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["first"].split(",")) == 2 and "2 seeds, " in found["first_name"]
    assert [row["seeds"] for row in found["benchmarks"]] == [[2, 2], [2, 2]]
    assert found["benchmarks"][0]["scores"]["difference"]["value"] == 0, "one and the same model"
    listed = ",".join(run.id for run in runs)
    assert main(["compare", listed, names[1], f"paths.root={tmp_path}"]) == 0
    assert "2 seeds" in " ".join(capsys.readouterr().out.split())
    assert main(["evaluate", *given, "system=model", "benchmarks=[arithmetic]"]) == 0
    line = refused("compare", "latest:model", names[1], "name=tiny", f"paths.root={tmp_path}")
    assert "have no benchmark in common (they differ in " in line
    line = refused("compare", parent.id, names[1], f"paths.root={tmp_path}")
    assert f"differ in more than their seed (system); name one system of it, as {parent.id}:model" in line
    for name, key, value in (("step", "version", 0), ("result", "facts", {"comparison": "of older code"})):
        path = runs[0].folder / f"{name}.json"
        record = json.loads(path.read_text())
        record[key] = {**record[key], **value} if isinstance(value, dict) else value
        path.write_text(json.dumps(record))
    line = refused("compare", listed, names[1], f"paths.root={tmp_path}")
    assert "seed (the code that scored them); run the commands of the older ones again" in line


def test_an_evaluation_is_explained_once(root: Path, counted: list[str], capsys: Capture) -> None:
    place = f"paths.root={root}"
    assert main(["explain", "latest", "name=smoke", place]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*CLASSES.values(), "Dateset", "forced call", "n = 4"))
    results = Results(root)
    (run,) = results.runs("explain")
    evaluated = results.get(run.made_from[0])
    assert evaluated.facts["system"] == "toolformer"
    assert sum(run.metrics[f"dateset/class/{name}"] for name in CLASSES) == run.metrics["dateset/n"] == 4
    assert run.metrics["dateset/rung/own"] == evaluated.metrics["dateset/score"]
    rows = pq.read_table(results.artifact(run, "ladder/dateset.parquet")).to_pylist()
    assert {row["call"] for row in rows} == {"[Calendar()]"}
    assert all(row["result"].startswith("Today is") for row in rows)
    assert all(row[f"{rung}_right"] is not None for row in rows for rung in RUNGS if rung != "gold_passage")
    assert counted
    counted.clear()
    assert main(["explain", evaluated.id[:8], place]) == 0
    assert not counted and capsys.readouterr().out == shown and len(results.runs("explain")) == 1
    assert main(["report", "name=smoke", place]) == 0
    folder = root / "report" / "smoke"
    assert "## Ladder: Why answers are right or wrong" in (folder / "report.md").read_text()
    assert (folder / "figures" / "ladder.svg").is_file()
    assert json.dumps(CLASSES[rows[0]["class"]]) in (folder / "samples.html").read_text()


def test_an_annotation_is_explained(root: Path, capsys: Capture) -> None:
    assert main(["explain", "latest:generate", "name=smoke", f"paths.root={root}"]) == 0
    shown = capsys.readouterr().out
    assert "Where the yield is lost" in shown
    assert all(word in shown for fate in FATES for word in fate.split())


def test_what_cannot_be_explained_is_one_line(root: Path, refused: Refused) -> None:
    results = Results(root)
    place = f"paths.root={root}"
    (model,) = results.runs("evaluate", system="model")
    assert "the ladder needs one of system=toolformer" in refused("explain", model.id, place)
    assert "there is no run 0123456" in refused("explain", "0123456", place)
    train = results.runs("train")[0].id
    assert "is a run of train" in refused("explain", train, place)
    given = ["explain", "latest", "name=smoke", place, "tools=[calculator]"]
    assert "no benchmark whose right call is known" in refused(*given)
