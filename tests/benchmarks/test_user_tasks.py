"""Tasks of the user's own: what is refused, and what decides their results."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import suite
from tests.pages.page import Page
from toolformer.errors import UserError


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    Page("extending").write_files(tmp_path)
    return tmp_path / "tasks"


def test_they_stand_beside_the_projects_tasks(tasks: Path) -> None:
    assert suite.task_names(["moons_quiz", "temporal"], tasks) == ["moons_quiz", "templama", "dateset"]
    loaded = suite.load(["moons_quiz"], {"subset": 1, "seed": 0}, tasks_dir=tasks)
    assert len(loaded.tasks["tasks"]["moons_quiz"].dataset["test"]) == 1


def test_they_say_which_tools_they_may_not_use(tasks: Path) -> None:
    file = tasks / "moons.yaml"
    assert suite.load(["moons_quiz"], tasks_dir=tasks).switched_off == {"moons_quiz": {"search"}}
    (tasks / "shared").write_text("metadata: {version: 1.0, switched_off: [qa, abacus]}\n")
    file.write_text(
        "include: shared\n"
        + "".join(line for line in file.read_text().splitlines(True) if "metadata" not in line)
    )
    assert suite.load(["moons_quiz"], tasks_dir=tasks).switched_off == {"moons_quiz": {"qa", "abacus"}}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("task: moons_quiz", "task: svamp", "is called svamp, as a task that is there; rename it"),
        ("task: moons_quiz\n", "group: none\n", "holds no task file"),
        ("generate_until", "loglikelihood_rolling", "output_type is loglikelihood_rolling; it must be generate_until"),
        ("quiz.rows", "nonesuch.rows", "moons.yaml cannot be loaded: ImportError"),
        ("process_results: !function benchmarks.tasks.answer_in_5_words\n", "", "process_results and a metric_list"),
        ("answer_in_5_words", "perplexity_results", r"row '\d' gives no `score`, a number: (TypeError|KeyError)"),
        ("benchmarks.tasks.answer_in_5_words", "quiz.whole", "gives 1 to a right answer; scores are from 0 to 100"),
        ("benchmarks.tasks.answer_in_5_words", "quiz.thousand", "gives the score 1000.0; it must be from 0 to 100"),
        ("task: moons_quiz", "task: [moons_quiz", "moons.yaml cannot be read: while parsing"),
        ("switched_off: [search]", "switched_off: search",
         r"moons.yaml: metadata.switched_off is 'search'; it must be a list of tools by key"),
        ("metric: score", "metric: exact_match", "a metric_list of `score` alone"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line(tasks: Path, old: str, new: str, message: str) -> None:
    with (tasks / "quiz.py").open("a") as code:
        code.write(
            "\n\ndef whole(doc, results):\n    return {'score': float(results[0] in doc['answers'])}\n"
        )
        code.write("\n\ndef thousand(doc, results):\n    return {'score': 1000.0}\n")
    file = tasks / "moons.yaml"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(UserError, match=message):
        suite.load(["moons_quiz"], tasks_dir=tasks)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"id": str(number), ', "", "the rows have no field `id`"),
        ('"id": str(number)', '"id": "same"', "the id 'same' stands in several rows"),
    ],
)
def test_rows_need_ids_of_their_own(tasks: Path, old: str, new: str, message: str) -> None:
    file = tasks / "quiz.py"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(UserError, match=f"moons.yaml: {message}"):
        suite.load(["moons_quiz"], tasks_dir=tasks)


def test_what_makes_another_evaluation(tasks: Path, tmp_path: Path) -> None:
    project = suite.scoring(["dateset"], tasks)
    assert not any(name.startswith("own/") for name in project) and "temporal/dateset.yaml" in project
    (tasks / "data").mkdir()
    (tasks / "data" / "rows.jsonl").write_text("1")
    before = suite.scoring(["moons_quiz"], tasks)
    own = {name for name in before if name.startswith("own/")}
    assert own == {"own/moons.yaml", "own/quiz.py", "own/data/rows.jsonl"}
    for name in ("nohup.out", ".moons.yaml.swp", "run.log"):
        (tasks / name).write_text("no matter")
    moved = tasks.rename(tmp_path / "moved")
    assert suite.scoring(["moons_quiz"], moved) == before
    (moved / "data" / "rows.jsonl").write_text("2")
    assert suite.scoring(["moons_quiz"], moved) != before
