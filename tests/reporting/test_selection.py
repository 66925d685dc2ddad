"""Which of many runs a report shows, and what it says of the others."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.runs import (
    EXECUTED,
    Runs,
    accuracy,
    annotated,
    evaluated,
    scored,
    shown,
    trained,
    write,
    write_annotation,
)
from toolformer.benchmarks import TASKS
from toolformer.reporting import console, outcome_tables, reader, tables
from toolformer.reporting.data import Evidence
from toolformer.reporting.score_tables import SCORE_TABLES
from toolformer.reporting.select import BASELINE
from toolformer.reporting.setting_tables import by_threshold
from toolformer.step import Step

GONE = Step("generate", 1, {})


def values(store: Runs | Evidence, task: str = "svamp", experiment: str | None = None) -> dict[str, float]:
    """The scores of a benchmark by row."""
    evidence = reader.read_evidence(store, experiment) if isinstance(store, Runs) else store
    return {system: score.value for (system, name), score in evidence.scores.items() if name == task}


@pytest.fixture
def store() -> Runs:
    return Runs()


def test_a_table_shows_the_largest_comparable_group(store: Runs) -> None:
    training = trained(store)
    evaluated(store, "model", accuracy("svamp", 4.0))
    evaluated(store, "toolformer", accuracy("svamp", 12.0) | accuracy("nq", 1.0), training)
    evaluated(store, "toolformer", accuracy("svamp", 90.0, n=20), training, questions="only twenty")
    evidence = reader.read_evidence(store)
    assert values(evidence) == {"model": 4.0, "toolformer": 12.0}
    (left_out,) = evidence.remarks
    assert (
        left_out.startswith("Left out: 1 other finished evaluation: ")
        and "(SVAMP, n = 20)" in left_out
        and "compare RUN RUN" in left_out
    )
    evaluated(store, "model", accuracy("svamp", 80.0, n=20), questions="only twenty")
    assert values(store) == {"model": 4.0, "toolformer": 12.0}, "the smaller one is newer"
    evaluated(store, "model", accuracy("svamp", 5.0, n=9000), questions="many")
    assert values(store) == {"model": 4.0, "toolformer": 12.0}, "the larger one compares nothing"
    evaluated(store, "toolformer", accuracy("svamp", 13.0, n=9000), training, questions="many")
    assert values(store) == {"model": 5.0, "toolformer": 13.0}
    assert values(store, "nq") == {"toolformer": 1.0}  # another table, other settings
    evaluated(store, "model", accuracy("svamp", 7.0), experiment="two", questions="only twenty")
    assert values(store, experiment="two") == {"model": 7.0}


def test_a_cell_shows_its_newest_run_without_faults(store: Runs) -> None:
    faulty = accuracy("svamp", 6.0, n=100) | {"svamp/n_faults": 7.0}
    for metrics, expected in ((accuracy("svamp", 4.0), 4.0), (accuracy("svamp", 5.0), 5.0), (faulty, 5.0)):
        evaluated(store, "model", metrics)
        assert values(store) == {"model": expected}
    evaluated(store, "toolformer_disabled", faulty)
    evidence = reader.read_evidence(store)
    assert values(evidence)["toolformer_disabled"] == 6.0
    assert "failed in 7 of 100 answers" in evidence.remarks[-1]


def test_a_systems_figures_are_of_one_training_and_model(store: Runs) -> None:
    long, short = trained(store), trained(store)
    larger, size = trained(store, model="gpt2-large"), {"parameters": 775e6}
    for system in ("toolformer", "toolformer_disabled"):
        evaluated(store, system, accuracy("svamp", 12.0), long)
    evaluated(store, "toolformer", accuracy("svamp", 30.0), short)
    evaluated(store, "toolformer", accuracy("svamp", 50.0) | size, larger)  # its own `model` says gpt2
    evidence = reader.read_evidence(store)
    assert evidence.model == "gpt2" and set(values(evidence).values()) == {12.0}
    assert evidence.trained["augmented"][0].id == long.id
    assert evidence.sizes["gpt2-large", "toolformer", "svamp"].value == 50.0
    assert [run.title for run in evidence.sampled][:2] == ["Toolformer, gpt2-large", "Toolformer"]
    evaluated(store, "toolformer", accuracy("svamp", 9.0) | size, larger, questions="other tools")
    evidence = reader.read_evidence(store)  # figure 4 draws comparable evaluations of every size
    assert evidence.sizes["gpt2-large", "toolformer", "svamp"].value == 50.0
    assert evidence.parameters == {"gpt2": 124e6, "gpt2-large": 775e6}
    assert {figure.key for figure in tables.report_content(evidence).figures} >= {"overview", "figure4"}


def test_figure_4_is_of_the_tables_k(store: Runs) -> None:
    rights = {"gpt2": 20.0, "gpt2-large": 30.0}
    for (model, right), size in zip(rights.items(), (124e6, 775e6), strict=True):
        training, metrics = trained(store, model=model), {"parameters": size}
        evaluated(store, "toolformer_disabled", accuracy("svamp", 5.0) | metrics, training)
        evaluated(store, "toolformer", accuracy("svamp", right) | metrics, training, k=1)
    sizes = reader.read_evidence(store).sizes
    assert {model: sizes[model, "toolformer", "svamp"].value for model in rights} == rights


def test_a_small_sweep_over_k_takes_no_row_away(store: Runs) -> None:
    """The demo at k = 1, then three values of k on ten questions, the paper's among them."""
    training = trained(store)
    for system, score in (("model", 4.0), ("toolformer_disabled", 5.0)):
        evaluated(store, system, accuracy("svamp", score, n=100), training if score == 5.0 else None)
    evaluated(store, "toolformer", accuracy("svamp", 78.0, n=100), training, k=1)
    for k in (0, 1, 10):
        evaluated(
            store,
            "toolformer",
            accuracy("svamp", 70.0, n=10) | {"svamp/n_ac": 5.0},
            training,
            k=k,
            questions="ten",
        )
    evidence = reader.read_evidence(store)
    assert values(evidence) == {"model": 4.0, "toolformer_disabled": 5.0, "toolformer": 78.0}
    assert {k for k, _ in evidence.by_k} == {0, 1, 10}, "the sweep has its own table"


def of_seeds(store: Runs, folder: Path, seeds: Sequence[int], limited: bool) -> Runs:
    """M and Toolformer, both evaluated at each seed, and Toolformer trained at each; `limited` to questions of its own."""
    folder.mkdir()
    for seed in seeds:
        training = trained(store, seed=seed, replicate="the same")
        for system, right, source in (("model", 30, None), ("toolformer", 60, training)):
            first = 100 * seed if limited else 0
            shift = seed if source else 0
            rows = [
                scored(n, 100.0 * ((7 * n + shift) % 100 < right + shift)) for n in range(first, first + 100)
            ]
            file = write(folder / f"{system}-{seed}.parquet", rows)
            score = accuracy("svamp", sum(row["score"] for row in rows) / 100, n=100)
            evaluated(store, system, score, source, seed=seed, file=file)
    return store


def test_calls_kept_by_chance_are_one_row_over_the_seeds(store: Runs) -> None:
    for seed in range(3):
        dataset = Step("generate", 1, {}, {"seed": seed})
        training = trained(store, seed=seed, dataset=dataset, replicate="same")
        evaluated(store, "toolformer", accuracy("svamp", 10.0 * seed), training, seed=seed)
    assert values(store) == {"toolformer": 10.0}


@pytest.mark.parametrize("limited", [False, True])
def test_runs_that_differ_only_in_their_seed_are_one_row(tmp_path: Path, limited: bool) -> None:
    seen = []
    for name, seeds in (("at once", (0, 1, 2, 3, 4)), ("resumed", (3, 1, 0, 4, 2))):
        evidence = reader.read_evidence(of_seeds(Runs(), tmp_path / name, seeds, limited))
        rows = shown(evidence)["table4"].rows
        seen.append([[(cell.text, cell.detail, cell.signs) for cell in row] for row in rows])
        compared = evidence.paired["svamp", "toolformer", "model"]
        assert compared.seeds == (5, 5) and compared.comparison.n == (500 if limited else 100)
        assert compared.unpaired.total == 0 and compared.p_holm == compared.comparison.p_value
        assert evidence.scores["toolformer", "svamp"].run.setting("seed") == 0
        assert not evidence.remarks, "no evaluation is left out"
        assert len([row for row in tables.runs(evidence).rows if " evaluate " in row[3].text]) == 10
    assert seen[0] == seen[1]
    (toolformer,) = (row for row in seen[0] if row[0][0] == "Toolformer")
    assert toolformer[1][1].endswith("] (5 seeds)") and toolformer[1][2] == "‡"
    # A training with other settings is no further seed.
    store = Runs()
    evaluated(store, "toolformer", accuracy("svamp", 99.0), trained(store, seed=2, replicate="another"))
    evaluated(store, "toolformer", accuracy("svamp", 99.0), questions="others")
    evidence = reader.read_evidence(of_seeds(store, tmp_path / "two", (0, 1), limited))
    assert len(evidence.scores["toolformer", "svamp"].runs) == 2 and evidence.remarks[-1].startswith(
        "Left out: 2 "
    )


def test_a_sweep_over_k_stands_in_table_9_alone(store: Runs) -> None:
    """Without the paper's k, Toolformer stands at the newest that was measured."""
    evaluated(store, "model", accuracy("svamp", 4.0), k=1)
    for k, value in ((3, 30.0), (1, 41.0)):
        evaluated(store, "toolformer", accuracy("svamp", value, calculator=0.5), k=k)
    evidence = reader.read_evidence(store)
    assert values(evidence) == {"model": 4.0, "toolformer": 41.0}
    assert evidence.remarks == ["Toolformer was decoded at k = 1 (the paper's k is 10)."]
    assert "(k = 1)" in shown(evidence)["tool_use"].caption
    store = Runs()
    for k, value in ((0, 1.0), (10, 3.0), (1, 2.0)):
        evaluated(store, "toolformer", accuracy("svamp", value, n=10) | {"svamp/n_ac": 4.0}, k=k)
    evidence = reader.read_evidence(store)
    assert values(evidence) == {"toolformer": 3.0}
    assert {k: score.value for (k, _), score in evidence.by_k.items()} == {0: 1.0, 1: 2.0, 10: 3.0}


def asked_in(
    store: Runs, wording: str, score: float, share: float, n: int = 1000, system: str = "toolformer"
) -> None:
    """An evaluation in a wording, on SVAMP and a perplexity."""
    metrics = accuracy("svamp", score, n, calculator=share) | {"heldout_perplexity/perplexity": score}
    evaluated(store, system, metrics, wording=wording, questions=wording)


def test_wordings_are_in_their_own_table_alone(store: Runs) -> None:
    asked_in(store, "a", 99.0, 0.9, n=10)
    asked_in(store, "paper", 10.0, 0.25)
    asked_in(store, "a", 16.0, 0.75)
    asked_in(store, "b", 7.0, 0.5)
    asked_in(store, "paper", 3.0, 0.0, system="model")  # in one wording alone
    evidence = reader.read_evidence(store)
    for task in ("svamp", "heldout_perplexity"):
        assert values(evidence, task) == {"toolformer": 10.0, "model": 3.0}
    (remark,) = evidence.remarks
    assert remark.startswith("Left out: 1 ")
    (row,) = shown(evidence)["wordings"].rows
    assert [cell.text for cell in row] == "Toolformer SVAMP 3 7.0 16.0 11.0 25.0 75.0 50.0".split()
    assert [cell.detail for cell in row[3:]] == ["b", "a", "", "paper", "a", ""]
    assert len(tables.runs(evidence).rows) == 4
    assert "Toolformer, wording a" in {run.title for run in evidence.sampled}
    alone = Runs()
    asked_in(alone, "paper", 10.0, 0.25)
    assert "wordings" not in shown(reader.read_evidence(alone))
    for wording in "cd":
        asked_in(alone, wording, 12.0, 0.25)
    assert values(alone) == {"toolformer": 10.0}, "the newest is in other words"


def test_a_row_of_another_arm_is_named(store: Runs) -> None:
    """Two indexes: the one that answered most is the row, the other stands in where that was not measured."""
    training = trained(store)
    first = evaluated(store, "toolformer", accuracy("svamp", 12.0) | accuracy("nq", 3.0), training)
    without = {"index": "without"}
    other = evaluated(
        store, "toolformer", accuracy("nq", 5.0) | accuracy("webqs", 7.0), training, settings=without
    )
    evaluated(store, "toolformer", accuracy("mawps", 1.0), training)
    evidence = reader.read_evidence(store)
    assert [values(evidence, task)["toolformer"] for task in ("svamp", "nq", "webqs")] == [12.0, 3.0, 7.0]
    assert "Toolformer answered WebQS with other settings than " in evidence.remarks[-1]
    assert other.id[:8] in evidence.remarks[-1] and first.id[:8] not in evidence.remarks[-1]


def test_two_annotations_are_not_mixed_in_a_cell(store: Runs) -> None:
    """The same trainings on calls that were sampled again, of which there are fewer."""
    for sampled_by, seeds, score in ((0, (0, 1, 2), 10.0), (1, (0, 1), 90.0)):
        annotate = Step("annotate", 1, {"seed": sampled_by})
        for seed in seeds:
            training = trained(
                store, seed=seed, dataset=Step("generate", 1, {}, {"annotation": annotate}), replicate="same"
            )
            evaluated(store, "toolformer", accuracy("svamp", score), training, seed=seed)
    evidence = reader.read_evidence(store)
    assert values(evidence) == {"toolformer": 10.0}
    assert len(evidence.scores["toolformer", "svamp"].runs) == 3


def test_toolformer_by_threshold_where_all_else_is_equal(
    store: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    for threshold, score, steps in ((0.3, 9.0, "8"), (1.0, 7.0, "8"), (0.1, 50.0, "9"), (0.3, 8.0, "8")):
        counts = {"calls_kept": 10 / threshold, "texts_kept": 5.0}
        dataset = annotated(store, counts, None, {"calculator": threshold}, replicate="the same")
        evaluated(
            store, "toolformer", accuracy("svamp", score), trained(store, dataset=dataset, replicate=steps)
        )
    evidence = reader.read_evidence(store)
    console.print_tables(tables.report_content(evidence), ["by_threshold"])
    printed = capsys.readouterr().out
    assert "\nBy τ_f Score by filtering threshold" in printed and "Runs" not in printed
    assert printed.startswith("Left out: 2 ")
    table = by_threshold(evidence)
    rows = [[cell.text for cell in row] for row in table.rows]
    assert rows == [["0.3", "5", "33", "8.0"], ["1", "5", "10", "7.0"]]
    assert table.columns[-1].detail == "n = 1,000"
    assert table.rows[0][-1].command.startswith("toolformer evaluate like=")


def test_baselines_are_told_from_systems_and_from_each_other(store: Runs) -> None:
    evaluated(store, "toolformer", accuracy("svamp", 1.0))
    for path, name, score in (
        ("/a/llama", "llama", 2.0),
        ("/b/llama", "llama", 2.0),
        ("x", "toolformer", 3.0),
    ):
        evaluated(store, "baseline", accuracy("svamp", score), model=path, baseline=name)
    evidence = reader.read_evidence(store)
    names = {"llama (/a/llama)": 2.0, "llama (/b/llama)": 2.0, "toolformer": 3.0}
    assert values(evidence) == {"toolformer": 1.0} | {BASELINE + name: score for name, score in names.items()}
    assert [row[0].detail for row in shown(evidence)["table4"].rows] == ["", *["(baseline)"] * 3]


def test_the_annotation_is_the_one_behind_the_models(tmp_path: Path, store: Runs) -> None:
    files = write_annotation(tmp_path)
    old = annotated(store, EXECUTED, files)
    annotated(store, files=files)
    trained(store, dataset=old)
    evidence = reader.read_evidence(store)
    assert evidence.annotation and evidence.annotation.run.id == old.id and not evidence.remarks
    rows = {row[0].text: [cell.text for cell in row[1:5]] for row in outcome_tables.cost(evidence).rows}
    assert set(rows) == {"Toolformer", "Toolformer (disabled)"}
    assert rows["Toolformer"] == ["7.0", "520", "8.0", "512"]
    trained(store, "plain", dataset=GONE)
    assert "different annotations" in reader.read_evidence(store).remarks[0]
    gone = Runs()
    trained(gone, dataset=GONE)
    annotated(gone, files=files)
    assert (
        f"run {GONE.key()[:8]}, on which the models were trained, is gone"
        in reader.read_evidence(gone).remarks[0]
    )


def test_the_cost_of_several_annotations_is_their_sum(tmp_path: Path, store: Runs) -> None:
    files = write_annotation(tmp_path)
    first, second = (annotated(store, EXECUTED, files) for _ in range(2))
    trained(store, inputs={"datasets": [first.step, second.step]})
    evidence = reader.read_evidence(store)
    cost = {row[0].text: [cell.text for cell in row[1:5]] for row in outcome_tables.cost(evidence).rows}
    assert cost["Toolformer"] == ["14", "1,040", "8.0", "512"]
    assert evidence.remarks == [
        f"The models were trained on several annotations: the tables on annotation show generate run {first.id[:8]} alone, "
        f"without {second.id[:8]}; Cost counts all."
    ]


def test_trainings_on_an_annotation_each_read_not_several(tmp_path: Path, store: Runs) -> None:
    files = write_annotation(tmp_path)
    for data in ("augmented", "plain"):
        trained(store, data, dataset=annotated(store, files=files))
    assert reader.read_evidence(store).remarks == [
        "Toolformer and M + CC were trained on different annotations."
    ]


@pytest.mark.parametrize(
    "name", ["candidates.parquet", "dataset_plain.parquet", "funnel.json", "samples/svamp.parquet"]
)
def test_a_broken_file_costs_what_is_made_of_it_only(tmp_path: Path, store: Runs, name: str) -> None:
    file = write(tmp_path / "svamp.parquet", [scored(1, 0.0)])
    generated = annotated(store, files=write_annotation(tmp_path))
    run = evaluated(store, "model", accuracy("svamp", 4.0), file=file)
    is_sample = name.startswith("samples")
    ((run if is_sample else generated).folder / name).write_text("[broken")
    evidence = reader.read_evidence(store)
    assert (evidence.annotation is None) == (not is_sample) == bool(evidence.sampled[0].files)
    remark = f"Generate run {generated.id[:8]} cannot be read"
    remark = f"{name} of evaluate run {run.id[:8]} is damaged" if is_sample else remark
    assert values(evidence) == {"model": 4.0} and remark in evidence.remarks[0]


def test_other_data_of_a_benchmark_is_another_comparison(store: Runs) -> None:
    training = trained(store)
    for system, score, digest, of in (
        ("model", 4.0, "a", None), ("toolformer", 12.0, "a", training), ("model", 5.0, "b", None),
    ):  # fmt: skip
        metrics = accuracy("svamp", score)
        evaluated(store, system, metrics, of, questions=digest)
    assert values(store) == {"model": 4.0, "toolformer": 12.0}


def test_trainings_asked_the_same_questions_are_all_compared(store: Runs, tmp_path: Path) -> None:
    """Three trainings, each evaluated at seed 0."""
    for seed in range(3):
        training = trained(store, seed=seed, replicate="the same")
        for system, right in (("toolformer_disabled", 10), ("toolformer", 60 + seed)):
            rows = [scored(n, 100.0 * (n < right)) for n in range(100)]
            file = write(tmp_path / f"{system}-{seed}.parquet", rows)
            evaluated(store, system, accuracy("svamp", right, n=100), training, seed=0, file=file)
    compared = reader.read_evidence(store).paired["svamp", "toolformer", "toolformer_disabled"]
    assert compared.seeds == (3, 3) and compared.comparison.difference.value == pytest.approx(51)


def test_every_benchmark_is_shown_in_one_table() -> None:
    shown = [task for table in SCORE_TABLES for task in (*table.tasks, *table.english.values())]
    assert sorted(shown) == sorted(TASKS)
