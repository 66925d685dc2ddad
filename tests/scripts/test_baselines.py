"""Other ways to ask the untrained model."""

from pathlib import Path

import pytest

from scripts import answers, baselines


def test_indices_are_those_of_all_questions() -> None:
    assert baselines.indices([{"id": 7}, {"id": "b"}, {"id": "c"}], ["c", "7"]) == [0, 2]


def test_a_task_has_examples_in_a_file_of_its_own(tmp_path: Path) -> None:
    folder = baselines.with_examples(tmp_path / "tasks", 4)
    assert {path.stem for path in folder.iterdir()} == {f"{task}_asked" for task in baselines.TASKS}
    assert "num_fewshot: 4\n" in (folder / "mawps_asked.yaml").read_text()


@pytest.mark.parametrize("name", baselines.ASKED)
def test_answers_that_are_right_are_of_registered_questions(name: str) -> None:
    published, right = answers.Answers(), answers.right_answers(answers.BASELINES)[name]
    for task in baselines.TASKS:
        ((_, rows),) = published.of(name, task)
        assert {str(row["id"]) for row in rows if row["score"]} == {*right[task]["0"]}
