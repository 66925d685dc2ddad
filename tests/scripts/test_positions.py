"""The questions of the second registered experiment, and the kinds of position."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import answers, headline, position_tables, positions
from tests.build import SVAMP, write
from tests.runs import Runs, write_annotation
from tests.scripts.build import ROWS, Experiment, fill
from toolformer.step import Step

Row = dict[str, Any]

PROBLEM: Row = {**SVAMP, "question": "How many are left?"}
PROBLEMS = [
    {**PROBLEM, "id": "a", "body": "Ann has 7 pens and gives 2", "equation": "( 7 - 2 )", "answer": 5},
    {
        **PROBLEM,
        "id": "b",
        "body": "Bo has 7 pens and 3 cups and gives 2",
        "equation": "( 7 - 2 )",
        "answer": 5,
    },
    {**PROBLEM, "id": "c", "body": "Cy has 7 pens, gives 2 and 1", "equation": "( 7 - 2 ) - 1", "answer": 4},
    {**PROBLEM, "id": "d", "body": "Di has 7 pens and gives 2 to 4", "equation": "7 - X = 5", "answer": 2},
    {**PROBLEM, "id": "e", "body": "Ed counts 31 of 4567 pens", "equation": "( 4567 - 31 )", "answer": 4536},
]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a text that has two numbers of problem e, and problem a asked before."""
    fill(tmp_path, "web_documents")
    write(tmp_path, "svamp/svamp", PROBLEMS)
    headline.write(tmp_path / "headline", "texts", [{"id": "t", "text": "So 31 + 4567 = 4598, says Al."}])
    for name in ("FILE", "KINDS"):
        monkeypatch.setattr(positions, name, tmp_path / f"{name}.json")
    monkeypatch.setattr(positions, "QUESTIONS", {"svamp": 3})
    monkeypatch.setattr(headline, "order", lambda task, rows: [row["id"] for row in rows])
    monkeypatch.setattr(headline, "drawn", lambda task, rows: (["a"], [], []))
    return tmp_path


def test_questions_are_new_and_share_no_numbers_with_a_text(data: Path) -> None:
    positions.main(data)
    assert json.loads((data / "FILE.json").read_text())["svamp"] == ["b", "c", "d"]


def test_a_choice_is_a_further_operation_or_number(data: Path) -> None:
    positions.main(data)
    assert json.loads((data / "FILE.json").read_text())["svamp_choice"] == ["b", "c"]


def test_a_problem_that_was_asked_under_another_id_is_left_out(data: Path) -> None:
    write(data, "svamp/svamp", [*PROBLEMS, {**PROBLEMS[0], "id": "f"}])
    positions.main(data)
    assert "f" not in json.loads((data / "FILE.json").read_text())["svamp"]


def test_what_was_registered_stays(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "FILE.json").write_text('{"svamp": ["a"]}')
    positions.main(data)
    assert (data / "FILE.json").read_text() == '{"svamp": ["a"]}'
    assert "other questions of svamp" in capsys.readouterr().out


def test_a_page_ends_with_a_sentence(data: Path) -> None:
    page = {**ROWS["web_documents"][0], "id": "long", "text": "It rains today. " * 60}
    write(data, "corpus_web/documents", [page])
    (row,) = positions.pages(data)
    assert row["text"].endswith("today.") and 350 <= len(row["text"]) <= 700


@pytest.mark.parametrize(
    ("position", "kind"), [(14, "equals"), (15, "equals"), (8, "name"), (25, "name"), (22, "other")]
)
def test_a_position_has_a_kind(position: int, kind: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    positions.main(data)
    monkeypatch.setattr(position_tables, "REGISTRATION", data)
    (data / "KINDS.json").rename(data / "kinds.json")
    position_tables._spans.cache_clear()
    assert position_tables.kind_of({"doc_id": "t", "position": position}) == kind
    position_tables._spans.cache_clear()


def test_differences_are_told_apart_by_annotation(tmp_path: Path) -> None:
    made = Experiment(tmp_path)
    made.arm("toolformer", [[100] * 4, [0, 0, 0, 100]], first=2)
    made.arm("toolformer_disabled", [[0] * 4] * 2, first=2)
    published = answers.Answers(made.published(), "positions")
    (row,) = position_tables.by_annotation(published, "Toolformer", "disabled", ["mawps"])
    assert (row["first annotation"], row["second annotation"]) == ("+100.0", "+25.0")


@pytest.fixture
def annotated(tmp_path: Path) -> Iterator[answers.Answers]:
    """An annotation by the loss: three positions of the calculator in a text, of which two have a call that gains more than 0."""
    rows = [
        ("math", "calculator", position, sample, "1 + 1", "2", "scored", gain)
        for position, sample, gain in [(5, 0, -1.0), (5, 1, 2.0), (20, 0, 0.5), (40, 0, -0.5)]
    ]
    runs = Runs()
    runs.add(
        "generate", {}, write_annotation(tmp_path, rows), settings={"tool": {"calculator": {}}},
        inputs={"annotation": Step("annotate", 1, {})}, corpus="texts.jsonl",
    )  # fmt: skip
    yield answers.Answers(runs.root, "positions")


def test_a_draw_is_as_likely_as_the_loss_keeps_a_call(annotated: answers.Answers) -> None:
    (row,) = position_tables.draws(annotated)
    assert [row[name] for name in ("positions", "above 0", "kept by loss")] == ["3", "2", "1"]
    assert (row["chance"], row["chance above 0"]) == ("0.333", "0.500")


def test_kept_calls_are_counted_by_filter(
    annotated: answers.Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position_tables, "_spans", lambda: {"math": {"equals": [], "name": [(4, 5)]}})
    (row,) = position_tables.kept(annotated)
    assert (row["kept by"], row["calls"], row["harmful"], row["before a name or number"]) == (
        "loss",
        "1",
        "0.0",
        "100.0",
    )
