"""Which of many runs a report shows, and what it says of the others."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.reporting.conftest import EXECUTED, Runs, accuracy, annotated, evaluated, trained, write_annotation
from tests.reporting.test_figures import scored, write
from toolformer.reporting import console, outcome_tables, reader, tables
from toolformer.reporting.data import Evidence
from toolformer.reporting.frame import BASELINE
from toolformer.reporting.setting_tables import by_threshold
from toolformer.step import Step

GONE = Step("generate", 1, {})


def values(evidence: Evidence, task: str = "svamp") -> dict[str, float]:
    return {system: score.value for (system, name), score in evidence.scores.items() if name == task}


def test_a_table_shows_the_settings_that_most_systems_share_and_counts_the_others() -> None:
    store = Runs()
    training = trained(store)
    evaluated(store, "model", accuracy("svamp", 4.0))
    evaluated(store, "toolformer", accuracy("svamp", 12.0) | accuracy("nq", 1.0), training)
    evaluated(store, "toolformer", accuracy("svamp", 90.0, n=20), training, comparison="only twenty")
    evidence = reader.read(store)
    assert values(evidence) == {"model": 4.0, "toolformer": 12.0}
    (left_out,) = evidence.remarks
    assert left_out.startswith("Other finished evaluations left out: 1.") and "compare RUN RUN" in left_out
    evaluated(store, "model", accuracy("svamp", 80.0, n=20), comparison="only twenty")
    assert values(reader.read(store)) == {"model": 80.0, "toolformer": 90.0}  # as many systems, and newer
    assert values(reader.read(store), "nq") == {"toolformer": 1.0}  # another table, other settings


def test_a_cell_shows_its_newest_run_and_one_with_faults_only_where_there_is_no_other() -> None:
    store = Runs()
    evaluated(store, "model", accuracy("svamp", 4.0))
    evaluated(store, "model", accuracy("svamp", 5.0))
    assert values(reader.read(store)) == {"model": 5.0}
    evaluated(store, "model", accuracy("svamp", 6.0, n=100) | {"svamp/n_faults": 7.0})
    assert values(reader.read(store)) == {"model": 5.0}
    evaluated(store, "toolformer_disabled", accuracy("svamp", 6.0, n=100) | {"svamp/n_faults": 7.0})
    evidence = reader.read(store)
    assert values(evidence)["toolformer_disabled"] == 6.0
    assert "failed in 7 of 100 answers" in evidence.remarks[-1]


def test_all_figures_of_a_system_are_of_one_training_and_one_model() -> None:
    store = Runs()
    long, short = trained(store), trained(store)
    larger, size = trained(store, model="gpt2-large"), {"parameters": 775e6}
    for system in ("toolformer", "toolformer_disabled"):
        evaluated(store, system, accuracy("svamp", 12.0), long)
    evaluated(store, "toolformer", accuracy("svamp", 30.0), short)
    evaluated(store, "toolformer", accuracy("svamp", 50.0) | size, larger)  # its own `model` says gpt2
    evidence = reader.read(store)
    assert evidence.model == "gpt2" and set(values(evidence).values()) == {12.0}
    assert evidence.trained["augmented"][0].id == long.id
    assert evidence.sizes["gpt2-large", "toolformer", "svamp"].value == 50.0
    titles = [sample.title for sample in evidence.sampled]
    assert titles[:2] == ["Toolformer, gpt2-large", "Toolformer"]
    evaluated(store, "toolformer", accuracy("svamp", 9.0) | size, larger, comparison="other tools")
    found = reader.read(store)  # figure 4 draws comparable evaluations of every size
    assert found.sizes["gpt2-large", "toolformer", "svamp"].value == 50.0
    assert found.parameters == {"gpt2": 124e6, "gpt2-large": 775e6}
    assert {figure.key for figure in tables.content(found).figures} >= {"overview", "figure4"}


def test_figure_4_is_of_the_tables_k() -> None:
    store = Runs()
    for model, size, right in ("gpt2", 124e6, 20.0), ("gpt2-large", 775e6, 30.0):
        training = trained(store, model=model)
        metrics = {"parameters": size}
        evaluated(store, "toolformer_disabled", accuracy("svamp", 5.0) | metrics, training)
        evaluated(store, "toolformer", accuracy("svamp", right) | metrics, training, k=1)
    sizes = reader.read(store).sizes
    assert {model: sizes[model, "toolformer", "svamp"].value for model in ("gpt2", "gpt2-large")} == {
        "gpt2": 20.0,
        "gpt2-large": 30.0,
    }


def of_seeds(store: Runs, folder: Path, seeds: Sequence[int], limited: bool) -> Runs:
    """M and Toolformer, both evaluated at each seed, and Toolformer trained at each; `limited` to questions of its own."""
    folder.mkdir()
    for seed in seeds:
        training = trained(store, seed=seed, replicate="the same")
        for system, right in (("model", 30), ("toolformer", 60)):
            first = 100 * seed if limited else 0
            shift = seed * (system == "toolformer")
            numbers = range(first, first + 100)
            rows = [scored(n, 100.0 * ((7 * n + shift) % 100 < right + shift)) for n in numbers]
            file = write(folder / f"{system}-{seed}.parquet", rows)
            score = accuracy("svamp", sum(row["score"] for row in rows) / 100, n=100)
            evaluated(
                store, system, score, training if system == "toolformer" else None, seed=seed, file=file
            )
    return store


@pytest.mark.parametrize("limited", [False, True])
def test_runs_that_differ_only_in_their_seed_are_one_row(tmp_path: Path, limited: bool) -> None:
    shown = []
    for name, seeds in (("at once", (0, 1, 2, 3, 4)), ("resumed", (3, 1, 0, 4, 2))):
        evidence = reader.read(of_seeds(Runs(), tmp_path / name, seeds, limited))
        (table,) = (table for table in tables.content(evidence).tables if table.key == "table4")
        shown.append([[(cell.text, cell.detail, cell.signs) for cell in row] for row in table.rows])
        compared = evidence.paired["svamp", "toolformer", "model"]
        assert compared.seeds == (5, 5) and compared.scores and compared.scores.n == (500 if limited else 100)
        assert compared.unpaired.total == 0 and compared.p_holm == compared.p_value
        assert evidence.scores["toolformer", "svamp"].run.setting("seed") == 0
        assert not evidence.remarks, "no evaluation is left out"
        assert len([row for row in tables.runs(evidence).rows if " evaluate " in row[3].text]) == 10
    assert shown[0] == shown[1]
    toolformer = next(row for row in shown[0] if row[0][0] == "Toolformer")
    assert toolformer[1][1].endswith("] (5 seeds)") and toolformer[1][2] == "‡"
    # A training with other settings is no further seed.
    store = Runs()
    evaluated(store, "toolformer", accuracy("svamp", 99.0), trained(store, seed=2, replicate="another"))
    evaluated(store, "toolformer", accuracy("svamp", 99.0), comparison="others")
    evidence = reader.read(of_seeds(store, tmp_path / "two", (0, 1), limited))
    assert len(evidence.scores["toolformer", "svamp"].runs) == 2 and "left out: 2." in evidence.remarks[-1]


def test_a_sweep_over_k_stands_in_table_9_alone() -> None:
    """Without the paper's k, Toolformer stands at the newest that was measured."""
    store = Runs()
    evaluated(store, "model", accuracy("svamp", 4.0), k=1)
    for k, value in ((3, 30.0), (1, 41.0)):
        evaluated(store, "toolformer", accuracy("svamp", value, calculator=0.5), k=k)
    evidence = reader.read(store)
    assert values(evidence) == {"model": 4.0, "toolformer": 41.0}
    assert evidence.remarks == ["Toolformer was decoded at k = 1 (the paper's k is 10)."]
    (table,) = (table for table in tables.content(evidence).tables if table.key == "tool_use")
    assert "(k = 1)" in table.caption
    store = Runs()
    for k, value in ((0, 1.0), (10, 3.0), (1, 2.0)):
        counts = {"svamp/n_ac": 4.0, "svamp/n_nc": 6.0}
        evaluated(store, "toolformer", accuracy("svamp", value, n=10) | counts, k=k)
    evidence = reader.read(store)
    assert values(evidence) == {"toolformer": 3.0}
    assert {k: score.value for (k, _), score in evidence.by_k.items()} == {0: 1.0, 1: 2.0, 10: 3.0}


def asked_in(
    store: Runs, wording: str, score: float, share: float, of: str = "same", system: str = "toolformer"
) -> None:
    """An evaluation in a wording, on SVAMP and a perplexity."""
    metrics = accuracy("svamp", score, calculator=share) | {"heldout_perplexity/perplexity": score}
    evaluated(store, system, metrics, wording=wording, comparison=of)


def test_wordings_have_a_table_of_their_own_and_stand_in_no_other() -> None:
    store = Runs()
    asked_in(store, "a", 99.0, 0.9, of="other limit")
    asked_in(store, "paper", 10.0, 0.25)
    asked_in(store, "a", 16.0, 0.75)
    asked_in(store, "b", 7.0, 0.5)
    asked_in(store, "paper", 3.0, 0.0, system="model")  # in one wording alone
    evidence = reader.read(store)
    assert values(evidence) == {"toolformer": 10.0, "model": 3.0}
    assert values(evidence, "heldout_perplexity") == {"toolformer": 10.0, "model": 3.0}
    (remark,) = evidence.remarks
    assert remark.startswith("Other finished evaluations left out: 1.")
    (table,) = (table for table in tables.content(evidence).tables if table.key == "wordings")
    (row,) = table.rows
    assert [cell.text for cell in row] == "Toolformer SVAMP 3 7.0 16.0 11.0 25.0 75.0 50.0".split()
    assert [cell.detail for cell in row[3:]] == ["b", "a", "", "paper", "a", ""]
    assert len(tables.runs(evidence).rows) == 4
    assert "Toolformer, wording a" in {sample.title for sample in evidence.sampled}
    alone = Runs()
    asked_in(alone, "paper", 10.0, 0.25)
    assert "wordings" not in {table.key for table in tables.content(reader.read(alone)).tables}
    asked_in(alone, "c", 12.0, 0.25)
    asked_in(alone, "d", 12.0, 0.25)
    assert values(reader.read(alone)) == {"toolformer": 10.0}, "the newest is in other words"


def test_toolformer_by_threshold_where_all_else_is_equal(capsys: pytest.CaptureFixture[str]) -> None:
    store = Runs()
    for threshold, score, steps in ((0.3, 9.0, "8"), (1.0, 7.0, "8"), (0.1, 50.0, "9"), (0.3, 8.0, "8")):
        counts = {"calls_kept": 10 / threshold, "texts_kept": 5.0}
        dataset = annotated(store, counts, None, {"calculator": threshold}, replicate="the same")
        training = trained(store, dataset=dataset, replicate=steps)
        evaluated(store, "toolformer", accuracy("svamp", score), training)
    evidence = reader.read(store)
    console.show(tables.content(evidence), ["by_threshold"])
    shown = capsys.readouterr().out
    assert "\nBy τ_f Score by filtering threshold" in shown and "Runs" not in shown
    assert shown.startswith("Other finished evaluations left out: 2.")
    table = by_threshold(evidence)
    rows = [[cell.text for cell in row] for row in table.rows]
    assert rows == [["0.3", "5", "33", "8.0"], ["1", "5", "10", "7.0"]]
    assert table.columns[-1].detail == "n = 1,000"
    assert table.rows[0][-1].command.startswith("toolformer evaluate like=")


def test_baselines_are_told_from_systems_and_from_each_other(tmp_path: Path) -> None:
    store = Runs()
    evaluated(store, "toolformer", accuracy("svamp", 1.0))
    for place in ("/a/llama", "/b/llama"):
        evaluated(store, "baseline", accuracy("svamp", 2.0), model=place, baseline="llama")
    evaluated(store, "baseline", accuracy("svamp", 3.0), model="/c/x", baseline="toolformer")
    evidence = reader.read(store)
    names = {"llama (/a/llama)": 2.0, "llama (/b/llama)": 2.0, "toolformer": 3.0}
    assert values(evidence) == {"toolformer": 1.0} | {BASELINE + name: score for name, score in names.items()}
    (table,) = (table for table in tables.content(evidence).tables if table.key == "table4")
    assert [row[0].detail for row in table.rows] == ["", *["(baseline)"] * 3]


def test_an_experiment_can_be_singled_out() -> None:
    store = Runs()
    evaluated(store, "model", accuracy("svamp", 4.0), experiment="one")
    evaluated(store, "model", accuracy("svamp", 5.0), experiment="two")
    assert values(reader.read(store, "one")) == {"model": 4.0}


def test_the_annotation_is_the_one_behind_the_models(tmp_path: Path) -> None:
    store = Runs()
    files = write_annotation(tmp_path)
    old = annotated(store, EXECUTED, files)
    annotated(store, files=files)
    trained(store, dataset=old)
    evidence = reader.read(store)
    assert evidence.annotation and evidence.annotation.run.id == old.id and not evidence.remarks
    rows = {row[0].text: [cell.text for cell in row[1:5]] for row in outcome_tables.cost(evidence).rows}
    assert set(rows) == {"Toolformer", "Toolformer (disabled)"}
    assert rows["Toolformer"] == ["7.0", "520", "8.0", "512"]
    trained(store, "plain", dataset=GONE)
    assert "different annotations" in reader.read(store).remarks[0]
    gone = Runs()
    trained(gone, dataset=GONE)
    annotated(gone, files=files)
    assert f"run {GONE.key()[:8]}, on which the models were trained, is gone" in reader.read(gone).remarks[0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("candidates.parquet", "Generate run {generated} cannot be read"),
        ("dataset_plain.parquet", "Generate run {generated} cannot be read"),
        ("funnel.json", "Generate run {generated} cannot be read"),
        ("samples/svamp.parquet", "samples/svamp.parquet of evaluate run {evaluated} is damaged"),
    ],
)
def test_a_broken_file_costs_what_is_made_of_it_only(tmp_path: Path, name: str, said: str) -> None:
    store, file = Runs(), write(tmp_path / "svamp.parquet", [scored(1, 0.0)])
    generated = annotated(store, files=write_annotation(tmp_path))
    run = evaluated(store, "model", accuracy("svamp", 4.0), file=file)
    is_sample = name.startswith("samples")
    ((run if is_sample else generated).folder / name).write_text("[broken")
    evidence = reader.read(store)
    assert (evidence.annotation is None) == (not is_sample) == bool(evidence.sampled[0].files)
    said = said.format(generated=generated.id[:8], evaluated=run.id[:8])
    assert values(evidence) == {"model": 4.0} and said in evidence.remarks[0]
