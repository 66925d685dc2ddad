"""Problems and questions of two steps: which are chosen, and their answers by other means than the generator's."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from toolformer.benchmarks import lines_file, two_step
from toolformer.benchmarks.loaders import lama, math
from toolformer.benchmarks.metrics import score_worked
from toolformer.evaluation import suite
from toolformer.evaluation.ladder.gold import golds
from toolformer.tools.calculator import calculate

FACTS = [
    ("P19", "Ada", "Wales"), ("P19", "Bob", "Chad"), ("P19", "Cy", "Mali"), ("P19", "Cy", "Chad"),
    ("P36", "Wales", "Cardiff"), ("P36", "Chad", "Ndjamena"), ("P36", "Mali", "Bamako"),
    ("P37", "Wales", "Welsh"), ("P37", "Wales", "English"), ("P140", "Chad", "Religion of Bob"), ("P1", "Bob", "Wales"),
]  # fmt: skip


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    path = folder / lines_file(name)[1]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows(splits: Any) -> list[dict[str, Any]]:
    return list(splits["test"])


def test_generated_problems_have_two_operations_and_the_value_of_their_equation() -> None:
    problems = two_step.generate(0)
    assert len(problems) == len({row["question"] for row in problems}) == 600
    assert {row["family"] for row in problems} == {*two_step.PROBLEMS}
    for row in problems:
        assert math.count_operations(row["equation"]) == 2
        assert calculate(row["equation"]) == row["answer"], row
        numbers = re.findall(r"\d+", row["equation"])
        assert sorted(numbers) == sorted(re.findall(r"\d+", row["question"]))
    assert two_step.generate(0) == problems != two_step.generate(1)


def test_only_problems_of_two_operations_are_chosen(tmp_path: Path) -> None:
    equations = ["( 76.0 - 25.0 )", "( ( 7.0 + 2.0 ) / 3.0 )", "( 3.0 * ( 4.0 - 1.0 ) ) + 1.0"]
    problems = [
        {"id": n, "body": "B", "question": "Q?", "equation": equation, "answer": answer}
        for n, (equation, answer) in enumerate(zip(equations, (51.0, 3.0, 10.0), strict=True))
    ]
    write(tmp_path, "svamp/svamp", problems)
    (row,) = rows(math.svamp_two_step(data_dir=str(tmp_path)))
    assert (row["id"], row["answer"]) == ("1", "3.0")
    (gold,) = golds("svamp_two_step", [row], {"data_dir": str(tmp_path)})
    assert gold.input == "( 7 + 2 ) / 3"


def test_several_equations_are_not_two_operations(tmp_path: Path) -> None:
    problems = [
        {"id": n, "question": "Q?", "equations": equations, "solutions": [3]}
        for n, equations in enumerate([["X = (7+2)/3"], ["x + y = 3", "x - y = 1"], ["x=1+2"]])
    ]
    write(tmp_path, "mawps/mawps_full", problems)
    assert [row["id"] for row in rows(math.mawps_two_step(data_dir=str(tmp_path)))] == ["0"]


def test_the_result_of_the_last_step_counts() -> None:
    solution = "\nHe had 12 + 3 = 15 cards.\nThen he had 15 * 2 = 30 of them.\n\nShe had 1 + 1 = 2."
    assert score_worked(solution, 30) and not score_worked(solution, 15) and not score_worked(solution, 2)
    assert score_worked(" 30 cards", 30) and not score_worked("He had 15 * 2 =", 30)


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    written = [
        {"relation": name, "sub_label": subject, "obj_label": value, "uuid": str(n)}
        for n, (name, subject, value) in enumerate(FACTS)
    ]
    write(tmp_path, "lama/trex", written)
    return tmp_path


def test_two_facts_become_a_question(facts: Path) -> None:
    questions = {row["question"]: row["answers"] for row in rows(lama.trex_two_hop(data_dir=str(facts)))}
    assert questions == {
        "What is the capital of the place of birth of Ada?": ["Cardiff"],
        "What is the official language of the place of birth of Ada?": ["English", "Welsh"],
        "What is the capital of the place of birth of Bob?": ["Ndjamena"],
    }


def test_the_choice_of_questions_depends_on_the_seed_alone(facts: Path) -> None:
    first, again = (rows(lama.trex_two_hop(data_dir=str(facts))) for _ in range(2))
    assert first == again and {row["id"] for row in first} == {
        row["id"] for row in rows(lama.trex_two_hop(data_dir=str(facts), trex_two_hop_seed=1))
    }


def test_the_tasks_ask_as_their_models_do(facts: Path) -> None:
    names = ["sums_two_step", "trex_two_hop"]
    tasks = suite.load(names, {"data_dir": str(facts), "subset": 3, "seed": 0}).tasks["tasks"]
    problem, question = (tasks[name].doc_to_text(tasks[name].dataset["test"][0]) for name in names)
    assert problem.endswith("?\n")
    assert question.startswith("Answer the following question: What is the ")
