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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("task: moons_quiz", "task: svamp", "is called svamp, as a task that is there; rename it"),
        ("task: moons_quiz\n", "group: none\n", "holds no task file"),
        ("generate_until", "loglikelihood_rolling", "output_type is loglikelihood_rolling; it must be generate_until"),
        ("quiz.rows", "quiz.columns", r"moons.yaml cannot be loaded: AttributeError: .* no function 'columns'"),
        ("quiz.rows", "nonesuch.rows", "moons.yaml cannot be loaded: ImportError"),
        ("test_split: test", "test_split: validation", "moons.yaml cannot be loaded: KeyError: 'validation'"),
        ("metric: score", "metric: exact_match", "metric_list must name `score` alone"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line(tasks: Path, old: str, new: str, message: str) -> None:
    file = tasks / "moons.yaml"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(UserError, match=message):
        suite.load(["moons_quiz"], tasks_dir=tasks)


def test_rows_without_ids_are_refused(tasks: Path) -> None:
    file = tasks / "quiz.py"
    file.write_text(file.read_text().replace('"id": str(number), ', ""))
    with pytest.raises(UserError, match="moons.yaml: the rows have no field `id`"):
        suite.load(["moons_quiz"], tasks_dir=tasks)


def test_a_name_that_is_not_there_offers_the_users_own(tasks: Path) -> None:
    with pytest.raises(UserError, match="'moon_quiz'; did you mean moons_quiz"):
        suite.task_names(["moon_quiz"], tasks)


def test_changed_files_are_another_evaluation(tasks: Path) -> None:
    assert suite.files_of(["dateset"], tasks) == {}
    before = suite.files_of(["moons_quiz"], tasks)
    (tasks / "quiz.py").write_text((tasks / "quiz.py").read_text() + "# changed\n")
    after = suite.files_of(["moons_quiz"], tasks)
    assert before.keys() == after.keys() and before != after
