"""Tables of a page from published answers: a small experiment of several arms, two training seeds and a few questions."""

import json
from pathlib import Path

import pytest

from scripts import answer_tables, answers, tables
from tests.runs import scored, write
from tests.scripts.build import Experiment
from toolformer.data.parquet import read_table
from toolformer.errors import UserError
from toolformer.evaluation.ladder.classes import RUNGS
from toolformer.reporting.reader import explained_tasks
from toolformer.results.folder import record_digest
from toolformer.storage import sha256

CHANCE = {"chance": {"calculator": 0.5}}
DISABLED = [[0, 0, 0, 100], [0, 0, 0, 0]]
"""Scores of four sums, by seed: 12.5 % right."""
CALLED = [[100, 100, 0, 100], [100, 0, 0, 0]]
"""50 % right; three are gained."""
PAGE = "Before.\n\n<!-- answers: gains | of: Toolformer | over: disabled | benchmarks: mawps -->\n\nAfter.\n"


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    made = Experiment(tmp_path)
    made.arm("toolformer_disabled", DISABLED)
    made.arm("toolformer", CALLED)
    return made


def test_a_gain_is_computed_from_the_answers(experiment: Experiment) -> None:
    (row,) = answer_tables.gains(answers.Answers(experiment.published()), "Toolformer", "disabled", ["mawps"])
    assert (row["disabled"], row["Toolformer"], row["gained"], row["lost"]) == ("12.5", "50.0", "3", "0")
    assert row["gain"] == "+37.5 seeds +50.0 +25.0" and (row["questions"], row["seeds"]) == ("4", "2")


def test_the_newest_of_two_evaluations_of_an_arm_counts(experiment: Experiment) -> None:
    experiment.arm("toolformer", [[100, 100, 100, 100], [0, 0, 0, 0]])
    experiment.arm("toolformer", [[100, 100, 0, 0], [100, 100, 100, 0]])
    (row,) = answer_tables.scores(answers.Answers(experiment.published()), ["Toolformer"], ["mawps"])
    assert (row["Toolformer"], row["Toolformer, seeds"]) == ("62.5", "2")


def test_arms_are_told_by_what_they_were_made_with(experiment: Experiment) -> None:
    experiment.arm("toolformer", [[0, 0, 0, 0]] * 2, filtered=CHANCE)
    experiment.arm("toolformer", [[0, 0, 0, 100]] * 2, sampled_by=1)
    experiment.arm("toolformer", [[0, 0, 100, 100]] * 2, index="data/without.bm25")
    experiment.arm("toolformer", [[0, 100, 100, 100]] * 2, wording="a")
    experiment.arm("model", [[100] * 4])
    published = answers.Answers(experiment.published())
    names = ["Toolformer", "chance", "new calls", "Toolformer, index without", "M"]
    (row,) = answer_tables.scores(published, names, ["mawps"])
    assert [row[name] for name in names] == ["50.0", "0.0", "25.0", "50.0", "100.0"]


def test_a_pooled_arm_has_the_trainings_of_all_annotations(experiment: Experiment) -> None:
    experiment.arm(
        "toolformer", [[0, 0, 0, 0]] * 2, filtered={"chance": {"calculator": 0.5}, "chance_above": 0}
    )
    experiment.arm(
        "toolformer", [[0] * 4] * 2 + [[100] * 4], sampled_by=1, index="data/without.bm25", first=2
    )
    published = answers.Answers(experiment.published(), "positions")
    (row,) = answer_tables.scores(published, ["Toolformer", "chance above 0"], ["mawps"])
    assert (row["Toolformer"], row["Toolformer, seeds"], row["chance above 0, seeds"]) == ("40.0", "5", "2")


def test_a_comment_names_an_experiment_that_is_not_there(experiment: Experiment) -> None:
    with pytest.raises(UserError, match="no experiment 'position' .did you mean positions"):
        tables.fill(PAGE.replace("gains |", "gains | from: position |"), experiment.published())


def test_p_is_corrected_over_the_rows_of_a_table(experiment: Experiment) -> None:
    experiment.arm("toolformer_disabled", DISABLED, "svamp")
    experiment.arm("toolformer", CALLED, "svamp")
    published = answers.Answers(experiment.published())
    (alone,) = published.compared("Toolformer", "disabled", ["mawps"])
    both = published.compared("Toolformer", "disabled", ["mawps", "svamp"])
    assert alone.p_holm and [compared.p_holm for compared in both] == [2 * alone.p_holm] * 2


@pytest.mark.parametrize(("target", "outcome"), [(37.5, "met"), (37.6, "missed")])
def test_a_hypothesis_is_met_at_its_target(
    experiment: Experiment, target: float, outcome: str, tmp_path: Path
) -> None:
    path = tmp_path / "hypotheses.json"
    family = {"of": "Toolformer", "over": "disabled", "targets": {"mawps": target}, "level": 1.0}
    path.write_text(json.dumps([family]))
    (row,) = answer_tables.hypotheses(answers.Answers(experiment.published()), path)
    assert row["outcome"] == outcome


def test_a_hypothesis_is_missed_without_significance(experiment: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "hypotheses.json"
    path.write_text(json.dumps([{"of": "Toolformer", "over": "disabled", "targets": {"mawps": 1}}]))
    (row,) = answer_tables.hypotheses(answers.Answers(experiment.published()), path)
    assert row["outcome"] == "missed" and float(row["p (Holm)"]) > 0.05


@pytest.mark.parametrize("name", answers.EXPERIMENTS)
def test_registered_hypotheses_name_arms_and_benchmarks(name: str) -> None:
    families = json.loads(answers.EXPERIMENTS[name].hypotheses.read_text())
    named = [
        name for family in families for name in (family["of"], family["over"], *family.get("share_of", ()))
    ]
    benchmarks = [name for family in families for name in family["targets"]]
    assert {*named} <= {*answers.ARMS, *answers.RULES} and {*benchmarks} <= {
        *answer_tables.TASKS,
        *answers.PARTS,
    }


def test_costs_count_calls_and_an_annotation_once(experiment: Experiment) -> None:
    published = answers.Answers(experiment.published())
    (row,) = answer_tables.calls(published)
    assert {
        "kept by": "loss",
        "tool": "Calculator",
        "leaking": "0.0",
        "harmful": "0.0",
    }.items() <= row.items()
    assert (row["sampled"], row["scored"], row["kept"]) == ("4", "4", "1")
    annotation, train, evaluate = answer_tables.time(published)
    assert (annotation["hours"], train["minutes each"], evaluate["runs"]) == ("0.5", "4.0", "4")


def test_an_arms_calls_are_counted_in_its_answers(experiment: Experiment) -> None:
    (row,) = answer_tables.called(answers.Answers(experiment.published()), "Toolformer", ["mawps"])
    assert (row["answers"], row["Calculator"], row["QA"]) == ("8", "100.0", "0.0")


def test_sums_are_told_by_what_their_calls_return(experiment: Experiment) -> None:
    experiment.arm("toolformer", [[0, 100, 0, 100]] * 2, "arithmetic")
    experiment.arm("toolformer_disabled", [[0] * 4] * 2, "arithmetic")
    one, two = answer_tables.sums(answers.Answers(experiment.published()), ["Toolformer", "disabled"])
    assert (one["no call"], one["wrong result"], one["right result"]) == ("0.0", "25.0", "75.0")
    assert (one["right result, wrong answer"], two["no call"]) == ("25.0", "100.0")
    assert (one["only the minus is missing"], two["only the minus is missing"]) == ("25.0", "0.0")


def test_explained_answers_are_counted_by_class(experiment: Experiment, tmp_path: Path) -> None:
    rights = {f"{rung}_right": None if rung == "gold_input" else rung == "forced" for rung in RUNGS}
    rows = [
        {"id": str(n), "class": name, "forced": "A text of others", **rights}
        for n, name in enumerate(["helped", *["harmed"] * 3])
    ]
    path = write(tmp_path / "mawps.parquet", rows)
    metrics = {"mawps/class/right_without_need": 1.0}
    experiment.runs.add("evaluate", metrics, {"ladder/mawps.parquet": path}, experiment="headline_explain")
    published = answers.Answers(experiment.published())
    (row,) = answer_tables.explained(published)
    assert (row["answers"], row["helped"], row["harmed"], row["did not call"]) == ("4", "25.0", "75.0", "0.0")
    assert (row["forced call"], row["as it is"], row["gold input"]) == ("100.0", "0.0", "")
    (run,) = filter(explained_tasks, published.results.runs("evaluate"))
    assert read_table(run.folder / "ladder" / "mawps.parquet").column_names == ["id", "class", *rights]


def test_a_page_has_a_table_of_the_answers(experiment: Experiment) -> None:
    page = PAGE.replace(" -->", " | benchmark | gain = points -->")
    filled = tables.fill(page, published=experiment.published())
    assert "| benchmark | points |" in filled and "| MAWPS | +37.5 seeds +50.0 +25.0 |" in filled
    assert tables.fill(filled, published=experiment.published()) == filled


def test_a_number_that_was_changed_in_a_page_is_found(experiment: Experiment) -> None:
    published = experiment.published()
    changed = tables.fill(PAGE, published=published).replace("+37.5", "+47.5")
    assert tables.fill(changed, published=published) != changed


def answered(published: Path) -> Path:
    """An answer file in which all is wrong, of Toolformer."""
    results = answers.Answers(published).results
    run = results.runs("evaluate", system="toolformer")[0]
    write(run.folder / "samples" / "mawps.parquet", [scored(n, 0.0) for n in range(4)])
    return run.folder


def test_an_answer_that_was_changed_is_found(experiment: Experiment) -> None:
    published = experiment.published()
    answered(published)
    with pytest.raises(UserError, match="is damaged"):
        tables.fill(PAGE, published=published)


def test_an_answer_changed_with_its_digest_is_found(experiment: Experiment) -> None:
    published = experiment.published()
    page = tables.fill(PAGE, published=published)
    folder = answered(published)
    result = json.loads((folder / "result.json").read_text())
    result["digests"]["samples/mawps.parquet"] = sha256(folder / "samples" / "mawps.parquet")
    (folder / "result.json").write_text(json.dumps({**result, "digest": record_digest(result)}))
    tables._answers.cache_clear()
    assert tables.fill(page, published=published) != page


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("answers: gain | of: M", "there is no table 'gain' \\(did you mean gains"),
        ("answers: gains | of: M | over: N | benchmarks: mawps", "there is no arm 'N'"),
        ("answers: gains | of: M | over: disabled | benchmarks: maps", "no benchmark 'maps'"),
        ("answers: gains | of: M | over: disabled | benchmarks: mawps", "has no answers of"),
        ("answers: gains | of: M", "missing"),
        ("answers: calls | costs", "no column 'costs'"),
    ],
)
def test_a_comment_that_names_nothing_is_refused(experiment: Experiment, comment: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        tables.fill(f"<!-- {comment} -->\n", published=experiment.published())


def test_a_hypothesis_of_two_families_counts_once(experiment: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "hypotheses.json"
    family = {"of": "Toolformer", "over": "disabled", "targets": {"mawps": 1}}
    path.write_text(json.dumps([family, family]))
    assert len(answer_tables.hypotheses(answers.Answers(experiment.published()), path)) == 1


def test_the_page_counts_the_hypotheses_of_its_table() -> None:
    rows = answer_tables.hypotheses(answers.Answers())
    met = sum(row["outcome"] == "met" for row in rows)
    for page in (tables.README, tables.DOCS / "results.md"):
        assert f"{met} of {len(rows)}" in page.read_text(encoding="utf-8")


def test_scores_are_shown_by_training_seed(experiment: Experiment) -> None:
    published = answers.Answers(experiment.published())
    one, two = answer_tables.seeds(published, ["Toolformer", "disabled"], ["mawps", "svamp"])
    assert (one["0"], one["1"], two["0"], two["1"]) == ("75.0", "25.0", "25.0", "0.0")
