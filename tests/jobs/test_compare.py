"""Finished runs compared: the tables and JSON, and what is refused."""

import json
import shutil
from operator import gt, lt
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.build import Capture, Patch, Refused
from tests.processes import words
from toolformer.cli import main
from toolformer.results import Results
from toolformer.results.folder import write_record
from toolformer.statistics.paired import mcnemar
from toolformer.step import Step


def test_the_command_prints_tables_and_json(smoke_runs: Path, capsys: Capture, monkeypatch: Patch) -> None:
    results, root = Results(smoke_runs), f"paths.root={smoke_runs}"
    one, two = (results.runs("evaluate", system=system)[0] for system in ("model", "toolformer"))
    assert main(["compare", one.id[:8], two.id, "--json", root]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["first"], found["second"]) == (one.id, two.id)
    assert found["settings"]["system"] == ["model", "toolformer"]
    assert found["settings"]["train.trainer.max_steps"][0] == "", "M was not trained"
    assert not any(key.startswith("tool.") for key in found["settings"]), "M calls no tools"
    by_task = {row["task"]: row for row in found["benchmarks"]}
    assert sorted(by_task) == ["dateset", "heldout_perplexity"]
    tables = (pq.read_table(results.artifact(run, "samples/dateset.parquet")) for run in (one, two))
    scores, (first, second) = (
        by_task["dateset"]["comparison"],
        (table["score"].to_pylist() for table in tables),
    )
    assert scores["p_value"] == mcnemar(*(sum(map(won, first, second)) for won in (gt, lt)))
    assert scores["difference"]["value"] == pytest.approx((sum(second) - sum(first)) / len(first))
    assert scores["difference"]["low"] <= scores["difference"]["value"] <= scores["difference"]["high"]
    monkeypatch.setenv("TOOLFORMER_DATA_DIR", "gone")  # which need not be there any more
    assert main(["compare", "latest:model", "latest:toolformer", "name=smoke", root]) == 0
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("McNemar", "Holm", "Only A", "B / A", "Settings that differ"))


def test_wrong_runs_are_one_line(smoke_runs: Path, refused: Refused) -> None:
    for first, said in (
        ("latest:model", "are the same run"),
        ("latest:gpt", "give an id, latest or latest:SYSTEM"),
        ("latest:baseline", "there is no finished evaluate run with system=baseline"),
        ("abcdef00", "there is no run abcdef00"),
    ):
        assert said in refused("compare", first, "latest:model", "name=smoke", f"paths.root={smoke_runs}")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    """Two systems, which are one and the same model, with two seeds."""
    root = tmp_path_factory.mktemp("seeds")
    asked = [f"model={tiny_folder}", "benchmarks=[dateset,heldout_perplexity]", "evaluation.limit=6"]
    assert main(["evaluate", "-m", *words(root, *asked), "system=model,baseline", "seed=0,1"]) == 0
    assert main(["evaluate", *words(root, *asked), "system=model", "benchmarks=[arithmetic]"]) == 0
    return root


def both_seeds(root: Path, system: str) -> str:
    runs = Results(root).runs("evaluate", system=system)
    return ",".join(run.id for run in runs if "dateset" in run.tasks)


def test_groups_of_seeds_are_compared(seeds: Path, capsys: Capture) -> None:
    groups = [both_seeds(seeds, system) for system in ("model", "baseline")]
    assert main(["compare", *groups, "--json", f"paths.root={seeds}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["first"].split(",")) == 2 and "2 seeds, " in found["first_name"]
    assert [row["seeds"] for row in found["benchmarks"]] == [[2, 2], [2, 2]]
    assert found["benchmarks"][0]["comparison"]["difference"]["value"] == 0


def test_latest_are_the_newest_that_can_be_compared(seeds: Path, capsys: Capture) -> None:
    """The newest evaluation of the model asked something else."""
    for references in (("latest:model", "latest:baseline"), ("latest:baseline", "latest:model")):
        capsys.readouterr()
        assert main(["compare", *references, "--json", "name=tiny", f"paths.root={seeds}"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert {row["task"] for row in found["benchmarks"]} == {"dateset", "heldout_perplexity"}
        newest = [Results(seeds).runs("evaluate", system=name.partition(":")[2]) for name in references]
        dateset = [
            next(run.id for run in runs if "dateset" in run.tasks and run.seed == 0) for runs in newest
        ]
        assert [found["first"], found["second"]] == dateset


def test_only_two_latest_are_looked_for(seeds: Path, capsys: Capture, refused: Refused) -> None:
    named = ("name=tiny", f"paths.root={seeds}")
    assert "are the same run" in refused("compare", "latest:model", "latest", *named)
    (first, second), baselines = (both_seeds(seeds, name).split(",") for name in ("model", "baseline"))
    newest = f"latest:baseline,{','.join(baselines)}"
    assert main(["compare", f"{first},{second}", newest, "--json", *named]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {*found["second"].split(",")} == {*baselines}
    assert "no benchmark in common" in refused("compare", "latest:model", newest, *named)


def test_wrong_groups_are_one_line(seeds: Path, tmp_path: Path, refused: Refused) -> None:
    root = Path(shutil.copytree(seeds, tmp_path / "runs"))
    models, baselines = (both_seeds(root, system) for system in ("model", "baseline"))
    (arithmetic,) = (run.id for run in Results(root).runs("evaluate") if "arithmetic" in run.tasks)
    line = refused("compare", arithmetic, baselines, "name=tiny", f"paths.root={root}")
    assert "have no benchmark in common (they differ in " in line
    line = refused("compare", f"{models},{baselines}", baselines, f"paths.root={root}")
    assert "differ in more than their seed (system)" in line
    folder = Results(root).get(models.split(",")[0]).folder
    record = json.loads((folder / "step.json").read_text()) | {"version": 0}
    write_record(folder / "step.json", record)
    older = folder.rename(folder.with_name(Step.of_json(record).key()))
    models = models.replace(folder.name, older.name)
    line = refused("compare", models, baselines, f"paths.root={root}")
    assert "seed (the code that scored them); run the commands of the older ones again" in line


def test_a_misspelt_system_is_named_before_any_run_is_looked_for(tmp_path: Path, refused: Refused) -> None:
    said = refused("compare", "latest:model", "latest:toolformr", f"paths.root={tmp_path}")
    assert "'latest:toolformr' is not a run" in said and "(did you mean toolformer?)" in said
