"""Which runs a report shows: one training behind all of a system's figures, and no mixture unsaid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.reporting.conftest import accuracy, log_run, write_annotation
from toolformer.reporting import outcome_tables, reader, tables
from toolformer.reporting.commands import evaluation_command
from toolformer.reporting.evidence import Evidence
from toolformer.reporting.figures import training
from toolformer.tracking import Tracker


def trained(tracker: Tracker, data: str, dataset: str, size: float, finger: str) -> str:
    """A training of two steps."""
    tags = {"data": data, "lineage.dataset_run_id": dataset}
    with tracker.run(stage="train", name="t", fingerprint=finger, config={}, tags=tags) as run:
        for step, loss in ((1, 3.0), (2, size / 1000)):
            run.metrics({"loss": loss}, step=step)
        run.metrics({"train_tokens": size * 10})
    return run.run_id


def evaluated(
    tracker: Tracker, system: str, value: float, n: int, training: str = "", dataset: str = ""
) -> str:
    dotted = {"decoding.k": "10"}
    if training:
        dotted |= {"lineage.train_run_id": training, "lineage.dataset_run_id": dataset}
    finger = f"{system}{value}{n}{training}"
    return log_run(
        tracker, "evaluate", accuracy("svamp", value, n), fingerprint=finger, system=system, dotted=dotted
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Ids of runs: a long training, evaluated with and without calls; then a short one, with calls only; then one that
    nobody evaluated, from a newer annotation."""
    root = tmp_path_factory.mktemp("chosen")
    tracker = Tracker(None, root / "runs")
    found = {"root": str(root / "runs")}
    found["old"] = log_run(tracker, "generate", files=write_annotation(root), fingerprint="old")
    found["long"] = trained(tracker, "augmented", found["old"], 36_000, "long")
    found["model"] = evaluated(tracker, "model", 4.0, 1000)
    found["disabled"] = evaluated(tracker, "toolformer_disabled", 5.0, 1000, found["long"], found["old"])
    found["toolformer"] = evaluated(tracker, "toolformer", 12.0, 1000, found["long"], found["old"])
    found["limited"] = evaluated(tracker, "toolformer", 90.0, 20, found["long"], found["old"])
    found["new"] = log_run(
        tracker,
        "generate",
        {"qa/executed": 11.0},
        write_annotation(root),
        fingerprint="new",
    )
    found["short"] = trained(tracker, "augmented", found["new"], 9, "short")
    found["other"] = evaluated(tracker, "toolformer", 60.0, 1000, found["short"], found["new"])
    found["plain"] = trained(tracker, "plain", found["new"], 77, "plain")
    found["cc"] = evaluated(tracker, "model_cc", 3.0, 500, found["plain"], found["new"])
    found["unused"] = trained(tracker, "augmented", found["new"], 1, "unused")
    return found


@pytest.fixture(scope="module")
def evidence(runs: dict[str, str]) -> Evidence:
    return reader.read(Tracker(None, Path(runs["root"])))


def test_a_systems_figures_are_of_one_training(evidence: Evidence, runs: dict[str, str]) -> None:
    assert evidence.scores["toolformer", "svamp"].run.run_id == runs["toolformer"]  # neither 60.0 nor 90.0
    assert evidence.scores["toolformer_disabled", "svamp"].run.run_id == runs["disabled"]
    assert evidence.trained["augmented"].run_id == runs["long"]


def test_cost_curves_and_annotation_are_of_the_runs_behind_the_scores(
    evidence: Evidence, runs: dict[str, str]
) -> None:
    rows = {row[0].text: row for row in outcome_tables.cost(evidence).rows}
    assert (
        rows["Toolformer"][4].text == "360,000"
    )  # tokens; not the 90 of the short training, nor the 10 of the unused
    assert (rows["M + CC"][2].text, rows["M + CC"][4].text) == ("11", "770")
    assert rows["Toolformer"][2].text == "520"  # calls that the old annotation tried
    (panel,) = training(evidence).panels
    assert [one.y[-1] for one in panel.series if "C*" in one.name] == [36.0]
    assert evidence.annotation is not None and evidence.annotation.run.run_id == runs["old"]


def test_every_mixture_is_said(evidence: Evidence, runs: dict[str, str]) -> None:
    short = {name: run_id[:8] for name, run_id in runs.items()}
    others, annotations, uneven, fewer, newest = evidence.remarks
    assert short["long"] in others and f"train run {short['short']} was evaluated too" in others
    assert (
        f"Toolformer on that of {short['old']}" in annotations
        and f"M + CC on that of {short['new']}" in annotations
    )
    assert f"Toolformer on SVAMP: shown are the 1,000 examples of run {short['toolformer']}" in fewer
    assert f"{short['limited']} has only 20" in fewer
    assert "same number of examples on SVAMP: no figure is bold there" in uneven
    assert short["old"] in newest and f"the newest is {short['new']}" in newest


def test_nothing_is_bold_among_different_numbers_of_examples(evidence: Evidence) -> None:
    (table,) = [one for one in tables.content(evidence).tables if one.key == "table4"]
    assert not any(cell.bold for row in table.rows for cell in row)


def test_with_no_training_named_the_newest_is_shown(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    dataset = log_run(tracker, "generate", fingerprint="g", files=write_annotation(tmp_path))
    trained(tracker, "augmented", dataset, 5, "first")
    second = trained(tracker, "augmented", dataset, 6, "second")
    evidence = reader.read(tracker)
    assert evidence.trained["augmented"].run_id == second and evidence.remarks == ()
    assert evidence.annotation is not None and evidence.annotation.run.run_id == dataset


def test_the_annotation_of_a_training_that_nobody_evaluated_is_shown(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    dataset = log_run(tracker, "generate", files=write_annotation(tmp_path), experiment="first")
    lineage = {"lineage.dataset_run_id": dataset}
    log_run(tracker, "train", data="augmented", experiment="second", dotted=lineage)
    log_run(tracker, "evaluate", accuracy("svamp", 5.0), system="model", experiment="second")
    evidence = reader.read(tracker, "second")
    assert evidence.annotation is not None and evidence.annotation.run.run_id == dataset
    assert evidence.remarks == () and set(evidence.annotating) == {"augmented"}
    without = replace(evidence, annotation=None)
    assert "generate" not in evaluation_command(without, "toolformer", ["svamp"])
    assert "generate" in evaluation_command(without, "model_cc", ["svamp"])


def test_in_place_of_a_deleted_training_another_is_measured_as_it_was(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    dataset = log_run(tracker, "generate", files=write_annotation(tmp_path))
    first = trained(tracker, "augmented", dataset, 5, "first")
    counts = {"svamp/n_ac": 1.0, "svamp/n_nc": 9.0}

    def measured(training: str) -> None:
        lineage = {"lineage.train_run_id": training, "lineage.dataset_run_id": dataset}
        for system, k in (
            ("toolformer", "10"),
            ("toolformer_disabled", "10"),
            ("toolformer", "0"),
            ("toolformer", "3"),
        ):
            dotted = lineage | {"decoding.k": k}
            finger = f"{training}{system}{k}"
            figures = accuracy("svamp", 5.0, 10) | counts
            log_run(tracker, "evaluate", figures, fingerprint=finger, system=system, dotted=dotted)

    measured(first)
    second = trained(tracker, "augmented", dataset, 6, "second")
    with tracker.faults() as client:
        client.delete_run(first)
    evidence = reader.read(tracker)
    (remark,) = evidence.remarks
    assert remark.startswith(f"Train run {first[:8]}, which made Toolformer, is gone:")
    assert evaluation_command(evidence, "toolformer", ["asdiv"]).split(" && ") == [
        "toolformer train data=augmented",
        "toolformer evaluate system=toolformer 'benchmarks=[svamp]'",
        "toolformer evaluate system=toolformer_disabled 'benchmarks=[svamp]'",
        "toolformer evaluate -m system=toolformer decoding.k=0,3 'benchmarks=[svamp]'",
        "toolformer evaluate system=toolformer 'benchmarks=[asdiv]'",
    ]
    measured(second)
    assert reader.read(tracker).trained["augmented"].run_id == second


def test_a_training_that_is_gone_lends_no_other_cost(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    trained(tracker, "augmented", "", 6, "later")
    evaluated(tracker, "toolformer", 5.0, 10, "f" * 32, "e" * 32)
    evidence = reader.read(tracker)
    assert evidence.training == {} and evidence.annotation is None
    assert [remark.split(",")[0] for remark in evidence.remarks] == [
        "Train run ffffffff",
        "Generate run eeeeeeee",
    ]
